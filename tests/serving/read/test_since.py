"""Histories of which the log tells the changes, and others: snapshots made by hand, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from tests.thermocline.profiles import PROFILES
from thermocline.errors import ReadPointGone
from thermocline.iceberg.catalog import SUMMARY_TOPICS_ADDED, SUMMARY_TOPICS_LEFT, SnapshotState
from thermocline.iceberg.lineage import Link
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.serving.read import since as since_module
from thermocline.serving.read.since import state_since

NOTHING: Mapping[str, str] = MappingProxyType({})
CAME = {SUMMARY_TOPICS_ADDED: "new"}
LEFT = {SUMMARY_TOPICS_LEFT: "old"}


class History:
    """Snapshots of a table; ``topics`` says up to where each one has them, of one partition each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **topics: int) -> None:
        self._links: list[Link] = []
        monkeypatch.setattr(since_module, "links_back", lambda _: reversed(self._links))
        self.version = 1
        self.add(**topics)
        self.since = ReadPoint(1, self.seam(topics), self.seam(topics))

    def add(
        self, summary: Mapping[str, str] = NOTHING, ids: Mapping[str, str] = NOTHING, /, **topics: int
    ) -> None:
        """One more snapshot; one whose summary says that topics came or left has another version."""
        self.version += bool(summary)
        number = len(self._links) + 1
        of = {topic: ids.get(topic, f"{topic}-1") for topic in topics}
        state = SnapshotState(number, self.seam(topics), 1, "batch", "cluster", of, self.version, 0, 0)
        self._links.append(Link(cast(Any, SimpleNamespace(snapshot_id=number)), summary, state))

    @staticmethod
    def seam(topics: Mapping[str, int]) -> Seam:
        return Seam({(topic, 0): end for topic, end in topics.items()})

    def check(self, since: ReadPoint | None = None) -> SnapshotState:
        """As whoever asks for changes now."""
        newest = self._links[-1].state
        assert newest is not None
        definition = replace(PROFILES, topics=tuple(newest.topic_ids), version=self.version)
        return state_since(cast(Any, None), definition, since or self.since)


def refused(history: History, since: ReadPoint | None = None) -> str:
    with pytest.raises(ReadPointGone) as error:
        history.check(since)
    return error.value.what


def test_changes_are_told_whatever_topics_came_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """The topic that left had no record since; one that came and left at once had none at all."""
    history = History(monkeypatch, a=5, old=3)
    history.add(a=6, old=3)
    history.add({**CAME, **LEFT}, a=6, new=0, empty=0)
    history.add(a=8, new=4, empty=0)
    history.add(LEFT, a=8, new=4)
    assert history.check().snapshot_id == 1


def test_changes_that_a_topic_took_with_it_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(monkeypatch, a=5, old=3)
    history.add(a=5, old=4)
    history.add(LEFT, a=5)
    assert "old left the table since" in refused(history)


def test_so_are_those_of_a_topic_that_came_and_left_since(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(monkeypatch, a=5)
    history.add(CAME, a=5, new=0)
    history.add(a=5, new=1)
    history.add(LEFT, a=5)
    assert "new left the table since" in refused(history)


def test_a_copy_that_has_records_of_a_topic_that_left_and_the_snapshot_has_not_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the copy had of them depends on the partitions of the moment, which can't be read any more."""
    history = History(monkeypatch, a=5, old=3)
    history.add(LEFT, a=5)
    assert history.check().snapshot_id == 1
    beyond = replace(history.since, end=Seam({("a", 0): 5, ("old", 0): 4}))
    assert "old left the table since" in refused(history, beyond)


@pytest.mark.parametrize("topic_id", ["old-1", "old-2"], ids=["it was hidden", "another one"])
def test_a_topic_that_left_and_came_again_is_refused(monkeypatch: pytest.MonkeyPatch, topic_id: str) -> None:
    history = History(monkeypatch, a=5, old=3)
    history.add(LEFT, a=5)
    history.add(CAME, {"old": topic_id}, a=5, old=0)
    assert "old left the table since, and came again" in refused(history)
    history.add(LEFT, a=5)
    assert "old left the table since, and came again" in refused(history)


def test_an_alteration_between_topics_that_come_and_leave_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(monkeypatch, a=5)
    history.add(CAME, a=5, new=0)
    history.version += 1
    history.add(a=5, new=0)
    history.add(LEFT, a=5)
    assert "the table's definition was altered since" in refused(history)


def test_a_table_of_which_every_topic_left_remembers_them(monkeypatch: pytest.MonkeyPatch) -> None:
    history = History(monkeypatch, old=3)
    history.add(old=4)
    history.add(LEFT)
    assert "old left the table since" in refused(history)

"""Seams mirrored to a consumer group: the newest one, in a thread of its own, and softly."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from thermocline.ingest.commit.commit import Landed
from thermocline.ingest.owner.measures import MIRROR_FAILURES
from thermocline.ingest.owner.mirror import SeamMirror
from thermocline.kafka.mirror_group import GroupHasMembers
from thermocline.rules.seam import Seam

WAIT_SECONDS = 30.0
ANY_CHANGE: Any = None


def at(offset: int) -> Seam:
    return Seam.of({"orders": {0: offset}})


class Group:
    """In place of a broker's: what was written to it; it lets a write end when it is told to."""

    def __init__(self) -> None:
        self.written: list[Seam] = []
        self.error: Exception | None = None
        self.began, self.may_end = threading.Semaphore(0), threading.Semaphore(0)

    def write(self, seam: Seam) -> None:
        self.began.release()
        assert self.may_end.acquire(timeout=WAIT_SECONDS)
        if self.error is not None:
            raise self.error
        self.written.append(seam)


@pytest.fixture
def group() -> Group:
    return Group()


@pytest.fixture
def mirrored(group: Group) -> Iterator[Callable[[str], SeamMirror]]:
    """Begins to mirror a table at offset 3."""
    begun: list[SeamMirror] = []

    def begin(table: str) -> SeamMirror:
        begun.append(SeamMirror(table, f"lake-{table}", at(3), group.write))
        assert group.began.acquire(timeout=WAIT_SECONDS)
        return begun[-1]

    yield begin
    group.may_end.release(10)
    for one in begun:
        one.close()


def failures(table: str) -> float:
    (metric,) = MIRROR_FAILURES.collect()
    return next(
        one.value for one in metric.samples if one.name.endswith("_total") and one.labels == {"table": table}
    )


def test_the_seam_at_taking_over_is_written_and_then_only_the_newest_that_landed(
    group: Group, mirrored: Callable[[str], SeamMirror]
) -> None:
    """Method: three commits land while the first write hangs, and none of them waits for it."""
    mirror = mirrored("newest")
    for snapshot, offset in enumerate((5, 7, 9)):
        mirror.landed(Landed(snapshot, at(offset)), ANY_CHANGE)
    assert group.written == [], "the first write hangs still"
    group.may_end.release()
    assert group.began.acquire(timeout=WAIT_SECONDS)
    group.may_end.release()
    mirror.close()
    assert group.written == [at(3), at(9)]
    assert failures("newest") == 0


def test_an_owner_that_ends_has_its_last_seam_written(
    group: Group, mirrored: Callable[[str], SeamMirror], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: a commit lands while a write hangs that goes on only once the owner ends."""
    monkeypatch.setattr("thermocline.ingest.owner.mirror.LAST_SECONDS", WAIT_SECONDS)
    mirror = mirrored("last")
    mirror.landed(Landed(1, at(13)), ANY_CHANGE)
    going_on = threading.Timer(0.3, lambda: group.may_end.release(10))
    going_on.start()
    mirror.close()
    going_on.join()
    assert group.written == [at(3), at(13)]


def test_failures_are_counted_and_said_once_and_the_next_commit_tries_again(
    group: Group, mirrored: Callable[[str], SeamMirror], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "thermocline.process.repeated")
    group.error = GroupHasMembers("lake-failing")
    mirror = mirrored("failing")
    mirror.landed(Landed(1, at(5)), ANY_CHANGE)
    group.may_end.release()
    assert group.began.acquire(timeout=WAIT_SECONDS), "it is tried again"
    group.may_end.release()
    mirror.landed(Landed(2, at(6)), ANY_CHANGE)
    assert group.began.acquire(timeout=WAIT_SECONDS), "and again"
    assert failures("failing") == 2
    assert [record.getMessage() for record in caplog.records] == [
        'writing the seam of failing to the consumer group "lake-failing" failed; trying again'
    ]
    assert "has members of its own" in vars(caplog.records[0])["fields"]["detail"]
    group.error = None
    group.may_end.release()
    mirror.close()
    assert group.written == [at(6)]

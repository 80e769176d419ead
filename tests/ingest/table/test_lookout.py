"""When an idle table notes that it holds all. The other questions are seen in tests/behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from thermocline.ingest.table.progress import NOTES_PER_RETENTION, is_note_due
from thermocline.kafka.facts import TopicConfig
from thermocline.rules.definition import LiveTable
from thermocline.rules.identity import KEPT_MS_MIN


@dataclass
class Answers:
    """What a cluster says of its topics."""

    retention_ms: int
    is_compacted: bool = True

    def configs(self, topics: Sequence[str]) -> dict[str, TopicConfig]:
        return dict.fromkeys(topics, TopicConfig(self.is_compacted, self.retention_ms, False))


def is_due(answers: Answers, age_ms: int, key: Sequence[str] = ("user",)) -> bool:
    definition = LiveTable.build(
        name="t",
        identifier="app.t",
        topics=["a"],
        key=key,
        key_from="value",
        columns={"user": "string", "plan": "string"},
    )
    return is_note_due(1_000_000, answers, definition, 1_000_000 + age_ms, 3600.0)  # type: ignore[arg-type]


def test_a_note_is_due_in_good_time_before_tombstones_go() -> None:
    hour_ms = 3_600_000
    assert not is_due(Answers(hour_ms), hour_ms // NOTES_PER_RETENTION)
    assert is_due(Answers(hour_ms), hour_ms // NOTES_PER_RETENTION + 1)


@pytest.mark.parametrize("retention_ms", [0, 100])
def test_a_short_retention_does_not_make_every_step_a_note(retention_ms: int) -> None:
    assert not is_due(Answers(retention_ms), KEPT_MS_MIN // NOTES_PER_RETENTION)


def test_no_note_is_due_where_no_tombstone_can_be_missed() -> None:
    assert not is_due(Answers(0, is_compacted=False), 10 * KEPT_MS_MIN)
    assert not is_due(Answers(0), 10 * KEPT_MS_MIN, key=())

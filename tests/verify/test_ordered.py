"""Tables that columns order, against the log: no false alarm, and no damage unseen."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from thermocline.iceberg.catalog import SnapshotState
from thermocline.iceberg.lineage import Link
from thermocline.iceberg.reading import Place, reading_of
from thermocline.iceberg.rows import rows_schema, with_keys
from thermocline.kafka.facts import RecordChunk
from thermocline.rules.definition import LiveTable
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.verify.log_decode import LogDecoder
from thermocline.verify.overlay_check import extract_findings
from thermocline.verify.report import Report
from thermocline.verify.staging import EXTRACT, LOG, MEMORY_BYTES_MIN, REMEMBERED, STORED, Staging
from thermocline.verify.table_check import TableCheck
from thermocline.verify.unconfirmed import UnconfirmedFindings

PLACES: tuple[Place, ...] = (("scores", 0), ("scores", 1))
DEFINITION = LiveTable.build(
    name="scores",
    identifier="app.scores",
    topics=["scores"],
    key=["user"],
    columns={"user": "string", "version": "long", "score": "int"},
    buckets=2,
    delete_when={"path": "op", "values": ["D"]},
    sequence_by=["version"],
)


@dataclass(frozen=True)
class Event:
    """``score`` is None for a delete; of one version are only events of one partition."""

    place: Place
    offset: int
    user: str
    version: int
    score: int | None

    @property
    def value(self) -> bytes:
        said = {"op": "D"} if self.score is None else {"score": self.score}
        return json.dumps({"version": self.version} | said).encode()


@dataclass
class Story:
    """A log, the seam of the table, and what the table, its memory and an extract of the log's end show."""

    events: list[Event]
    seam: Seam
    end: Seam
    stored: dict[str, Event] = field(default_factory=dict)
    extracted: dict[str, Event] = field(default_factory=dict)

    @classmethod
    def told(cls, seed: int) -> Story:
        draw = random.Random(seed)
        events = []
        for offset in range(40):
            for number, place in enumerate(PLACES):
                score = None if draw.random() < 0.4 else draw.randrange(9)
                user = f"u{draw.randrange(6)}"
                events.append(Event(place, offset, user, 2 * draw.randrange(30) + number, score))
        story = cls(
            events, Seam({place: draw.randrange(41) for place in PLACES}), Seam(dict.fromkeys(PLACES, 40))
        )
        story.stored, story.extracted = highest(story.read), highest(events)
        return story

    @property
    def read(self) -> list[Event]:
        return [one for one in self.events if one.offset < self.seam.get(one.place)]

    def findings(self) -> Report:
        reading = reading_of(
            [link(number, seam) for number, seam in enumerate((Seam(dict.fromkeys(PLACES, 0)), self.seam))],
            [DEFINITION, DEFINITION],
            [],
            [],
            DEFINITION,
        )
        report = Report("scores")
        unconfirmed = UnconfirmedFindings(set(), is_by_value=False, report=report)
        check = TableCheck(reading, dict.fromkeys(PLACES, 0), set(), set(), report, unconfirmed)
        decoder = LogDecoder(reading, [self.end])
        with closing(Staging(None, DEFINITION, MEMORY_BYTES_MIN)) as staging:
            for place in PLACES:
                some = [one for one in self.events if one.place == place]
                keys: list[bytes | None] = [json.dumps({"user": one.user}).encode() for one in some]
                offsets = [one.offset for one in some]
                chunk = RecordChunk(*place, keys, [one.value for one in some], offsets, [0] * len(some))
                staging.add(LOG, decoder.decode(chunk))
            staging.add(STORED, rows_of([one for one in self.stored.values() if one.score is not None]))
            staging.add(REMEMBERED, rows_of([one for one in self.stored.values() if one.score is None]))
            staging.add(EXTRACT, rows_of([one for one in self.extracted.values() if one.score is not None]))
            check.check(staging)
            for one in extract_findings(staging, ReadPoint(1, self.seam, self.end)):
                report.add(one.finding)
        return report


def highest(events: list[Event]) -> dict[str, Event]:
    found: dict[str, Event] = {}
    for one in events:
        if one.user not in found or one.version >= found[one.user].version:
            found[one.user] = one
    return found


def link(number: int, seam: Seam) -> Link:
    state = SnapshotState(
        number, seam, 1, str(number), "c", {"scores": "t"}, 1, 0, 0, totals={"read": number}
    )
    snapshot: Any = SimpleNamespace(parent_snapshot_id=number - 1 if number else None)
    return Link(snapshot, {}, state)


def rows_of(events: list[Event]) -> pa.Table:
    rows = [
        {
            "user": one.user,
            "version": one.version,
            "score": one.score,
            "_kafka_topic": one.place[0],
            "_kafka_partition": one.place[1],
            "_kafka_offset": one.offset,
            "_kafka_timestamp": 0,
        }
        for one in events
    ]
    plain = pa.schema([field for field in rows_schema(DEFINITION) if field.name != "_key"])
    return with_keys(DEFINITION, pa.Table.from_pylist(rows, plain))


def forget(story: Story) -> str | None:
    deleted = next((user for user, one in story.stored.items() if one.score is None), None)
    return story.stored.pop(deleted).user if deleted else None


def lose(story: Story) -> str | None:
    user = next((user for user, one in story.stored.items() if one.score is not None), None)
    return story.stored.pop(user).user if user else None


def take_in_late(story: Story) -> str | None:
    """The table has a later record of a lower sequence."""
    for one in story.read[::-1]:
        winner = story.stored[one.user]
        if one.score is not None and winner.score is not None and one.version < winner.version:
            story.stored[one.user] = one
            return one.user
    return None


def show_late(story: Story) -> str | None:
    """An extract shows a hot record that should have lost against the table."""
    for one in story.events:
        below = story.stored.get(one.user)
        is_hot = one.offset >= story.seam.get(one.place)
        if is_hot and one.score is not None and below is not None and story.extracted[one.user] is below:
            story.extracted[one.user] = one
            return one.user
    return None


@pytest.mark.parametrize("seed", range(12))
def test_a_table_that_keeps_the_highest_sequence_is_never_called_wrong(seed: int) -> None:
    report = Story.told(seed).findings()
    assert report.agrees, report.findings
    assert not report.unjudged


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (forget, "delete-not-remembered"),
        (lose, "row-missing"),
        (take_in_late, "row-stale"),
        (show_late, "extract-differs"),
    ],
)
def test_each_damage_is_named(damage: Callable[[Story], str | None], code: str) -> None:
    done = 0
    for seed in range(20):
        story = Story.told(seed)
        if (user := damage(story)) is None:
            continue
        found = [one for one in story.findings().findings if one.code == code]
        assert [one.key for one in found] == [{"user": user}], (seed, user, found)
        done += 1
    assert done > 5

"""What an entity's rows are at a read point, against a replay of its records, whatever snapshot answers."""

from __future__ import annotations

import random
from contextlib import closing
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.verify.story import NULL, TOPIC, Story, definition_of
from thermocline.iceberg.reading import Reading
from thermocline.iceberg.rows import rows_schema, with_keys
from thermocline.rules.definition import LiveTable
from thermocline.rules.keys import bucket_of, encode_one
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.verify import entities as entities_module
from thermocline.verify.entities import Entities, entity_key, parameters_of
from thermocline.verify.finding import Finding
from thermocline.verify.log_decode import LogDecoder
from thermocline.verify.overlay_check import extract_findings
from thermocline.verify.sample import entities_of
from thermocline.verify.staging import EXTRACT, LOG, MEMORY_BYTES_MIN, STORED, Staging


def told(seed: int, moves: bool, is_partial: bool = False) -> Story:
    story = Story(random.Random(seed), partitions=3, moves=moves, is_partial=is_partial)
    story.versions = [2]
    for _ in range(5):
        story.produce(15, users=6)
        story.commit()
    story.produce(10, users=6)
    return story


def rows_at(story: Story, snapshot: int, end: Seam) -> dict[str, Any]:
    """The table at a snapshot with the log up to an end laid over it, replayed from nothing."""
    rows = story_at(story, snapshot, end).rows.items()
    return {user: {"user": user, "score": None if row.score == NULL else row.score} for user, row in rows}


def story_at(story: Story, snapshot: int, end: Seam) -> Story:
    again = Story(random.Random(0), partitions=3)
    again.versions, again.log = [2] * (snapshot + 1), story.log
    for number in range(1, snapshot + 1):
        again.seams.append(story.seams[number])
        again.take_in(story.seams[number - 1], story.seams[number])
    again.take_in(story.seams[snapshot], end)
    return again


def entities(story: Story, snapshot: int) -> Entities:
    """What a verification keeps that was at a snapshot: its rows, and all records from its seam on."""
    before = Story(random.Random(0), partitions=3, is_partial=story.is_partial)
    before.versions, before.log, before.seams = [2] * (snapshot + 1), story.log, story.seams[: snapshot + 1]
    for number in range(1, snapshot + 1):
        before.take_in(story.seams[number - 1], story.seams[number])
    reading = before.reading()
    kept = Entities(reading.definition, reading)
    kept.take_rows(before.table())
    decoder = LogDecoder(reading, [])
    for chunk in story.chunks():
        records = decoder.decode(chunk)
        kept.take_records(records.filter(pa.array(records.column("_segment").to_numpy() > 0)))
    return kept


@pytest.mark.parametrize(
    ("moves", "is_partial"),
    [(False, False), (True, False), (False, True)],
    ids=["keys stay", "keys move", "partial updates"],
)
def test_the_rows_at_any_later_read_point_are_those_of_a_replay(moves: bool, is_partial: bool) -> None:
    judged = 0
    definition = definition_of()
    for seed in range(25):
        story = told(seed, moves, is_partial)
        base = story.chance.randrange(1, len(story.seams))
        kept, whole = entities(story, base), story.reading()

        def reading_at(_: int, reading: Reading = whole) -> Reading:
            return reading

        for _ in range(4):
            snapshot = story.chance.randrange(base, len(story.seams))
            seam = story.seams[snapshot]
            log = story.ends()
            ends = {
                (TOPIC, p): story.chance.randint(seam.get((TOPIC, p)), log.get((TOPIC, p))) for p in range(3)
            }
            point = ReadPoint(snapshot, seam, Seam(ends))
            wanted = rows_at(story, snapshot, point.end)
            for user in (f"u{number}" for number in range(6)):
                entity = entities_of(definition, pa.table({"user": [user]}))[0].as_py()
                rows = [wanted[user]] if user in wanted else []
                found = kept.judge(entity, rows, point, reading_at)
                assert found is None, (seed, user, found)
                judged += 1
                lie = kept.judge(entity, [{"user": user, "score": 9}], point, reading_at)
                assert isinstance(lie, Finding)
                assert lie.key == {"user": user}
    assert judged == 25 * 4 * 6


def test_an_extract_over_partial_records_is_what_the_log_says() -> None:
    """Goal: what the records beyond the seam leave as it is, is as the table has it."""
    for seed in range(10):
        story = told(seed, moves=False, is_partial=True)
        ends = story.ends()
        point = ReadPoint(5, story.seams[5], ends)
        at_the_end = story_at(story, 5, ends)
        with closing(Staging(None, story.reading().definition, MEMORY_BYTES_MIN)) as staging:
            for chunk in story.chunks():
                staging.add(LOG, LogDecoder(story.reading(), [ends]).decode(chunk))
            staging.add(STORED, story.table())
            staging.add(EXTRACT, at_the_end.table())
            staging.reduce_log()
            assert list(extract_findings(staging, point)) == []
            user, row = next(
                (u, r) for u, r in at_the_end.rows.items() if not story.seams[5].covers(*r.place, r.offset)
            )
            at_the_end.rows[user] = replace(row, score=77)
            staging.clear(EXTRACT)
            staging.add(EXTRACT, at_the_end.table())
            (found,) = extract_findings(staging, point)
            assert found.finding.key == {"user": user}


def test_partial_records_that_no_later_answer_needs_are_forgotten_and_not_what_they_set() -> None:
    story = told(5, moves=False, is_partial=True)
    kept = entities(story, 1)
    middle, end = story.seams[3], story.ends()
    count = kept.records
    kept.forget(middle)
    assert kept.records < count
    for at in (middle, end):
        wanted = rows_at(story, 3, at)
        for user in (f"u{number}" for number in range(6)):
            found = kept.rows_at(entity_of(user), ReadPoint(3, middle, at), lambda _: None)
            assert found == ([wanted[user]] if user in wanted else [])


def test_records_that_no_later_answer_needs_are_forgotten() -> None:
    """Goal: answers from further on are judged the same, and fewer records are kept."""
    story = told(3, moves=False)
    kept = entities(story, 1)
    ends = story.ends()
    point = ReadPoint(5, story.seams[5], ends)
    users = [f"u{number}" for number in range(6)]
    before = [kept.rows_at(entity_of(user), point, lambda _: None) for user in users]
    count = kept.records
    kept.forget(ends)
    assert kept.records < count
    assert [kept.rows_at(entity_of(user), point, lambda _: None) for user in users] == before
    assert kept.records == sum(len(known) for by_key in kept._records.values() for known in by_key.values())


def entity_of(user: str) -> bytes:
    entity: bytes = entities_of(definition_of(), pa.table({"user": [user]}))[0].as_py()
    return entity


def test_an_entity_is_named_by_its_columns_and_asked_for_by_their_texts() -> None:
    assert entity_key(definition_of(), entity_of("u 1")) == {"user": "u 1"}
    assert parameters_of(definition_of(), entity_of("u 1")) == {"user": "u 1"}


WIDE = LiveTable.build(
    name="wide",
    identifier="app.wide",
    topics=[TOPIC],
    key=["user", "item"],
    entity=["user"],
    columns={"user": "string", "item": "int", "score": "long"},
    buckets=4,
)


def wide_rows(user: str, items: range) -> pa.Table:
    """Rows of one user that come from as many records."""
    rows = [
        {"user": user, "item": item, "score": 1, "_kafka_topic": TOPIC, "_kafka_partition": 0}
        | {"_kafka_offset": item, "_kafka_timestamp": 0}
        for item in items
    ]
    plain = pa.schema([field for field in rows_schema(WIDE) if field.name != "_key"])
    return with_keys(WIDE, pa.Table.from_pylist(rows, plain))


def wide_records(user: str, items: range) -> pa.Table:
    rows = wide_rows(user, items)
    for name, value in (("_tombstone", False), ("_state", 0)):
        rows = rows.append_column(name, pa.array([value] * rows.num_rows))
    return rows


def wide_rows_at(kept: Entities, user: str) -> object:
    return kept.rows_at(encode_one(WIDE, [user]), ReadPoint(1, Seam({}), Seam({(TOPIC, 0): 99})), no_reading)


def no_reading(_: int) -> None:
    return None


def test_an_entity_of_too_many_rows_is_not_judged_and_nothing_of_it_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wherever its rows come from: the table alone, in several pieces, or the log."""
    monkeypatch.setattr(entities_module, "ENTITY_ROWS_MAX", 5)
    kept = Entities(WIDE, story_reading())
    kept.take_rows(pa.concat_tables([wide_rows("at once", range(6)), wide_rows("few", range(3))]))
    for items in (range(4), range(4, 8), range(8, 12)):
        kept.take_rows(wide_rows("in pieces", items))
    kept.take_rows(wide_rows("by records", range(3)))
    kept.take_records(wide_records("by records", range(3, 9)))
    kept.take_records(wide_records("few", range(2)))
    for user in ("at once", "in pieces", "by records"):
        assert wide_rows_at(kept, user) == "it has more than 10,000 rows"
        assert kept.is_large(encode_one(WIDE, [user]))
    few = wide_rows_at(kept, "few")
    assert isinstance(few, list)
    assert len(few) == 3
    assert list(kept._cold) == list(kept._records) == [encode_one(WIDE, ["few"])]
    assert kept.records == 2


def test_entities_of_a_bucket_that_could_not_be_read_are_not_judged() -> None:
    kept = Entities(WIDE, story_reading())
    users = [f"u{number}" for number in range(20)]
    for user in users:
        kept.take_rows(wide_rows(user, range(1)))
    kept.leave_out(2)
    for user in users:
        is_unread = wide_rows_at(kept, user) == "its bucket could not be read"
        assert is_unread == (bucket_of(WIDE, user) == 2)
    assert 0 < sum(bucket_of(WIDE, user) == 2 for user in users) < len(users)


def story_reading() -> Reading:
    return told(1, moves=False).reading()

"""What an entity's rows are at a read point, against a replay of its records, whatever snapshot answers."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

from tests.verify.story import TOPIC, Story, definition_of
from thermocline.read_point import ReadPoint
from thermocline.seam import Seam
from verify.finding import Finding
from verify.log_fold import LogDecoder
from verify.lookup_check import Entities, entity_key, parameters_of
from verify.reading import Reading
from verify.sample import entities_of


def told(seed: int, moves: bool) -> Story:
    story = Story(random.Random(seed), partitions=3, moves=moves)
    story.versions = [2]
    for _ in range(5):
        story.produce(15, users=6)
        story.commit()
    story.produce(10, users=6)
    return story


def rows_at(story: Story, snapshot: int, end: Seam) -> dict[str, Any]:
    """The table at a snapshot with the log up to an end laid over it, replayed from nothing."""
    again = Story(random.Random(0), partitions=3)
    again.versions, again.log = [2] * (snapshot + 1), story.log
    for number in range(1, snapshot + 1):
        again.seams.append(story.seams[number])
        again.take_in(story.seams[number - 1], story.seams[number])
    again.take_in(story.seams[snapshot], end)
    return {user: record.score for user, record in again.rows.items()}


def entities(story: Story, snapshot: int) -> Entities:
    """What a verification keeps that was at a snapshot: its rows, and all records from its seam on."""
    before = Story(random.Random(0), partitions=3)
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


@pytest.mark.parametrize("moves", [False, True], ids=["keys stay", "keys move"])
def test_the_rows_at_any_later_read_point_are_those_of_a_replay(moves: bool) -> None:
    judged = 0
    definition = definition_of()
    for seed in range(25):
        story = told(seed, moves)
        base = story.chance.randrange(1, len(story.seams))
        kept, whole = entities(story, base), story.reading()

        def reading_at(_: int, reading: Reading = whole) -> Reading:
            return reading

        for _ in range(4):
            snapshot = story.chance.randrange(base, len(story.seams))
            seam = story.seams[snapshot]
            ends = {
                (TOPIC, p): story.chance.randint(seam.get((TOPIC, p)), story._next.get((TOPIC, p), 0))
                for p in range(3)
            }
            point = ReadPoint(snapshot, seam, Seam(ends))
            wanted = rows_at(story, snapshot, point.end)
            for user in (f"u{number}" for number in range(6)):
                entity = entities_of(definition, pa.table({"user": [user]}))[0].as_py()
                score = wanted.get(user)
                rows = [] if score is None else [{"user": user, "score": score}]
                found = kept.judge(entity, rows, point, reading_at)
                assert found is None, (seed, user, found)
                judged += 1
                lie = kept.judge(entity, [{"user": user, "score": 9}], point, reading_at)
                assert isinstance(lie, Finding)
                assert lie.key == {"user": user}
    assert judged == 25 * 4 * 6


def test_records_that_no_later_answer_needs_are_forgotten() -> None:
    """Goal: answers from further on are judged the same, and fewer records are kept."""
    story = told(3, moves=False)
    kept = entities(story, 1)
    ends = Seam({(TOPIC, p): story._next.get((TOPIC, p), 0) for p in range(3)})
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

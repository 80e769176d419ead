"""Samples of entities: the same whatever the order, and everybody else's rows are left out."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from tests.ingest.one_bucket import DEFINITION
from thermocline.errors import BadParameter
from thermocline.verify.sample import Sample, named


@pytest.mark.parametrize("seed", range(5))
def test_a_sample_depends_on_the_seed_alone(seed: int) -> None:
    entities = [f"e{number}".encode() for number in range(500)]
    samples = []
    for order in range(3):
        shuffled = random.Random(order).sample(entities, len(entities))
        sample = Sample(20, seed)
        for start in range(0, 500, 50):
            sample.offer(pa.array(shuffled[start : start + 50], pa.binary()))
        samples.append(sample)
    assert len(set(samples[0].prefixes)) == 20
    assert all(sample.prefixes == samples[0].prefixes for sample in samples)
    held = samples[0].holds(pa.array(entities, pa.binary()))
    assert {entity for entity, is_held in zip(entities, held, strict=True) if is_held} == set(
        samples[0].prefixes
    )


def test_another_seed_gives_other_entities() -> None:
    entities = pa.array([f"e{number}".encode() for number in range(500)], pa.binary())
    first, second = Sample(20, 1), Sample(20, 2)
    first.offer(entities)
    second.offer(entities)
    assert set(first.prefixes) != set(second.prefixes)


def test_whoever_is_met_first_has_had_all_records_kept() -> None:
    """An entity that makes room for another one never comes back: what was dropped of it is not missed."""
    chance = random.Random(3)
    sample, dropped = Sample(5, 9), set()
    for _ in range(200):
        before = set(sample.prefixes)
        sample.offer(pa.array([f"e{chance.randrange(80)}".encode()], pa.binary()))
        dropped |= before - set(sample.prefixes)
        assert not dropped & set(sample.prefixes)


@pytest.mark.parametrize(
    ("column", "error", "message"),
    [
        ("value", BadParameter, "not a key column; the key is app_id, user_id, key"),
        ("key", BadParameter, "in the key, and not in the entity: an entity is app_id, user_id"),
        ("nope", BadParameter, "no such column"),
    ],
)
def test_an_entity_named_by_another_column_is_refused_with_what_it_is(
    column: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        named(DEFINITION, {"app_id": "7", "user_id": "ada", column: "1"})

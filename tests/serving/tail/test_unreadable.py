"""Records of the log that were readable once, and aren't by now: answers that would lack them are refused."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.serving.read.test_private import changes_since, commit, extracted, key_of, private_world, value_of
from thermocline.errors import ReadPointGone
from thermocline.iceberg.catalog import SUMMARY_BAD_DIGEST
from thermocline.rules.bad_digest import digest_of
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.schemas.registry import SchemaRegistry
from thermocline.settings import RegistrySettings

__all__ = ["private_world"]


def _spoil(world: SimpleNamespace, offset: int) -> None:
    """A record of partition 0 can't be read any more."""
    key, _, timestamp_ms = world.logs[0][offset]
    world.logs[0][offset] = (key, b'{"value": 5}', timestamp_ms)


def test_changes_that_ingest_applied_and_nobody_can_read_any_more_are_refused(
    private_world: SimpleNamespace,
) -> None:
    """Goal: no key is missing from changes because its record became unreadable after its commit."""
    world = private_world.world
    _, point = extracted(private_world)
    for user in ("u7", "u8"):
        world.produce(key_of(user), value_of("committed"))
    commit(private_world.table, world)
    assert set(changes_since(private_world, point)) == {"u7", "u8"}
    _spoil(world, 1)
    with pytest.raises(ReadPointGone, match="profiles/0@1 can't be read now"):
        changes_since(private_world, point)
    assert extracted(private_world)[0]["u7"] == "committed"


def test_changes_pass_over_records_that_were_bad_when_they_were_ingested(
    private_world: SimpleNamespace,
) -> None:
    """Also the number of bad records agrees where another one was bad than by now: that is refused."""
    world = private_world.world
    _, point = extracted(private_world)
    for user in ("u7", "u8", "u9"):
        world.produce(key_of(user), value_of("committed"))
    commit(private_world.table, world, **{SUMMARY_BAD_DIGEST: str(digest_of("profiles", 0, [2]))})
    _spoil(world, 2)
    world.produce(key_of("u6"), {"value": 5})  # bad, and not committed yet
    assert set(changes_since(private_world, point)) == {"u7", "u9"}
    world.logs[0][2] = world.logs[0][1]
    _spoil(world, 1)
    with pytest.raises(ReadPointGone, match="profiles/0@1"):
        changes_since(private_world, point)


def test_changes_over_a_snapshot_that_does_not_say_which_records_were_bad_are_refused_if_any_is(
    private_world: SimpleNamespace,
) -> None:
    """Method: as releases before this one committed."""
    world = private_world.world
    commit(private_world.table, world, **{SUMMARY_BAD_DIGEST: ""})
    _, point = extracted(private_world)
    world.produce(key_of("u7"), value_of("committed"))
    commit(private_world.table, world)
    assert set(changes_since(private_world, point)) == {"u7"}
    _spoil(world, 1)
    with pytest.raises(ReadPointGone, match="profiles/0@1"):
        changes_since(private_world, point)


@pytest.fixture
def registry_less_a_schema(
    private_world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> SimpleNamespace:
    """Each bad record is one whose schema the registry doesn't know (any more)."""
    decode = private_world.world.decoder.decode

    def decoder_for(_: object, asked: SchemaRegistry) -> SimpleNamespace:
        def of_chunk(*chunk: object) -> object:
            decoded = decode(*chunk)
            for _ in decoded.bad:
                asked.of(2)
            return decoded

        return SimpleNamespace(decode=of_chunk)

    monkeypatch.setattr("thermocline.serving.tail.feed.decoder_for", decoder_for)
    monkeypatch.setattr(SchemaRegistry, "of", lambda *_: WriterSchema(problem="unknown"))
    settings = private_world.settings.model_copy(update={"registry": RegistrySettings(url="http://r")})
    return SimpleNamespace(**{**vars(private_world), "settings": settings})


def test_an_earlier_read_point_is_refused_once_a_schema_of_its_records_is_gone(
    registry_less_a_schema: SimpleNamespace,
) -> None:
    """A record without a schema beyond its end does not matter to it."""
    world = registry_less_a_schema.world
    world.produce(key_of("u7"), value_of("hot"))
    before, point = extracted(registry_less_a_schema)
    world.produce(key_of("u8"), {"value": 5})
    assert extracted(registry_less_a_schema, at=point) == (before, point)
    _spoil(world, 1)
    with pytest.raises(ReadPointGone, match="profiles/0@1 can't be read now"):
        extracted(registry_less_a_schema, at=point)
    assert extracted(registry_less_a_schema)[0] == {"u0": "cold", "u1": "cold", "u2": "cold"}


def test_changes_are_refused_where_a_copy_may_have_a_record_whose_schema_was_gone_before_ingest_read_it(
    registry_less_a_schema: SimpleNamespace,
) -> None:
    """Goal: a copy that took a hot record does not keep it after ingest found it bad."""
    world = registry_less_a_schema.world
    world.produce(key_of("u7"), value_of("hot"))
    rows, point = extracted(registry_less_a_schema)
    assert rows["u7"] == "hot"
    _spoil(world, 1)
    with pytest.raises(ReadPointGone, match="profiles/0@1 can't be read now"):
        changes_since(registry_less_a_schema, point)

"""Maxwell's change events, as its documentation shows them."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from tests.thermocline.alone import alone_and_together_are_the_same
from tests.thermocline.test_json_schema import spoiled
from thermocline.errors import ConfigInvalid
from thermocline.rules.decode import Stage, decoder_for
from thermocline.rules.definition import LiveTable

FUZZED, FUZZED_FULL = 5_000, 200_000
DEEP = json.loads("[" * 600 + "]" * 600)
KEY = b'{"database":"shop","table":"users","pk.id":7}'


def users(**options: Any) -> LiveTable:
    columns: dict[str, Any] = {"id": {"type": "int", "path": ["pk.id"]}, "name": "string", "born": "date"}
    return LiveTable.build(
        name="users", identifier="app.users", topics=["users"], key=["id"], columns=columns,
        **({"envelope": "maxwell"} | options),
    )  # fmt: skip


def event(type_: str | None, data: Any = None, **more: Any) -> bytes:
    about = {"database": "shop", "table": "users", "ts": 1_449_786_310, "xid": 940_752, "commit": True}
    return json.dumps({**about, "type": type_, "data": data, **more}).encode()


def test_each_type_gives_the_row_after_it_or_its_end() -> None:
    row = {"id": 7, "name": "Ann", "born": "1989-12-27"}
    values = [
        event("insert", row),
        event("update", row, old={"name": "Anna"}),
        event("bootstrap-insert", row),
        event("delete", row),
        None,
    ]
    decoded = decoder_for(users()).decode([KEY] * 5, values)
    assert (decoded.bad, decoded.tombstones) == ([], [False, False, False, True, True])
    assert decoded.columns["id"] == [7] * 5
    assert decoded.columns["name"] == ["Ann", "Ann", "Ann", None, None]


@pytest.mark.parametrize(
    ("value", "stage"),
    [
        (event("bootstrap-start", {}), Stage.DECODE),
        (event("bootstrap-complete", {}), Stage.DECODE),
        (event("table-create", None, sql="CREATE TABLE"), Stage.DECODE),
        (event("insert"), Stage.DECODE),
        (event(None, {"id": 7}), Stage.DECODE),
        (event("insert", [1]), Stage.DECODE),
        (b"[]", Stage.DECODE),
        (event("insert", {"name": 5}), Stage.CONTRACT),
        (event("insert", {"name": "Ann"}, old=DEEP), Stage.DECODE),
    ],
)
def test_what_is_no_change_of_one_row_is_bad(value: bytes, stage: Stage) -> None:
    decoded = decoder_for(users()).decode([KEY] * 2, [value, event("insert", {"name": "Ann"})])
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(0, stage)]


def test_other_formats_than_json_have_no_such_events() -> None:
    with pytest.raises(ConfigInvalid, match="maxwell"):
        users(format="avro")


@pytest.mark.parametrize("count", [FUZZED, pytest.param(FUZZED_FULL, marks=pytest.mark.full)])
def test_malformed_events_are_good_or_bad_alone_as_together(count: int) -> None:
    seed = random.SystemRandom().getrandbits(64)
    print("seed", seed)
    chance = random.Random(seed)
    whole = [event("insert", {"name": "Ann"}), event("delete", {}), event("bootstrap-start")]
    decoder = decoder_for(users())
    for first in range(0, count, 500):
        values = [spoiled(chance, chance.choice(whole)) for _ in range(first, min(first + 500, count))]
        alone_and_together_are_the_same(decoder, KEY, values)

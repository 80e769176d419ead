"""The bytes of each column type, as Trino's connector reads them, and what its conditions say."""

from __future__ import annotations

import base64
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.serving.trino.trino_calls import a_call, read_struct, values_of
from thermocline.rules.column_types import Kind
from thermocline.rules.definition import LiveTable
from thermocline.rules.hot_columns import hot_columns, hot_table, unservable
from thermocline.serving.trino.blocks import as_served, block, value_in
from thermocline.serving.trino.wire import Malformed, read_call

IDENTITY = "12345678-1234-5678-1234-567812345678"
TYPES: dict[str, tuple[Any, str, Any]] = {
    "int": (-7, "0f0002080000000200000000fffffff9", -7),
    "long": (1 << 40, "0f00020a0000000200000000000000000000010000000000", 1 << 40),
    "double": (1.5, "0f0002040000000200000000000000003ff8000000000000", 1.5),
    "boolean": (True, "0f000202000000020001", True),
    "date": (date(1970, 1, 3), "0f000208000000020000000000000002", 2),
    "string": ("hé", "0f0002080000000200000000000000030b00030000000368c3a9", "hé"),
    "timestamptz": (
        datetime(1970, 1, 1, 0, 0, 1, 5, UTC),
        "0f00020a00000002000000000000000000000000000f4245",
        1_000_005,
    ),
    "timestamp": (
        datetime(1969, 12, 31, 23, 59, 59),  # noqa: DTZ001  (of no zone)
        "0f00020a000000020000000000000000fffffffffff0bdc0",
        -1_000_000,
    ),
    "time": (
        time(9, 33, 0, 5),
        "0f00020800000002000000000000000f0b00030000000f" + b"09:33:00.000005".hex(),
        "09:33:00.000005",
    ),
    "decimal(9, 2)": (Decimal("-1.50"), "0f0002080000000200000000000000050b0003000000052d312e3530", "-1.50"),
    "uuid": (
        UUID(IDENTITY).bytes,
        "0f0002080000000200000000000000240b000300000024" + IDENTITY.encode().hex(),
        IDENTITY,
    ),
    "binary": (
        b"\x00\xff",
        "0f0002080000000200000000000000040b000300000004" + b"AP8=".hex(),
        base64.b64encode(b"\x00\xff").decode(),
    ),
}
"""By the column's type: a value, the block of a null and that value, and the value in it."""
NULLS = "0f000102000000020100"


def table_with(columns: dict[str, Any], **more: Any) -> LiveTable:
    return LiveTable.build(
        name="profiles", identifier="app.profiles", topics=["profiles"], key=["id"], columns=columns, **more
    )


@pytest.mark.parametrize("spelled", TYPES)
def test_each_type_is_the_block_that_the_connector_reads(spelled: str) -> None:
    value, expected, shown = TYPES[spelled]
    definition = table_with({"id": "int", "value": spelled})
    column = hot_columns(definition)[1]
    stored = pa.array([None, value], definition.table_schema.field("value").type)
    written = block(as_served(stored, column.column.type), column.type)
    kind = {"integer": 1, "bigint": 2, "double": 3, "varchar": 4, "boolean": 5, "date": 6}[column.type]
    assert written.hex() == f"0c{kind:04x}{NULLS}{expected}0000"
    assert values_of(read_struct(written)) == [None, shown]


def test_a_slice_of_a_column_has_its_own_values_only() -> None:
    texts = pa.array(["one", None, "three", "four"])
    assert values_of(read_struct(block(texts.slice(2, 1), "varchar"))) == ["three"]
    assert values_of(read_struct(block(texts.slice(0, 0), "varchar"))) == []


@pytest.mark.parametrize(
    ("kind", "type_name", "value"),
    [
        (Kind.INT, "integer", 7),
        (Kind.LONG, "bigint", -1),
        (Kind.STRING, "varchar", ""),
        (Kind.DATE, "date", date(2026, 1, 2)),
    ],
)
def test_the_value_in_a_condition_is_the_declared_one(kind: Kind, type_name: str, value: Any) -> None:
    stored = pa.array([value])
    if kind is Kind.DATE:
        stored = stored.view(pa.int32())
    assert value_in(read_struct(block(stored, type_name)), kind) == value


@pytest.mark.parametrize("cut", [1, 10, 40])
def test_a_call_that_breaks_off_is_malformed(cut: int) -> None:
    whole = a_call("trinoListTables", {1: {}})
    assert read_call(whole).method == "trinoListTables"
    with pytest.raises(Malformed):
        read_call(whole[: min(cut, len(whole) - 1)])


def test_a_list_that_claims_more_than_it_holds_or_nests_too_deep_is_malformed() -> None:
    head = a_call("x", {})[:-1]
    with pytest.raises(Malformed):
        read_call(head + bytes.fromhex("0f0001020fffffff"))
    with pytest.raises(Malformed):
        read_call(head + bytes.fromhex("0c0001") * 40)


def test_a_small_message_of_very_many_values_is_malformed() -> None:
    """Each would take a hundred times its byte."""
    head = a_call("x", {})[:-1]
    for kind in ("0c", "0f"):  # structs; lists, which also end before their time
        with pytest.raises(Malformed):
            read_call(head + bytes.fromhex(f"0f0001{kind}00200000") + b"\0" * 2**21)


def test_names_that_the_connector_refuses_are_made_up_and_versions_have_tables_of_their_own() -> None:
    definition = table_with({"id": "int", "Odd name": "string", "h_asked": "string"})
    assert [one.name for one in hot_columns(definition)] == ["id", "h_c1", "h_c2"]
    assert hot_table(definition) == "profiles_d1"


@pytest.mark.parametrize(
    ("columns", "more"),
    [
        ({"id": "int", "value": "list<string>"}, {}),
        ({"id": "int", "value": "long"}, {"sequence_by": ["value"]}),
    ],
)
def test_rows_that_the_server_can_not_show_by_themselves_have_no_live_view(columns: Any, more: Any) -> None:
    assert unservable(table_with(columns, **more)) is not None
    assert unservable(table_with({"id": "int", "value": "json"})) is None

"""Trino's side of the protocol, for tests: calls written, replies read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from thermocline.rules.hot_columns import ASKED, SCANS, SCHEMA, SERVERS, SNAPSHOT, group_of
from thermocline.serving.trino import wire
from thermocline.serving.trino.blocks import block
from thermocline.serving.trino.endpoint import Endpoint


class Refused(Exception):
    """What the server said for the user."""


def a_call(method: str, arguments: Mapping[int, Any]) -> bytes:
    head = bytes.fromhex("80010001") + wire.text(method) + wire.i32(1)
    return head + _struct(arguments)


def read_struct(written: bytes) -> dict[int, Any]:
    head = bytes.fromhex("80010001") + wire.text("") + wire.i32(1)
    return wire.read_call(head + written).arguments


def values_of(found: Mapping[int, Any]) -> list[Any]:
    """The values of a block."""
    ((kind, of),) = found.items()
    values = list(of[2])
    if kind == 4:
        at, texts = 0, []
        for size in values:
            texts.append(of[3][at : at + size].decode())
            at += size
        values = texts
    return [
        None if null else value for value, null in zip(values, of.get(1, [False] * len(values)), strict=True)
    ]


@dataclass
class Queries:
    """Queries as Trino makes them. ``bytes_max`` is of a response, ``servers`` what the view says of them."""

    endpoint: Endpoint
    table: str
    snapshot_id: int
    bytes_max: int = 1 << 20
    pages: int = field(default=0)
    servers: int = group_of(["one"])

    def call(self, method: str, arguments: Mapping[int, Any]) -> Any:
        reply = self.endpoint.reply(a_call(method, arguments))
        assert reply[:4] == bytes.fromhex("80010002"), reply
        found = read_struct(reply[4 + 4 + len(method) + 4 :])
        if 1 in found:
            raise Refused(found[1][1].decode())
        return found[0]

    def splits(self, token: int, scans: int = 1, **conditions: Any) -> list[bytes]:
        """The splits of a scan; ``conditions`` are values by column."""
        fixed = {SNAPSHOT: self.snapshot_id, ASKED: token, SCANS: scans, SERVERS: self.servers}
        hidden = {name: (pa.array([value]), "bigint") for name, value in fixed.items()}
        given = {name: (pa.array(values), _type_of(values)) for name, values in conditions.items()}
        domains = {name: _domain(*one) for name, one in (hidden | given).items()}
        found = self.call(
            "trinoGetSplits",
            {1: {1: SCHEMA, 2: self.table}, 2: {}, 3: {1: domains}, 4: 100, 5: {}},
        )
        return [one[1][1] for one in found[1]]

    def rows(self, split: bytes, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        token: dict[int, Any] = {}
        found: list[tuple[Any, ...]] = []
        while True:
            page = self.call("trinoGetRows", {1: {1: split}, 2: list(columns), 3: self.bytes_max, 4: token})
            self.pages += 1
            blocks = [values_of(one) for one in page[1]]
            found += zip(*blocks, strict=True) if blocks else [()] * page[2]
            if 3 not in page:
                return found
            token = {1: {1: page[3][1]}}

    def all_rows(self, token: int, columns: Sequence[str], **more: Any) -> list[tuple[Any, ...]]:
        return [row for split in self.splits(token, **more) for row in self.rows(split, columns)]


def _type_of(values: Sequence[Any]) -> str:
    return "varchar" if isinstance(values[0], str) else "integer"


def _domain(values: pa.Array, type_name: str) -> dict[int, Any]:
    ranges = []
    for place in range(len(values)):
        one = values.slice(place, 1).cast(pa.int32()) if type_name == "integer" else values.slice(place, 1)
        marker = {1: Written(block(one, type_name)), 2: 2}
        ranges.append({1: marker, 2: marker})
    return {1: {3: {1: ranges}}, 2: False}


@dataclass
class Written:
    """A struct's bytes."""

    bytes: bytes


def _struct(fields: Mapping[int, Any]) -> bytes:
    return b"".join(wire.field(*_typed(value, number)) for number, value in fields.items()) + wire.STOP


def _typed(value: Any, number: int) -> tuple[int, int, bytes]:
    kind, written = _value(value)
    return kind, number, written


def _value(value: Any) -> tuple[int, bytes]:
    match value:
        case Written():
            return wire.STRUCT, value.bytes
        case bool():
            return wire.BOOL, bytes([value])
        case int():
            return (wire.I32, wire.i32(value)) if value < 1 << 20 else (wire.I64, wire.i64(value))
        case str():
            return wire.STRING, wire.text(value)
        case bytes():
            return wire.STRING, wire.binary(value)
        case list():
            items = [_value(one) for one in value]
            return wire.LIST, wire.listed(items[0][0] if items else wire.STRING, [one for _, one in items])
        case dict() if value and all(isinstance(name, str) for name in value):
            body = b"".join(wire.text(name) + _struct(one) for name, one in value.items())
            return 13, bytes([wire.STRING, wire.STRUCT]) + wire.i32(len(value)) + body
        case _:
            return wire.STRUCT, _struct(value)

"""Fields that a schema of Avro declares, or one of Kafka Connect, which is read into the same types."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from thermocline.rules.avro_schema import CONNECT, DEBEZIUM_TIME, VARIABLE_DECIMAL, AvroType
from thermocline.rules.column_types import DECIMAL_PRECISION_MAX, FIELD_NAME, LEVELS_MAX
from thermocline.rules.connect_schema import JSON_TEXT
from thermocline.rules.recognise.fields import Field

__all__ = ["declared_fields", "docs_of", "record_at", "type_of"]

TIMES: Final = (
    f"{DEBEZIUM_TIME}Timestamp",
    f"{DEBEZIUM_TIME}MicroTimestamp",
    f"{DEBEZIUM_TIME}NanoTimestamp",
)
_LOCAL_TIMES: Final = tuple(f"local-timestamp-{unit}" for unit in ("millis", "micros", "nanos"))
_LOGICAL: Final = {
    "date": "date",
    "time-millis": "time",
    "time-micros": "time",
    **{f"timestamp-{unit}": "timestamptz" for unit in ("millis", "micros", "nanos")},
    **dict.fromkeys(_LOCAL_TIMES, "timestamp"),
    "uuid": "uuid",
    f"{CONNECT}Date": "date",
    f"{DEBEZIUM_TIME}Date": "date",
    f"{CONNECT}Time": "time",
    **{f"{DEBEZIUM_TIME}{name}": "time" for name in ("Time", "MicroTime", "NanoTime")},
    f"{CONNECT}Timestamp": "timestamptz",
    **dict.fromkeys(TIMES, "timestamp"),
    f"{DEBEZIUM_TIME}ZonedTimestamp": "timestamptz",
    **{f"{DEBEZIUM_TIME}{name}": "json" for name in ("MicroDuration", "NanoDuration")},
    "io.debezium.data.Uuid": "uuid",
    JSON_TEXT: "json",
    VARIABLE_DECIMAL: "json",
}
"""By the logical type, which says what a number or a text means."""
_PLAIN: Final = {
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "double",
    "double": "double",
    "string": "string",
    "enum": "string",
    "bytes": "binary",
    "fixed": "binary",
}
_NANOS: Final = ("timestamp-nanos", "local-timestamp-nanos", f"{DEBEZIUM_TIME}NanoTimestamp")


def record_at(of: AvroType, *path: str) -> AvroType | None:
    """The record at a path of fields, whether or not it may be null; None where there is none."""
    found: AvroType | None = _alone(of)
    for name in path:
        inner = dict(found.fields).get(name) if found is not None else None
        found = None if inner is None else _alone(inner)
    return found if found is not None and found.kind == "record" else None


def declared_fields(record: AvroType, docs: Mapping[str, Mapping[str, str]]) -> list[Field]:
    """The fields of a record, with what its schema says of them."""
    said = docs.get(record.name.rpartition(".")[2], {})
    return [_declared(name, of, said.get(name, "")) for name, of in record.fields]


def docs_of(text: str) -> dict[str, dict[str, str]]:
    """What a schema of Avro says of the fields of each record, by the record's last name."""
    found: dict[str, dict[str, str]] = {}
    for node in _records(json.loads(text), 0):
        name = str(node.get("name", "")).rpartition(".")[2]
        for field in node.get("fields") or ():
            if isinstance(field, dict) and isinstance(field.get("doc"), str):
                found.setdefault(name, {})[str(field.get("name"))] = field["doc"]
    return found


def type_of(of: AvroType) -> str | None:
    """The type of a column that takes all values of a type; None where null is the only one."""
    return _type(of, 0, ())


def _declared(name: str, of: AvroType, doc: str) -> Field:
    alone = _alone(of)
    notes: tuple[str, ...] = ()
    if alone.logical in _NANOS:
        notes += ("nanoseconds: a time that does not end in 000 is refused",)
    if alone.logical == VARIABLE_DECIMAL:
        notes += ("decimals of any scale: decimal(p,s) reads them, if they always fit",)
    return Field(name, type_of(of), _spelled(of), notes, of.kind not in ("union", "null"), doc=doc)


def _spelled(of: AvroType) -> str:
    if of.kind == "union":
        return " or ".join(map(str, of.branches))
    return str(of)


def _alone(of: AvroType) -> AvroType:
    """The one type of a union that may also be null; the type itself of any other."""
    branches = [one for one in of.branches if one.kind != "null"]
    return branches[0] if of.kind == "union" and len(branches) == 1 else of


def _type(of: AvroType, level: int, around: tuple[AvroType, ...]) -> str | None:
    of = _alone(of)
    if of.logical == "decimal":
        return f"decimal({of.precision},{of.scale})" if of.precision <= DECIMAL_PRECISION_MAX else "json"
    if of.logical in _LOGICAL:
        return _LOGICAL[of.logical]
    if of.kind == "null":
        return None
    if of.kind in _PLAIN:
        return _PLAIN[of.kind]
    if level >= LEVELS_MAX - 1 or any(of is one for one in around):
        return "json"
    return _NESTED[of.kind](of, level + 1, (*around, of))


def _union(of: AvroType, level: int, around: tuple[AvroType, ...]) -> str | None:
    types = {_type(one, level, around) for one in of.branches if one.kind != "null"}
    if types == {"int", "long"}:
        return "long"
    return types.pop() if len(types) == 1 else "json" if types else None


def _record(of: AvroType, level: int, around: tuple[AvroType, ...]) -> str:
    parts = []
    for name, inner in of.fields:
        type_ = _type(inner, level, around)
        if type_ is None or not FIELD_NAME.fullmatch(name):
            return "json"
        parts.append(f"{name}: {type_}")
    folded = {name.casefold() for name, _ in of.fields}
    return f"struct<{', '.join(parts)}>" if parts and len(folded) == len(parts) else "json"


def _items(of: AvroType, level: int, around: tuple[AvroType, ...]) -> str:
    assert of.items is not None
    type_ = _type(of.items, level, around)
    if type_ is None:
        return "json"
    return f"list<{type_}>" if of.kind == "array" else f"map<string, {type_}>"


_NESTED: Final[Mapping[str, Callable[[AvroType, int, tuple[AvroType, ...]], str | None]]] = {
    "union": _union,
    "record": _record,
    "array": _items,
    "map": _items,
}


def _records(node: Any, level: int) -> Iterator[Mapping[str, Any]]:
    """All declarations of records within a schema."""
    if level > LEVELS_MAX * 2:
        return
    inside: Sequence[Any] = node if isinstance(node, list) else ()
    if isinstance(node, dict):
        if node.get("type") in ("record", "error"):
            yield node
        inside = [node.get("type"), node.get("items"), node.get("values"), *(node.get("fields") or ())]
    for one in inside:
        if isinstance(one, dict | list):
            yield from _records(one, level + 1)

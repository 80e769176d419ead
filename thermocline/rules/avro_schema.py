"""An Avro schema as a tree of types, read from its JSON text.

Source: Apache Avro 1.12 specification, "Schema Declaration", "Names" and "Logical Types". A logical type that
is unknown, or does not fit what it stands on, is left aside, as the specification says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = [
    "CONNECT",
    "CONNECT_NAMES",
    "DEBEZIUM_TIME",
    "LEVELS_MAX",
    "VARIABLE_DECIMAL",
    "AvroType",
    "SchemaInvalid",
    "parse_schema",
    "schema_text",
]

LEVELS_MAX: Final = 100
"""Records, arrays and maps within each other, in a schema or a record. A level takes up to five frames of
Python's, which gives up at 1,000 of them; a record must be good or bad regardless of who reads it."""
EMPTY_VALUES_MAX: Final = 1_000
"""Values that a record may have without a byte of it: a few lines of schema can ask for billions of them."""
PRIMITIVES: Final = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
UUID_BYTES: Final = 16
_LOGICAL: Final = {
    "int": ("date", "time-millis"),
    "long": (
        "time-micros",
        *(f"timestamp-{unit}" for unit in ("millis", "micros", "nanos")),
        *(f"local-timestamp-{unit}" for unit in ("millis", "micros", "nanos")),
    ),
    "string": ("uuid",),
}
CONNECT: Final = "org.apache.kafka.connect.data."
DEBEZIUM_TIME: Final = "io.debezium.time."
VARIABLE_DECIMAL: Final = "io.debezium.data.VariableScaleDecimal"
CONNECT_NAMES: Final[dict[str, tuple[str, ...]]] = {
    "int": tuple(f"{DEBEZIUM_TIME}{name}" for name in ("Date", "Time")),
    "long": tuple(
        f"{DEBEZIUM_TIME}{name}"
        for name in (
            *("Timestamp", "MicroTimestamp", "NanoTimestamp"),
            *("MicroTime", "NanoTime", "MicroDuration", "NanoDuration"),
        )
    ),
    "string": (f"{DEBEZIUM_TIME}ZonedTimestamp", "io.debezium.data.Uuid"),
    "record": (VARIABLE_DECIMAL,),
}
"""What Kafka Connect calls types, where that says what a number or a text means. Source: Debezium reference
documentation, "Data type mappings"."""


class SchemaInvalid(ValueError):
    """Why something is no schema of its format, or none that records are read by."""


@dataclass(slots=True, eq=False)
class AvroType:
    """A type of a schema; one that contains itself is a cycle of these.

    ``fields`` are a record's; ``branches`` a union's; ``items`` is what an array or a map holds.
    ``is_empty``: its values take no bytes.
    """

    kind: str
    logical: str = ""
    name: str = ""
    fields: tuple[tuple[str, AvroType], ...] = ()
    branches: tuple[AvroType, ...] = ()
    items: AvroType | None = None
    symbols: tuple[str, ...] = ()
    size: int = 0
    precision: int = 0
    scale: int = 0
    is_empty: bool = False

    def __str__(self) -> str:
        if self.logical == "decimal":
            return f"decimal({self.precision},{self.scale})"
        return self.logical or " ".join(filter(None, (self.kind, self.name)))


def parse_schema(texts: Sequence[str]) -> AvroType:
    """The type that the last text declares; those before it declare names that it refers to.

    Raises:
        SchemaInvalid: with one plain sentence.
    """
    parser = _Parser()
    declared = AvroType("null")
    for text in texts:
        declared = parser.declared(_json(text), "", 0)
    try:
        _measure(declared, {})
    except RecursionError:
        raise SchemaInvalid("its types are too deep within each other") from None
    return declared


def schema_text(text: str) -> str:
    """A schema's text without what says nothing: equal for schemas that only look different.

    Raises:
        SchemaInvalid: it is not the schema of anything.
    """
    parse_schema([text])
    return json.dumps(json.loads(text), separators=(",", ":"), ensure_ascii=False)


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except RecursionError:
        raise SchemaInvalid(f"nested more than {LEVELS_MAX} levels deep") from None
    except ValueError as error:
        raise SchemaInvalid(f"not JSON: {error}") from None


class _Parser:
    """Reads declarations; remembers the names that they define."""

    def __init__(self) -> None:
        self._named: dict[str, AvroType] = {}

    def declared(self, node: Any, namespace: str, level: int) -> AvroType:
        if level > LEVELS_MAX:
            raise SchemaInvalid(f"nested more than {LEVELS_MAX} levels deep")
        match node:
            case str():
                return self._by_name(node, namespace)
            case list():
                return self._union(node, namespace, level)
            case {"type": "record" | "error" | "enum" | "fixed"}:
                return self._named_type(node, namespace, level)
            case {"type": "array", "items": items}:
                return AvroType("array", items=self.declared(items, namespace, level + 1))
            case {"type": "map", "values": values}:
                return AvroType("map", items=self.declared(values, namespace, level + 1))
            case {"type": str(kind)} if kind in PRIMITIVES:
                return _with_logical(AvroType(kind), node)
            case {"type": dict() | list() | str() as inner} if inner not in ("array", "map"):
                return self.declared(inner, namespace, level + 1)
        raise SchemaInvalid(f"no type is declared by {_shown(node)}")

    def _by_name(self, name: str, namespace: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name, is_empty=name == "null")
        found = self._named.get(_full_name(name, namespace)) or self._named.get(name)
        if found is None:
            raise SchemaInvalid(f"the type {_shown(name)} is not declared")
        return found

    def _union(self, node: Sequence[object], namespace: str, level: int) -> AvroType:
        branches = tuple(self.declared(branch, namespace, level + 1) for branch in node)
        if not branches or any(branch.kind == "union" for branch in branches):
            raise SchemaInvalid("a union is empty, or holds another one")
        return AvroType("union", branches=branches)

    def _named_type(self, node: Mapping[str, Any], namespace: str, level: int) -> AvroType:
        name, given = node.get("name"), node.get("namespace", namespace)
        if not isinstance(name, str) or not name or not isinstance(given, str):
            raise SchemaInvalid(f"{_shown(node)} has no name")
        full = _full_name(name, given)
        if full in self._named:
            raise SchemaInvalid(f"the name {full} is declared twice")
        kind = "record" if node["type"] == "error" else node["type"]
        named = self._named[full] = AvroType(kind, name=full)
        if kind == "record":
            named.fields = tuple(self._fields(node, full.rpartition(".")[0], level))
            if len(dict(named.fields)) < len(named.fields):
                raise SchemaInvalid(f"{full} has two fields of one name")
        elif kind == "enum":
            named.symbols = _symbols(node, full)
        else:
            named.size = _whole_number(node.get("size"), f"the size of {full}")
        return _with_logical(named, node)

    def _fields(self, node: Mapping[str, Any], namespace: str, level: int) -> Sequence[tuple[str, AvroType]]:
        fields = node.get("fields")
        if not isinstance(fields, list):
            raise SchemaInvalid(f"{_shown(node)} has no fields")
        found = []
        for field in fields:
            match field:
                case {"name": str(name), "type": declared}:
                    found.append((name, self.declared(declared, namespace, level + 1)))
                case _:
                    raise SchemaInvalid(f"no field is declared by {_shown(field)}")
        return found


def _full_name(name: str, namespace: str) -> str:
    return name if "." in name or not namespace else f"{namespace}.{name}"


def _symbols(node: Mapping[str, Any], name: str) -> tuple[str, ...]:
    symbols = node.get("symbols")
    if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
        raise SchemaInvalid(f"the enum {name} has no list of symbols")
    return tuple(symbols)


def _whole_number(value: object, what: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise SchemaInvalid(f"{what} is {_shown(value)}, not a whole number")
    return value


def _with_logical(of: AvroType, node: Mapping[str, Any]) -> AvroType:
    logical, meant = node.get("logicalType"), node.get("connect.name")
    if meant in CONNECT_NAMES.get(of.kind, ()):
        of.logical = str(meant)
    if logical in _LOGICAL.get(of.kind, ()) or (
        logical == "uuid" and of.kind == "fixed" and of.size == UUID_BYTES
    ):
        of.logical = str(logical)
    if logical == "decimal" and of.kind in ("bytes", "fixed"):
        precision, scale = node.get("precision"), node.get("scale", 0)
        if type(precision) is int and type(scale) is int and 0 <= scale <= precision and precision > 0:
            of.logical, of.precision, of.scale = "decimal", precision, scale
    return of


def _measure(of: AvroType, empty_values: dict[int, int]) -> int:
    """How many values of a type take no bytes, 0 where it takes some; marks those types, within it too."""
    known = empty_values.get(id(of))
    if known is not None:
        return known
    empty_values[id(of)] = 0  # one that contains itself takes bytes, or never ends
    within = [of.items] if of.items is not None else [*of.branches, *(type_ for _, type_ in of.fields)]
    counts = [_measure(inner, empty_values) for inner in within]
    of.is_empty = (
        of.kind == "null" or (of.kind == "fixed" and not of.size) or (of.kind == "record" and all(counts))
    )
    empty_values[id(of)] = 1 + sum(counts) if of.is_empty else 0
    if empty_values[id(of)] > EMPTY_VALUES_MAX:
        raise SchemaInvalid(f"{of} has more than {EMPTY_VALUES_MAX:,} values that take no bytes")
    return empty_values[id(of)]


def _shown(node: object) -> str:
    text = json.dumps(node, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"

"""Fields that a JSON Schema declares, and the types of columns that take all values of each.

A schema of JSON says what is valid, not what is stored: where it leaves a choice, the type takes all of them,
down to ``json``, which takes anything. Times without an offset, decimals of Kafka Connect and references to
other documents are such choices, and a note says so. Source: JSON Schema 2020-12, and `connect.type` of
Confluent's converter.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import unquote

from thermocline.rules.avro_schema import SchemaInvalid
from thermocline.rules.column_types import DECIMAL_PRECISION_MAX, FIELD_NAME, LEVELS_MAX
from thermocline.rules.recognise.fields import Field
from thermocline.rules.scalars import LONG_RANGE

__all__ = ["JsonSchema", "parse_json_schema"]

ALTERNATIVES_MAX: Final = 50
"""Of one field: more are no type, but a catalogue."""
NODES_MAX: Final = 100_000
"""Of a schema with all that it refers to, each time that it does: a few lines can mean billions."""
Node = Mapping[str, Any]
_ANYTHING: Final[Node] = {}
_TOO_DEEP: Final = "its alternatives are too deep within each other"
_FORMATS: Final = {"date-time": "timestamptz", "date": "date", "uuid": "uuid"}
_FORMAT_NOTES: Final = {
    "time": 'a time of day with an offset, which "time" does not read',
    "duration": "a duration, kept as its text",
}
_CONNECT_INTEGERS: Final = {"int8": "int", "int16": "int", "int32": "int", "int64": "long"}
_CONNECT_TITLE: Final = "org.apache.kafka.connect.data."
_EPOCHS: Final = {
    "Timestamp": 'milliseconds since 1970, by its title: { type = "timestamptz", epoch = "ms" } reads them',
    "Date": "days since 1970, by its title",
    "Time": "milliseconds since midnight, by its title",
}
_VALUES: Final = (
    (bool, "boolean"),
    (int, "integer"),
    (float, "number"),
    (str, "string"),
    (list, "array"),
    (dict, "object"),
)
_WIDER: Final = {
    frozenset(("int", "long")): "long",
    frozenset(("int", "double")): "double",
    frozenset(("long", "double")): "double",
    frozenset(("int", "long", "double")): "double",
}


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A schema of objects: what the properties of these are, as fields; ``root`` is the whole document.

    ``places`` has one for each node that may still be looked at.
    """

    root: Node
    object: Node
    places: Iterator[int] = field(default_factory=lambda: iter(range(NODES_MAX)))

    def fields(self) -> list[Field]:
        """The fields of the objects, in declared order. Raises `SchemaInvalid` where they are endless."""
        required = self.object.get("required", ())
        try:
            return [
                self._field(str(name), node, name in required)
                for name, node in _properties(self.object).items()
            ]
        except RecursionError:
            raise SchemaInvalid(_TOO_DEEP) from None

    def at(self, name: str) -> JsonSchema | None:
        """The objects in a property; None where it is none, or has no properties."""
        node, _ = self._one(_properties(self.object).get(name, _ANYTHING), ())
        return JsonSchema(self.root, node, self.places) if _properties(node) else None

    def within(self, name: str) -> Iterator[JsonSchema]:
        """The objects that a property may have, also those in arrays, or by any name in another object."""
        yield from self._objects(_properties(self.object).get(name, _ANYTHING), (), 0)

    def _objects(self, node: Any, refs: tuple[str, ...], level: int) -> Iterator[JsonSchema]:
        if level > LEVELS_MAX:
            return
        for kind, one, inner in self._branches(node, refs):
            if kind == "object" and _properties(one):
                yield JsonSchema(self.root, one, self.places)
            elif kind in ("array", "object"):
                others = one.get("items" if kind == "array" else "additionalProperties")
                if isinstance(others, dict):
                    yield from self._objects(others, inner, level + 1)

    @property
    def names(self) -> Sequence[str]:
        """The names of the properties."""
        return list(_properties(self.object))

    def _field(self, name: str, node: Any, is_required: bool) -> Field:
        known, _ = self._one(node, ())
        kinds = self._kinds(node)
        type_ = self._type(node, 0, ())
        said = next(
            (str(one["description"]) for one in (_mapping(node), known) if one.get("description")), ""
        )
        notes = tuple(_notes(known, type_))
        is_there = is_required and "null" not in kinds
        is_text = type_ is not None and known.get("type") == "string"
        evidence = " or ".join(kinds) or "anything"
        if known.get("format"):
            evidence += f" ({known['format']})"
        return Field(name, type_, evidence, notes, is_there, is_text, said)

    def _type(self, node: Any, level: int, refs: tuple[str, ...]) -> str | None:
        """The type of a column that takes all that a node allows; None where null is the only value."""
        branches = list(self._branches(node, refs))
        if not branches or len(branches) > ALTERNATIVES_MAX:
            return "json"
        types = {self._single(kind, one, level, inner) for kind, one, inner in branches if kind != "null"}
        if not types:
            return None
        if len(types) == 1:
            return types.pop()
        return _WIDER.get(frozenset(types), "json")

    def _single(self, kind: str, node: Node, level: int, refs: tuple[str, ...]) -> str:
        match kind:
            case "boolean":
                return "boolean"
            case "string":
                return _string(node)
            case "integer":
                return _integer(node)
            case "number":
                return "json" if _is_connect_decimal(node) else "double"
            case "array" if level < LEVELS_MAX - 1:
                return self._array(node, level + 1, refs)
            case "object" if level < LEVELS_MAX - 1:
                return self._object(node, level + 1, refs)
        return "json"

    def _array(self, node: Node, level: int, refs: tuple[str, ...]) -> str:
        items = node.get("items")
        inner = (
            self._type(items, level, refs) if isinstance(items, dict) and "prefixItems" not in node else None
        )
        return f"list<{inner}>" if inner not in (None, "json") else "json"

    def _object(self, node: Node, level: int, refs: tuple[str, ...]) -> str:
        properties, others = _properties(node), node.get("additionalProperties")
        if not properties:
            inner = self._type(others, level, refs) if isinstance(others, dict) and others else None
            is_map = inner not in (None, "json") and "patternProperties" not in node
            return f"map<string, {inner}>" if is_map else "json"
        if isinstance(others, dict) and others:
            return "json"
        parts = [(str(name), self._type(one, level, refs)) for name, one in properties.items()]
        is_struct = all(type_ and FIELD_NAME.fullmatch(name) for name, type_ in parts)
        if not is_struct or len({name.casefold() for name, _ in parts}) < len(parts):
            return "json"
        return f"struct<{', '.join(f'{name}: {type_}' for name, type_ in parts)}>"

    def _kinds(self, node: Any) -> list[str]:
        return list(dict.fromkeys(kind for kind, _, _ in self._branches(node, ()) if kind))

    def _one(self, node: Any, refs: tuple[str, ...]) -> tuple[Node, tuple[str, ...]]:
        """The one alternative beside null, with what stands around it; anything where there are several.

        Several objects of the same properties are one: they only say which of these belong together.
        """
        found = [(one, inner) for kind, one, inner in self._branches(node, refs) if kind != "null"]
        objects = [_properties(one) for one, _ in found if one.get("type") == "object"]
        if found and len(objects) == len(found) and all(one == objects[0] for one in objects):
            return found[0]
        return found[0] if len(found) == 1 else (_ANYTHING, refs)

    def _branches(self, node: Any, refs: tuple[str, ...]) -> Iterator[tuple[str, Node, tuple[str, ...]]]:
        """The alternatives of a node: the kind of each, empty for anything, and its part of the schema."""
        if next(self.places, None) is None:  # safety: json-schema-bounded
            raise SchemaInvalid(f"it declares more than {NODES_MAX:,} values, with all that it refers to")
        known = self._resolved(node, refs)
        if known is None:
            yield "", _ANYTHING, refs
            return
        found, refs = known
        for word in ("oneOf", "anyOf"):
            if isinstance(found.get(word), list) and len(refs) < LEVELS_MAX * 2:
                around = {name: value for name, value in found.items() if name != word}
                for one in found[word]:
                    yield from self._branches(_both(_mapping(one), around), refs)
                return
        yield from ((kind, {**found, "type": kind}, refs) for kind in _kinds_of(found))

    def _resolved(self, node: Any, refs: tuple[str, ...]) -> tuple[Node, tuple[str, ...]] | None:
        """A node with what it refers to; None where that is in itself, elsewhere, or nowhere."""
        if not isinstance(node, dict):
            return (_ANYTHING, refs) if node in (True, None) else None
        found: dict[str, Any] = dict(node)
        while "$ref" in found:
            reference = str(found.pop("$ref"))
            target = _pointed_at(self.root, reference)
            if target is None or reference in refs:
                return None
            refs = (*refs, reference)
            found = _both(found, target)
        for part in found.pop("allOf", ()) if isinstance(found.get("allOf"), list) else ():
            inner = self._resolved(part, refs)
            if inner is None:
                return None
            found, refs = _both(found, inner[0]), inner[1]
        return found, refs


def parse_json_schema(text: str) -> JsonSchema:
    """A schema of objects. Raises `SchemaInvalid` for any other, with one plain sentence."""
    try:
        root = json.loads(text)
    except (ValueError, RecursionError):
        raise SchemaInvalid("it is not JSON") from None
    if not isinstance(root, dict):
        raise SchemaInvalid("it is not a JSON object")
    try:
        found = JsonSchema(root, {"properties": {"": root}}).at("")
    except RecursionError:
        raise SchemaInvalid(_TOO_DEEP) from None
    if found is None:
        raise SchemaInvalid("it declares no properties of an object")
    return found


def _properties(node: Node) -> Node:
    return _mapping(node.get("properties"))


def _list(node: object) -> list[Any]:
    return node if isinstance(node, list) else []


def _mapping(node: object) -> Node:
    return node if isinstance(node, dict) else _ANYTHING


def _both(one: Node, other: Node) -> dict[str, Any]:
    """Two schemas that hold at once."""
    ours = _properties(one)
    properties = {**ours, **{name: node for name, node in _properties(other).items() if name not in ours}}
    required = [*_list(one.get("required")), *_list(other.get("required"))]
    parts = [*_list(one.get("allOf")), *_list(other.get("allOf"))]
    told = {"properties": properties, "required": required, "allOf": parts}
    return {**other, **one, **{name: value for name, value in told.items() if value}}


def _pointed_at(root: Node, reference: str) -> Node | None:
    """What a pointer into the document leads to; None for names of other documents, and of places in it."""
    if reference != "#" and not reference.startswith("#/"):
        return None
    found: Any = root
    for part in unquote(reference[1:]).split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, list) and name.isdecimal():
            found = dict(enumerate(found)).get(int(name))
        else:
            found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


def _kinds_of(node: Node) -> Iterator[str]:
    """The kinds of values that a node without alternatives allows; one that is empty for any."""
    if node.get("nullable") is True:  # as OpenAPI has it
        yield "null"
    kind = node.get("type")
    if isinstance(kind, list) and kind:
        yield from dict.fromkeys(map(str, kind))
    elif isinstance(kind, str):
        yield kind
    elif isinstance(node.get("enum"), list) and node["enum"]:
        yield from dict.fromkeys(_kind_of_value(value) for value in node["enum"])
    elif "const" in node:
        yield _kind_of_value(node["const"])
    else:
        yield "object" if _properties(node) else ""


def _kind_of_value(value: object) -> str:
    return next((kind for type_, kind in _VALUES if isinstance(value, type_)), "null")


def _string(node: Node) -> str:
    if node.get("contentEncoding") == "base64" or node.get("connect.type") == "bytes":
        return "binary"
    return _FORMATS.get(str(node.get("format")), "string")


def _integer(node: Node) -> str:
    low, high = (node.get(name) for name in ("minimum", "maximum"))
    is_beyond = any(isinstance(one, int) and not LONG_RANGE[0] <= one <= LONG_RANGE[1] for one in (low, high))
    if is_beyond:
        return f"decimal({DECIMAL_PRECISION_MAX},0)"
    return _CONNECT_INTEGERS.get(str(node.get("connect.type")), "long")


def _is_connect_decimal(node: Node) -> bool:
    return node.get("title") == f"{_CONNECT_TITLE}Decimal"


def _notes(node: Node, type_: str | None) -> Iterator[str]:
    """What a person should know of a field, beside what the schema says of it."""
    title = str(node.get("title", ""))
    if _is_connect_decimal(node):
        yield "a decimal of Kafka Connect, in base64 or as a number, as the converter has it: json keeps both"
    elif title.startswith(_CONNECT_TITLE) and (note := _EPOCHS.get(title.removeprefix(_CONNECT_TITLE))):
        yield note
    if note := _FORMAT_NOTES.get(str(node.get("format"))):
        yield note
    if type_ == "double":
        yield "a double: decimal(p,s) keeps sums exact, if its numbers always fit"
    if str(type_).startswith("struct<") and node.get("additionalProperties") is not False:
        yield "fields that the schema doesn't declare are not kept; json would keep all"

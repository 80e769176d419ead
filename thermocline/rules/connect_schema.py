"""A schema of Kafka Connect, as JsonConverter writes it into each record, as a tree of types.

The types are those that Connect's AvroConverter makes of the same schema: so one rule says which of them a
column takes (`decode.avro.fitting`), whichever converter a connector has.

Source: Apache Kafka, ``org.apache.kafka.connect.json.JsonSchema`` and ``org.apache.kafka.connect.data``;
Debezium reference documentation, "Data type mappings".
"""

from __future__ import annotations

import json
from typing import Any, Final

from thermocline.rules.avro_schema import (
    CONNECT,
    CONNECT_NAMES,
    LEVELS_MAX,
    AvroType,
    SchemaInvalid,
)

__all__ = ["JSON_TEXT", "parse_connect_schema"]

JSON_TEXT: Final = "io.debezium.data.Json"
"""A text that is a JSON document itself."""
_KINDS: Final = {
    **dict.fromkeys(("int8", "int16", "int32"), "int"),
    "int64": "long",
    **{kind: kind for kind in ("float", "double", "boolean", "string", "bytes", "array", "map")},
    "struct": "record",
}
_LOGICAL: Final[dict[str, tuple[str, ...]]] = {
    **CONNECT_NAMES,
    "int": (*CONNECT_NAMES["int"], f"{CONNECT}Date", f"{CONNECT}Time"),
    "long": (*CONNECT_NAMES["long"], f"{CONNECT}Timestamp"),
    "string": (*CONNECT_NAMES["string"], JSON_TEXT),
}
_INSIDE: Final = {"array": "items", "map": "values"}
_DECIMAL: Final = f"{CONNECT}Decimal"
_PRECISION: Final = "connect.decimal.precision"
_PRECISION_MAX: Final = 38  # which is not always said, and only told


def parse_connect_schema(text: bytes) -> AvroType | None:
    """The type that a record's schema declares; None where it declares none.

    Raises:
        SchemaInvalid: with one plain sentence.
    """
    try:
        node = json.loads(text)
    except RecursionError:
        raise SchemaInvalid(f"nested more than {LEVELS_MAX} levels deep") from None
    except ValueError as error:
        raise SchemaInvalid(f"not JSON: {error}") from None
    return _declared(node, 0) if node else None


def _declared(node: Any, level: int) -> AvroType:
    if level > LEVELS_MAX:
        raise SchemaInvalid(f"nested more than {LEVELS_MAX} levels deep")
    kind = node.get("type") if isinstance(node, dict) else None
    if kind not in _KINDS:
        raise SchemaInvalid(f"no type of Kafka Connect is declared by {_shown(node)}")
    of = AvroType(_KINDS[kind])
    name = node.get("name")
    if kind == "struct":
        of.name = name if isinstance(name, str) else ""
        of.fields = tuple(_field(field, level) for field in node.get("fields") or ())
    elif kind in _INSIDE:
        of.items = _declared(node.get(_INSIDE[kind]), level + 1)
    if name == _DECIMAL:
        _make_decimal(of, node)
    elif name in _LOGICAL.get(of.kind, ()):
        of.logical = name
    return of


def _field(node: Any, level: int) -> tuple[str, AvroType]:
    name = node.get("field") if isinstance(node, dict) else None
    if not isinstance(name, str):
        raise SchemaInvalid(f"no field is declared by {_shown(node)}")
    return name, _declared(node, level + 1)


def _make_decimal(of: AvroType, node: dict[str, Any]) -> None:
    parameters = node.get("parameters")
    said = parameters if isinstance(parameters, dict) else {}
    try:
        of.scale, of.precision = int(said["scale"]), int(said.get(_PRECISION, _PRECISION_MAX))
    except (KeyError, ValueError, TypeError):
        raise SchemaInvalid(f"no scale of a decimal is declared by {_shown(node)}") from None
    if of.kind != "bytes":
        raise SchemaInvalid(f"a decimal is declared as {of.kind}: {_shown(node)}")
    of.logical = "decimal"


def _shown(node: object) -> str:
    text = json.dumps(node, ensure_ascii=False)
    return text if len(text) <= 80 else f"{text[:79]}…"

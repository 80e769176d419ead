"""One record on its way to a row, step by step: what each of the decoder's own parts makes of it.

Nothing is decided here: each step asks the function that ingest asks, and the last word on the record is that
of the whole decoder.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from thermocline.rules.decode import Decoded, WriterSchemas, decoder_for, readers_for, text_reader_for
from thermocline.rules.decode.avro import AVRO
from thermocline.rules.decode.connect import are_in_keys, are_in_values, unwrapped
from thermocline.rules.decode.envelopes import Parts
from thermocline.rules.decode.framing import KEY_HEADER, VALUE_HEADER, grouped_by_head, schema_id
from thermocline.rules.decode.json_schema import JSON_SCHEMA
from thermocline.rules.decode.schema_documents import SchemaFormat, WriterSchema
from thermocline.rules.decode.unread import UnreadFields
from thermocline.rules.definition import LiveTable
from thermocline.rules.headers import HeadersOf, last_header
from thermocline.rules.keys import bucket_of, encode_one
from thermocline.rules.routing import NO
from thermocline.text.shown import Columns

__all__ = ["Step", "key_of", "steps_of"]

SCHEMA_CHARACTERS_MAX: Final = 4_000
Headers = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Step:
    """What a step is given, and what it makes of it; ``problem`` is why the record is bad, if it is here."""

    name: str
    before: Mapping[str, Any]
    after: Mapping[str, Any]
    problem: str = ""


def steps_of(
    definition: LiveTable,
    registry: WriterSchemas | None,
    key: bytes | None,
    value: bytes | None,
    headers_of: HeadersOf,
    topic: str | None = None,
) -> list[Step]:
    """The steps of one record, as far as it comes. Raises what `WriterSchemas` raises."""
    parts = [part for part in _parts(definition, key, value, headers_of) if part is not None]
    steps = [
        _framing(parts),
        _schema(parts, registry),
        _envelope(definition, registry, key, value, headers_of),
    ]
    decoded = decoder_for(definition, registry).decode([key], [value], headers_of, topic)
    opened = steps[-1].after
    if definition.route:
        steps.append(_route(definition, registry, key, value, headers_of, topic))
    if not decoded.filtered:
        unread = UnreadFields(definition, registry).of([value], 1, headers_of, decoded.others)
        fields = _fields(definition, decoded, opened, list(unread.names))
        steps.append(fields)
        if not fields.problem and definition.has_key:
            steps += _places(definition, decoded)
    return [step for step in steps if step.before or step.after or step.problem]


def key_of(definition: LiveTable, decoded: Decoded) -> tuple[Any, ...] | None:
    """The natural key of the only record that was decoded; None where none can be read, or counts."""
    if decoded.filtered:
        return None
    if decoded.bad:
        return decoded.bad[0].key
    return tuple(decoded.columns[name][0] for name in definition.key) if definition.has_key else None


@dataclass(frozen=True, slots=True)
class _Part:
    """A key or a value: its bytes, what names its schema, and the body behind that."""

    name: str
    text: bytes
    head: bytes = b""
    origin: str = ""
    body: bytes | None = None
    beside: bytes = b""
    own: str = ""
    problem: str = ""


def _parts(
    definition: LiveTable, key: bytes | None, value: bytes | None, headers_of: HeadersOf
) -> Iterator[_Part | None]:
    if definition.key_from == "key" and key is not None:
        own, in_document = definition.key_schema, are_in_keys(definition)
        yield _part("key", key, definition.key_format, own, definition, headers_of, KEY_HEADER, in_document)
    if value is not None:
        own, in_document = definition.value_schema, are_in_values(definition)
        yield _part("value", value, definition.format, own, definition, headers_of, VALUE_HEADER, in_document)


def _part(
    name: str,
    text: bytes,
    format_: str,
    own: str | None,
    definition: LiveTable,
    headers_of: HeadersOf,
    header: str,
    may_have_schema: bool,
) -> _Part | None:
    """What names a part's schema, by the functions that take it off."""
    schemas = _schema_format(format_)
    if schemas is None:
        payloads, schema_of = unwrapped([text]) if may_have_schema else ([text], lambda _: None)
        beside = schema_of(0) or b""
        return _Part(name, text, origin="beside it", body=payloads[0], beside=beside) if beside else None
    if own is not None and not definition.schema_framed:
        return _Part(name, text, body=text, own=own, origin="the definition")
    refused: list[str] = []
    named = last_header(headers_of(0), header)
    groups = grouped_by_head(
        [text],
        lambda _: named,
        schemas.length_of,
        schemas.short,
        lambda _, why: refused.append(why),
    )
    if refused:
        return _Part(name, text, problem=refused[0])
    ((head, start),) = groups
    origin = f"header {header}" if named is not None else "before the body"
    return _Part(name, text, head, origin, text[start:], own=own or "")


def _schema_format(format_: str) -> SchemaFormat | None:
    if format_ == "protobuf":
        from thermocline.rules.decode.protobuf import PROTOBUF  # noqa: PLC0415  (few need it; it takes long to load)

        return PROTOBUF
    return {"avro": AVRO, "json_schema": JSON_SCHEMA}.get(format_)


def _framing(parts: Sequence[_Part]) -> Step:
    """What names the schemas, and the bodies without it."""
    before = {part.name: part.text for part in parts}
    after = {
        part.name: {"named": part.origin, "by": part.head or None, "body": part.body}
        for part in parts
        if not part.problem
    }
    return Step("framing", before, after, next((part.problem for part in parts if part.problem), ""))


def _schema(parts: Sequence[_Part], registry: WriterSchemas | None) -> Step:
    """The schemas that are named."""
    before: dict[str, Any] = {}
    after: dict[str, Any] = {}
    problem = ""
    for part in parts:
        if part.own:
            after[part.name] = {"schema": _short(part.own)}
        elif part.beside:
            after[part.name] = {"schema": _short(part.beside.decode(errors="replace"))}
        elif part.head and registry is not None:
            id_ = schema_id(part.head)
            found = registry.of(id_)
            before[part.name] = {"id": str(id_)}
            after[part.name] = _described(found)
            problem = problem or found.problem
    return Step("schema", before, after, problem)


def _described(found: WriterSchema) -> dict[str, Any]:
    if found.problem:
        return {"problem": found.problem}
    text = found.texts[-1] if found.texts else ""
    return {"kind": found.kind, "schema": _short(text) or None}


def _envelope(
    definition: LiveTable,
    registry: WriterSchemas | None,
    key: bytes | None,
    value: bytes | None,
    headers_of: HeadersOf,
) -> Step:
    """The record's key and row, and whether it deletes."""
    opened = readers_for(definition, registry).envelope.open([key], [value], headers_of)
    after: dict[str, Any] = {
        "envelope": definition.envelope,
        "key": opened.keys[0],
        "row": _row(opened),
        "deletes": bool(opened.deletes[0]),
    }
    if opened.absent:
        after["left as they are"] = list(opened.absent[0])
    problem = opened.bad[0].reason if opened.bad else opened.unreadable.get(0, "")
    return Step("envelope", {"key": key, "value": value}, after, problem)


def _route(
    definition: LiveTable,
    registry: WriterSchemas | None,
    key: bytes | None,
    value: bytes | None,
    headers_of: HeadersOf,
    topic: str | None,
) -> Step:
    """The texts that tell whose record it is, and what they say."""
    reader = text_reader_for(definition, definition.route.sources, registry)
    found = reader.read([key], [value], headers_of, topic)
    said: dict[str, Any] = {
        str(source): "can't be told" if 0 in texts.untold else texts.values[0]
        for source, texts in found.of.items()
    }
    verdict = int(definition.route.verdicts(found.of, 1)[0])
    is_ours = verdict != NO
    before: dict[str, Any] = {"where": [str(one) for one in definition.where]}
    if definition.unless:
        before["unless"] = [[str(one) for one in some] for some in definition.unless]
    problem = found.bad[0].reason if found.bad and is_ours else ""
    return Step("route", before, said | {"is the table's": is_ours}, problem)


def _row(opened: Parts) -> Any:
    """The bytes of the row, or its columns, where taking the record apart has read it."""
    if opened.deletes[0]:
        return None
    if opened.rows is not None:
        return {name: values[0] for name, values in opened.rows.columns.items() if not name.startswith("_")}
    return opened.values[0]


def _fields(
    definition: LiveTable, decoded: Decoded, opened: Mapping[str, Any], unread: Sequence[str]
) -> Step:
    """The columns, or why there are none: the decoder's last word. Then what no column is read from."""
    before = {"key": opened["key"], "row": opened["row"]}
    if decoded.bad:
        bad = decoded.bad[0]
        after: dict[str, Any] = {"stage": str(bad.stage), "on_error": definition.on_error.of(bad.stage)}
        if bad.key is not None:
            after["key"] = Columns(zip(definition.key, bad.key, strict=True))
        return Step("fields", before, after, bad.reason)
    deletes = decoded.tombstones[0]
    names = definition.key if deletes else [column.name for column in definition.columns]
    columns = {name: decoded.columns[name][0] for name in names}
    becomes = "a delete, as it is not the table's" if decoded.unmatched else "a delete"
    after = {"becomes": becomes if deletes else "a row", "columns": columns}
    if decoded.absent and decoded.absent[0]:
        after["left as they are"] = list(decoded.absent[0])
    if unread and not deletes:
        after["no column is read from"] = list(unread)
    return Step("fields", before, after)


def _places(definition: LiveTable, decoded: Decoded) -> Iterator[Step]:
    """The key's bytes, and the bucket that they belong to."""
    values = key_of(definition, decoded)
    assert values is not None
    named = Columns(zip(definition.key, values, strict=True))
    yield Step("key", named, {"bytes": encode_one(definition, values).hex()})
    last = values[len(definition.entity) - 1]
    number = bucket_of(definition, last)
    of = {"column": definition.bucket_column.name, "value": last}
    yield Step("bucket", of, {"bucket": number, "of": definition.buckets})


def _short(text: str) -> str:
    return text if len(text) <= SCHEMA_CHARACTERS_MAX else f"{text[: SCHEMA_CHARACTERS_MAX - 1]}…"

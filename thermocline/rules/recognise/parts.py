"""The format of keys or values, told from their bytes.

A schema's id at the beginning of a document counts only if a registry knows that schema: a number of eight
bytes begins in the same way. Where no registry was asked, documents that look so are told apart as
`Form.NAMED`, and not guessed.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from thermocline.rules.decode.framing import ID_LENGTHS, SchemaId, indexes_length, schema_id
from thermocline.rules.decode.json_documents import refused_as_a_whole
from thermocline.rules.decode.schema_documents import WriterSchema

__all__ = ["Form", "Number", "Part", "document_of", "recognised_part", "schema_ids"]

IDS_MAX: Final = 50
"""Schemas that a registry is asked for: a topic has a handful, and garbage names millions."""
LIKELY_ID_MAX: Final = 10_000_000
"""Without a registry to ask, a greater number before a document is hardly a schema's id."""
FORMATS: Final = {"AVRO": "avro", "JSON": "json_schema", "PROTOBUF": "protobuf"}
_WIDTHS: Final = {4: "int", 8: "long"}
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")

Schemas = Mapping[SchemaId, WriterSchema]


class Form(StrEnum):
    """How the bytes of a document look."""

    SCHEMA = "named schema"
    NAMED = "unknown schema"
    OBJECT = "object"
    TEXT = "text"
    BYTES = "bytes"


class Number(str):
    """A number of JSON as it is spelled: Python's own would round it, or refuse its length."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Part:
    """Keys, or values, of a sample: aligned with the records.

    ``format`` as definitions have it, empty where there is nothing to tell it from, or only what a registry
    would know. ``ids`` are the schemas that they name, the last one met first. ``bodies`` are the documents
    without what names their schemas. ``matching`` of ``present`` documents are of the format. ``names`` are
    what schemas are called that no document was asked for, and ``docs`` what they say of the fields of each
    message, where they don't have that with them. ``is_framed``: documents name their schemas.
    """

    format: str
    present: int
    matching: int
    forms: Mapping[Form, int]
    bodies: Sequence[bytes | None]
    ids: tuple[SchemaId, ...] = ()
    widths: tuple[int, ...] = ()
    heads: Mapping[SchemaId, bytes] | None = None
    names: Mapping[SchemaId, str] | None = None
    is_framed: bool = True
    docs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def name_of(self, id_: SchemaId) -> str:
        """What a schema is called in evidence."""
        return (self.names or {}).get(id_, f"schema {id_}")

    @property
    def is_named(self) -> bool:
        """Whether most name schemas that nobody knows here."""
        return not self.format and self.forms.get(Form.NAMED, 0) * 2 >= max(1, self.present)


def schema_ids(texts: Sequence[bytes | None], headers: Sequence[bytes | None]) -> list[SchemaId]:
    """The schemas that documents may name, the most frequent first: those to ask a registry for."""
    found = Counter(
        id_
        for text, header in zip(texts, headers, strict=True)
        if (head := _head(text, header)) and (id_ := schema_id(head))
    )
    return [id_ for id_, _ in found.most_common(IDS_MAX)]


def recognised_part(texts: Sequence[bytes | None], headers: Sequence[bytes | None], schemas: Schemas) -> Part:
    """The format of most of the documents. ``headers`` are those that name schemas; ``schemas`` are known."""
    forms: Counter[Form] = Counter()
    bodies: list[bytes | None] = []
    heads: dict[SchemaId, bytes] = {}
    for text, header in zip(texts, headers, strict=True):
        form, body, head = _form(text, header, schemas)
        bodies.append(body)
        if form is not None:
            forms[form] += 1
        if form is Form.SCHEMA:
            id_ = schema_id(head)
            heads.pop(id_, None)
            heads[id_] = head
    present, ids = forms.total(), tuple(reversed(heads))
    widths = tuple(sorted({len(text) for text in texts if text}))
    format_, matching = _format(forms, ids, schemas, widths)
    if format_ not in FORMATS.values():
        bodies = list(texts)
    return Part(format_, present, matching, dict(forms), bodies, ids, widths, heads)


def document_of(text: bytes) -> dict[str, Any] | None:
    """A JSON object, its numbers as `Number`; None for anything else."""
    if text.lstrip()[:1] != b"{" or any(refused_as_a_whole([text])):
        return None
    try:
        found = json.loads(text, parse_float=Number, parse_int=Number, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def _format(
    forms: Counter[Form], ids: Sequence[SchemaId], schemas: Schemas, widths: Sequence[int]
) -> tuple[str, int]:
    """The format of most, and how many are of it; empty where it can't be told."""
    present = forms.total()
    if not present:
        return "", 0
    if forms[Form.SCHEMA] * 2 >= present:
        return FORMATS[schemas[ids[0]].kind], forms[Form.SCHEMA]
    raw = forms[Form.BYTES] + forms[Form.NAMED]
    if raw and len(widths) == 1 and widths[0] in _WIDTHS:  # safety: init-eight-bytes
        return _WIDTHS[widths[0]], present
    if forms[Form.NAMED] * 2 >= present:
        return "", 0
    if forms[Form.OBJECT] and forms[Form.OBJECT] >= max(forms[Form.TEXT], raw):
        return "json", forms[Form.OBJECT]
    readable = forms[Form.TEXT] + forms[Form.OBJECT]
    return ("string", readable) if readable >= raw else ("bytes", present)


def _form(
    text: bytes | None, header: bytes | None, schemas: Schemas
) -> tuple[Form | None, bytes | None, bytes]:
    """How a document looks, without what names its schema, and that; None where there is none."""
    head = _head(text, header)
    id_ = schema_id(head) if head else 0
    if head:
        known = schemas.get(id_)
        if known is not None and not known.problem and known.kind in FORMATS:
            return _within(text or b"", header, head, known)
    if not text:
        return None, text, b""
    if head and (header or (isinstance(id_, int) and 0 < id_ <= LIKELY_ID_MAX)):
        return Form.NAMED, text, b""
    if document_of(text) is not None:
        return Form.OBJECT, text, b""
    return (Form.TEXT if _is_text(text) else Form.BYTES), text, b""


def _within(text: bytes, header: bytes | None, head: bytes, known: WriterSchema) -> tuple[Form, bytes, bytes]:
    if header:
        return Form.SCHEMA, text, header
    if known.kind != "PROTOBUF":
        return Form.SCHEMA, text[len(head) :], head
    try:
        length = indexes_length(text)
    except ValueError:
        return Form.BYTES, text, b""
    return Form.SCHEMA, text[length:], text[:length]


def _head(text: bytes | None, header: bytes | None) -> bytes:
    """What may name a schema; empty where nothing does."""
    named = header or text or b""
    length = ID_LENGTHS.get(named[0]) if named else None
    return named[:length] if length and len(named) >= length else b""


def _is_text(text: bytes) -> bool:
    try:
        return _CONTROL.search(text.decode()) is None
    except UnicodeDecodeError:
        return False

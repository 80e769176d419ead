"""Takes payloads out of the documents that have their schema beside them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Final

import msgspec

from thermocline.rules.decode.envelopes import Envelope, Parts
from thermocline.rules.decode.framing import HeadOf, no_heads
from thermocline.rules.decode.json_documents import refused_as_a_whole
from thermocline.rules.decode.json_object import REFUSALS
from thermocline.rules.definition import JSON_FORMATS, LiveTable
from thermocline.rules.headers import HeadersOf

__all__ = ["BEGINNING", "ConnectEnvelope", "are_in_keys", "are_in_values", "unwrapped"]

BEGINNING: Final = b'{"schema"'
"""Of a document with its schema: JsonConverter writes it first, and no blank before it."""
_FIELDS: Final = frozenset({"schema", "payload"})
_beginning: Final = itemgetter(slice(len(BEGINNING)))


class _Whole(msgspec.Struct, forbid_unknown_fields=True):
    """A document with its schema."""

    schema: msgspec.Raw
    payload: msgspec.Raw


_decode: Final = msgspec.json.Decoder(_Whole).decode


def are_in_keys(definition: LiveTable) -> bool:
    """Whether keys may have their schema beside them: unless key columns have the names of both parts."""
    if definition.key_from != "key" or definition.key_format not in JSON_FORMATS:
        return False
    return _FIELDS.isdisjoint(column.read_from[0] for column in definition.key_columns if column.is_in_row)


def are_in_values(definition: LiveTable) -> bool:
    """Whether values may: unless a column, or what says that a record deletes, is read from such a field."""
    if definition.format not in JSON_FORMATS:
        return False
    if definition.envelope != "plain":
        return True  # the fields of an event have other names
    columns = definition.value_columns if definition.key_from == "key" else definition.columns
    names = {column.read_from[0] for column in columns if column.is_in_row}
    names |= {source.path[0] for source in definition.route.sources if source.path}
    return _FIELDS.isdisjoint(names | set(definition.delete_when.path[:1] if definition.delete_when else ()))


class ConnectEnvelope:
    """Takes schemas off JSON keys and values, for another envelope; see `Envelope`."""

    def __init__(self, definition: LiveTable, inner: Envelope) -> None:
        """For the records of that table."""
        self._inner = inner
        self._are_keys_json = definition.key_from == "key" and definition.key_format in JSON_FORMATS
        self._are_values_json = definition.format in JSON_FORMATS
        self._in_keys = are_in_keys(definition)
        self._in_values = are_in_values(definition)

    def open(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], headers_of: HeadersOf
    ) -> Parts:
        """See `Envelope`."""
        keys, key_head_of = unwrapped(keys) if self._in_keys else (keys, no_heads)
        values, value_head_of = unwrapped(values) if self._in_values else (values, no_heads)
        opened = self._inner.open(keys, values, headers_of)
        return replace(
            opened,
            key_head_of=key_head_of if self._are_keys_json else None,
            value_head_of=value_head_of if self._are_values_json else None,
        )


def unwrapped(texts: Sequence[bytes | None]) -> tuple[Sequence[bytes | None], HeadOf]:
    """The documents, each without its schema where it has one, and what gives the schema's text by index.

    A payload that is null is None: JsonConverter's tombstone is ``{"schema": null, "payload": null}``.
    """
    if BEGINNING not in map(_beginning, filter(None, texts)):
        return texts, no_heads
    places = [index for index, text in enumerate(texts) if text and text.startswith(BEGINNING)]
    some = [texts[index] or b"" for index in places]
    refused = dict(refused_as_a_whole(some))
    payloads = list(texts)
    schemas: dict[int, bytes] = {}
    last = b""
    for place, (index, text) in enumerate(zip(places, some, strict=True)):
        whole = None if place in refused else _whole(text)
        if whole is None:
            continue
        payloads[index] = None if bytes(whole.payload) == b"null" else bytes(whole.payload)
        schema = bytes(whole.schema)
        if schema != last:  # else the same bytes, whose hash is known
            last = schema
        if last != b"null":
            schemas[index] = last
    return payloads, schemas.get if schemas else no_heads


def _whole(text: bytes) -> _Whole | None:
    """Both parts of a document with its schema; None for any other."""
    try:
        whole = _decode(text)
    except REFUSALS:
        return None
    # An application's own field of that name may be a text or a number.
    return whole if bytes(whole.schema)[:1] in (b"{", b"n") else None

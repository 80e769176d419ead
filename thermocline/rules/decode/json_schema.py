"""JSON documents whose records name a JSON Schema: what names it is taken off, and the rest is JSON.

The schema is not applied: the columns say what a value must be. It must be there, and be one of JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from thermocline.rules.column_types import ColumnType, Kind
from thermocline.rules.decode.envelopes import Envelope, Parts
from thermocline.rules.decode.formats import Format, Refusals
from thermocline.rules.decode.framing import KEY_HEADER, VALUE_HEADER, HeadOf, heads_in, id_length
from thermocline.rules.decode.record import Bad, Stage
from thermocline.rules.decode.schema_documents import SchemaFormat
from thermocline.rules.definition import Column, LiveTable
from thermocline.rules.headers import HeadersOf

__all__ = ["JSON_SCHEMA", "JsonSchemaEnvelope"]

_BODY: Final = "body"


class JsonSchemaEnvelope:
    """Takes off what names the schemas of keys and values, for an envelope of JSON; see `Envelope`."""

    def __init__(self, definition: LiveTable, inner: Envelope, bodies: Format) -> None:
        """For the records of that table; ``bodies`` reads by `JSON_SCHEMA`."""
        self._inner = inner
        self._bodies = bodies([Column(_BODY, ColumnType(Kind.BINARY), 0)], ())
        self._has_keys = definition.key_from == "key" and definition.key_format == "json_schema"
        self._has_values = definition.format == "json_schema"

    def open(
        self, keys: Sequence[bytes | None], values: Sequence[bytes | None], headers_of: HeadersOf
    ) -> Parts:
        """See `Envelope`."""
        unreadable: dict[int, str] = {}
        of_keys: dict[int, str] = {}
        if self._has_keys:
            keys = self._taken_off(keys, heads_in(headers_of, KEY_HEADER), of_keys)
        if self._has_values:
            values = self._taken_off(values, heads_in(headers_of, VALUE_HEADER), unreadable)
        opened = self._inner.open(keys, values, headers_of)
        bad = [Bad(index, Stage.KEY, why) for index, why in of_keys.items()]
        bad += [one for one in opened.bad if one.index not in unreadable]  # there, it finds no value
        return replace(opened, bad=bad, unreadable=unreadable)

    def _taken_off(
        self, texts: Sequence[bytes | None], head_of: HeadOf, unreadable: dict[int, str]
    ) -> Sequence[bytes | None]:
        refused: Refusals = {}
        bodies = self._bodies.read([text or None for text in texts], refused, head_of)[_BODY]
        unreadable |= {index: why for index, (_, why) in refused.items()}
        return bodies


class _Bodies:
    """Gives bodies as they are; see `BodyReader`."""

    def read(self, bodies: Sequence[bytes], start: int, refused: Refusals) -> list[list[Any]]:
        """See `BodyReader`."""
        found = [body[start:] for body in bodies]
        if b"" in found:  # safety: json-schema-empty
            empty = (index for index, body in enumerate(found) if not body)
            refused.update((index, (None, "not one JSON object: it is empty")) for index in empty)
        return [found]


JSON_SCHEMA: Final = SchemaFormat("JSON", id_length, 5, lambda *_: _Bodies())  # whatever the schema says

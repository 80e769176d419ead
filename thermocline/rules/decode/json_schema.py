"""JSON documents whose records name a JSON Schema: bodies by the record rule of JSON.

The schema is not applied: the columns say what a value must be. It must be there, and be one of JSON.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from thermocline.rules.decode.formats import Refusals
from thermocline.rules.decode.framing import id_length
from thermocline.rules.decode.json_documents import JsonDocuments
from thermocline.rules.decode.schema_documents import SchemaFormat, WriterSchema
from thermocline.rules.definition import Column

__all__ = ["JSON_SCHEMA"]


class _JsonBodies:
    """Reads JSON objects that begin somewhere; see `BodyReader`."""

    def __init__(
        self, _: WriterSchema, __: bytes, columns: Sequence[Column], required: Sequence[str]
    ) -> None:
        self._names = [column.name for column in columns]
        self._documents = JsonDocuments(columns, required)

    def read(self, bodies: Sequence[bytes], start: int, refused: Refusals) -> list[list[Any]]:
        """See `BodyReader`."""
        found = self._documents.read([body[start:] for body in bodies], refused)
        return [found[name] for name in self._names]


JSON_SCHEMA: Final = SchemaFormat("JSON", id_length, 5, _JsonBodies)

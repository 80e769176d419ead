"""Avro documents: a body each, by the schema of its writer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from thermocline.rules.avro_schema import SchemaInvalid, parse_schema
from thermocline.rules.decode.avro.reader import RecordReader
from thermocline.rules.decode.fields import RowFields
from thermocline.rules.decode.framing import id_length
from thermocline.rules.decode.schema_documents import SchemaFormat, WriterSchema
from thermocline.rules.definition import Column

__all__ = ["AVRO"]


def _reader(
    schema: WriterSchema,
    head: bytes,
    columns: Sequence[Column],
    required: Sequence[str],
    tells_unset: bool,
    row_fields: RowFields,
) -> RecordReader:
    parsed = parse_schema(schema.texts)
    if head and parsed.kind == "bytes":
        # Confluent's serializer for Java leaves the length out, and others don't.
        raise SchemaInvalid("its records are bytes alone, which serializers write in different ways")
    return RecordReader(parsed, columns, required, tells_unset, row_fields)


AVRO: Final = SchemaFormat("AVRO", id_length, 5, _reader)

"""Avro records: their writers' schemas, and the columns that are read of them.

`documents` takes records apart into a schema's id and a body, and reads those of one schema together. Of the
types of a schema (`avro_schema`), `fitting` says which a column takes, `reader` writes the code that reads a
schema's records into columns, `values` has what that code calls for the less common types, and `nested` for
nested columns.
The rule stands in docs/architecture.md, "The record rule (Avro)".
"""

from __future__ import annotations

from thermocline.rules.decode.avro.documents import (
    AvroDocuments,
    OneSchema,
    SchemaId,
    WriterSchema,
    WriterSchemas,
)

__all__ = [
    "AvroDocuments",
    "OneSchema",
    "SchemaId",
    "WriterSchema",
    "WriterSchemas",
]

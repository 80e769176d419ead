"""Avro records: their writers' schemas, and the columns that are read of them.

Of the types of a schema (`avro_schema`), `fitting` says which a column takes, `reader` writes the code that
reads a schema's records into columns, `values` has what that code calls for the less common types, and
`nested` for nested columns.
The rule stands in docs/architecture/records.md, "The record rule (Avro)".
"""

from __future__ import annotations

from thermocline.rules.decode.avro.documents import AVRO

__all__ = ["AVRO"]

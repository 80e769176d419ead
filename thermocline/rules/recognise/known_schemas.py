"""Schemas that a registry was asked for before: recognition itself asks nobody."""

from __future__ import annotations

from collections.abc import Mapping

from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema

__all__ = ["KnownSchemas"]


class KnownSchemas:
    """See `WriterSchemas`."""

    def __init__(self, schemas: Mapping[SchemaId, WriterSchema]) -> None:
        self._schemas = schemas

    def of(self, id_: SchemaId) -> WriterSchema:
        """See `WriterSchemas`."""
        return self._schemas.get(id_, WriterSchema(problem=f"the schema registry knows no schema {id_}"))

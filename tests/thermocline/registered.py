"""A registry that has answered, for tests of decoders, and what its serializers write before bodies."""

from __future__ import annotations

import json
from typing import Any

from thermocline.rules.decode.framing import SchemaId
from thermocline.rules.decode.schema_documents import WriterSchema


class Registered:
    """Schemas by their ids; what was asked for."""

    def __init__(self, schemas: dict[SchemaId, Any], kind: str = "AVRO") -> None:
        self.schemas = schemas
        self.kind = kind
        self.asked: list[SchemaId] = []

    def of(self, id_: SchemaId) -> WriterSchema:
        self.asked.append(id_)
        if id_ not in self.schemas:
            return WriterSchema(problem=f"no schema has the id {id_}")
        found = self.schemas[id_]
        return (
            found if isinstance(found, WriterSchema) else WriterSchema((json.dumps(found),), kind=self.kind)
        )


def framed(id_: SchemaId, content: bytes) -> bytes:
    return b"\x00" + id_.to_bytes(4) + content if isinstance(id_, int) else b"\x01" + id_.bytes + content

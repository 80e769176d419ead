"""Writers' schemas that the records of a batch name, and fields of JSON: what a contract is judged by."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import msgspec

from thermocline.rules.contract.changes import judged_parts
from thermocline.rules.contract.modes import Contract, Mode
from thermocline.rules.contract.refusing import heads_of
from thermocline.rules.contract.sampled import FieldSample, JsonFields, evolves_by_sample
from thermocline.rules.decode.framing import schema_id
from thermocline.rules.decode.schema_documents import ID_MAX

if TYPE_CHECKING:
    from thermocline.kafka.facts import RecordChunk
    from thermocline.rules.contract.refusing import Head
    from thermocline.rules.definition import LiveTable
    from thermocline.schemas.registry import SchemaRegistry

__all__ = ["Met", "MetSchema", "SchemaMeter"]


class MetSchema(msgspec.Struct, frozen=True, order=True):
    """The first record of a batch that names a schema in its key or value; ordered as in the log."""

    topic: str
    partition: int
    offset: int
    part: str
    head: bytes

    def __str__(self) -> str:
        """The place of the record."""
        return f"{self.topic}/{self.partition}@{self.offset}"


class Met(msgspec.Struct):
    """What was met: schemas by part and what names them, in hexadecimal; samples by the names of fields."""

    schemas: dict[str, MetSchema] = msgspec.field(default_factory=dict)
    fields: dict[str, FieldSample] = msgspec.field(default_factory=dict)

    def first_schemas(self, others: Iterable[Met]) -> list[MetSchema]:
        """Those of all, each where it was met first, in that order."""
        found: dict[str, MetSchema] = {}
        for met in (self, *others):
            for name, one in met.schemas.items():
                found[name] = min(one, found.get(name, one))
        return sorted(found.values())


class SchemaMeter:
    """Notes what the records of one table name and have; nothing where the contract doesn't ask for it."""

    def __init__(self, definition: LiveTable, registry: SchemaRegistry | None) -> None:
        """For the records of that table."""
        parts = judged_parts(definition) if definition.contract != Contract() else ()
        modes = (Mode.EVOLVE, Mode.STOP)
        uses = any(definition.contract.uses(mode, part.format) for part in parts for mode in modes)
        self._parts = parts if uses and registry is not None else ()
        self._registry = registry
        self._fields = JsonFields(definition) if evolves_by_sample(definition) else None

    def take(self, chunk: RecordChunk, ours: Sequence[int], met: Met) -> None:
        """Note those of a chunk, of the records that are the table's. Raises `RegistryUnreachable`."""
        values = [chunk.values[at] for at in ours]
        if self._fields is not None:
            for name, sample in self._fields.of(values).items():
                met.fields[name] = met.fields.get(name, FieldSample()).plus(sample)
        if not self._parts:
            return
        keys, headers_of = [chunk.keys[at] for at in ours], chunk.headers_of_some(ours)
        for head, places in heads_of(self._parts, keys, values, headers_of).items():
            name = f"{head.part.name}:{head.head.hex()}"
            place = (chunk.topic, chunk.partition, chunk.offsets[ours[places[0]]])
            if self._is_known(head):
                first = MetSchema(*place, head.part.name, head.head)
                met.schemas[name] = min(first, met.schemas.get(name, first))

    def _is_known(self, head: Head) -> bool:
        """Whether there is such a schema: garbage names millions, and says nothing by it."""
        assert self._registry is not None
        id_ = schema_id(head.head)
        return not (isinstance(id_, int) and id_ > ID_MAX) and not self._registry.of(id_).problem

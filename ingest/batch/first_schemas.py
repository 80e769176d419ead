"""Schemas that the first record of a route's value names, where its table is to have their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from thermocline.rules.contract.changes import KEY, judged_parts
from thermocline.rules.contract.refusing import heads_of
from thermocline.rules.decode.framing import schema_id
from thermocline.rules.decode.schema_documents import ID_MAX
from thermocline.rules.routes.own_columns import FirstSchema

if TYPE_CHECKING:
    from thermocline.kafka.facts import RecordChunk
    from thermocline.rules.definition import LiveTable
    from thermocline.schemas.registry import SchemaRegistry

__all__ = ["FirstSchemas"]


class FirstSchemas:
    """Finds, for values of a directory, the first record whose schemas are all known.

    Others say nothing of a table's columns: garbage names millions, and a tombstone none.
    """

    def __init__(self, definition: LiveTable, registry: SchemaRegistry | None) -> None:
        """For the records of that directory."""
        self._parts = judged_parts(definition)
        self._registry = registry

    def take(
        self, chunk: RecordChunk, places: Mapping[str, Sequence[int]], first: dict[str, FirstSchema]
    ) -> None:
        """Note those of a chunk, of the values that have these places. Raises `RegistryUnreachable`."""
        for value, indexes in places.items():
            begins = (chunk.topic, chunk.partition, chunk.offsets[indexes[0]])
            known = first.get(value)
            if known is not None and (known.topic, known.partition, known.offset) < begins:
                continue
            found = self._first(chunk, indexes)
            if found is not None:
                first[value] = found if known is None else min(found, known)

    def _first(self, chunk: RecordChunk, indexes: Sequence[int]) -> FirstSchema | None:
        keys, values = [chunk.keys[at] for at in indexes], [chunk.values[at] for at in indexes]
        named: dict[int, dict[str, bytes]] = {}
        for head, places in heads_of(self._parts, keys, values, chunk.headers_of_some(indexes)).items():
            if self._is_known(head.head):  # safety: schema-first-known
                for place in places:
                    named.setdefault(place, {})[head.part.name] = head.head
        whole = [place for place, heads in named.items() if len(heads) == len(self._parts)]
        if not whole:
            return None
        heads = dict(named[min(whole)])
        key_head = heads.pop(KEY, b"")
        (value_head,) = heads.values()
        return FirstSchema(
            chunk.topic, chunk.partition, chunk.offsets[indexes[min(whole)]], value_head, key_head
        )

    def _is_known(self, head: bytes) -> bool:
        assert self._registry is not None
        id_ = schema_id(head)
        return not (isinstance(id_, int) and id_ > ID_MAX) and not self._registry.of(id_).problem

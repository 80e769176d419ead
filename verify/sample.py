"""Entities chosen by the hash of their key: the same for one seed, in whatever order they are met."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

import mmh3
import numpy as np
import pyarrow as pa

from thermocline.errors import BadParameter
from thermocline.rules.keys import check_key_columns, encode_one, encode_table, parse_value

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable

__all__ = ["Chosen", "Named", "Sample", "by_entity", "entities_of", "named"]

Mask = np.ndarray[Any, np.dtype[np.bool_]]


class Chosen(Protocol):
    """Some entities, by the bytes that the keys of their rows begin with."""

    @property
    def prefixes(self) -> Sequence[bytes]:
        """Those met so far."""

    def offer(self, entities: pa.Array) -> None:
        """Meets entities."""

    def holds(self, entities: pa.Array) -> Mask:
        """Which of some entities are chosen, or may be."""


@dataclass(slots=True)
class Sample:
    """The ``size`` entities of all that were offered whose hashes are the least."""

    size: int
    seed: int
    _heap: list[tuple[int, bytes]] = field(default_factory=list)
    _known: set[bytes] = field(default_factory=set)

    @property
    def prefixes(self) -> Sequence[bytes]:
        """In the order of their hashes."""
        return [prefix for _, prefix in sorted(self._heap, reverse=True)]

    def offer(self, entities: pa.Array) -> None:
        """Meets entities; whoever is chosen may make room for another one later."""
        for prefix in entities.unique().to_pylist():
            number = -self._hash(prefix)
            if prefix in self._known or (self._is_full and number <= self._heap[0][0]):
                continue
            self._known.add(prefix)
            heapq.heappush(self._heap, (number, prefix))
            if len(self._heap) > self.size:
                self._known.discard(heapq.heappop(self._heap)[1])

    def holds(self, entities: pa.Array) -> Mask:
        """Those whose hashes are small enough, were they offered or not."""
        numbered = entities.dictionary_encode()
        least = self._heap[0][0] if self._is_full else None
        held = [least is None or -self._hash(prefix) >= least for prefix in numbered.dictionary.to_pylist()]
        mask: Mask = np.array(held, bool)[numbered.indices.to_numpy()]
        return mask

    @property
    def _is_full(self) -> bool:
        return len(self._heap) >= self.size

    def _hash(self, prefix: bytes) -> int:
        return int(mmh3.hash64(prefix, self.seed & 0xFFFFFFFF, signed=False)[0])


@dataclass(frozen=True, slots=True)
class Named:
    """Entities that somebody named, or rows of them."""

    prefixes: Sequence[bytes]

    def offer(self, entities: pa.Array) -> None:
        """Nobody else is chosen."""

    def holds(self, entities: pa.Array) -> Mask:
        """Those that were named."""
        chosen = set(self.prefixes)
        mask: Mask = np.array([entity in chosen for entity in entities.to_pylist()], bool)
        return mask


def entities_of(definition: LiveTable, rows: pa.Table) -> pa.Array:
    """The entity of each row, as the bytes that its key begins with; without a key, the whole of it."""
    return encode_table(by_entity(definition), rows)


def named(definition: LiveTable, parameters: Mapping[str, str]) -> bytes:
    """The entity that ``COLUMN=VALUE`` pairs name.

    Raises:
        BadParameter: the table has no key; or a column is none of the entity's, missing, or its text no
            value of it.
    """
    if not definition.has_key:
        raise BadParameter.without_key(definition.name)
    check_key_columns(definition, parameters)
    entity = ", ".join(definition.entity)
    for name in parameters:
        if name not in definition.entity:
            problem = f"it is in the key, and not in the entity: an entity is {entity}"
            raise BadParameter(name=name, problem=problem)
    values = []
    for column in definition.key_columns[: len(definition.entity)]:
        if column.name not in parameters:
            raise BadParameter(name=column.name, problem=f"it is missing: an entity is {entity}")
        try:
            values.append(parse_value(column, parameters[column.name]))
        except ValueError as error:
            raise BadParameter(name=column.name, problem=str(error)) from error
    return encode_one(definition, values)


@lru_cache(maxsize=8)
def by_entity(definition: LiveTable) -> LiveTable:
    """The definition with the entity for its key; without a key, as it is."""
    return replace(definition, key=definition.entity) if definition.has_key else definition

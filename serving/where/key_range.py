"""The keys that a condition leaves: where it fixes leading key columns, few buckets and files have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from math import prod
from typing import TYPE_CHECKING, Any, Final

from thermocline.rules.keys import bucket_of, encode_one, prefix_end
from thermocline.serving.where.predicate import Comparison, Either, Every, OneOf, Predicate, Value

if TYPE_CHECKING:
    from thermocline.iceberg.sparse_index import SparseIndex
    from thermocline.rules.definition import LiveTable

PREFIXES_MAX: Final = 1_000
"""Each is looked for in each file's index, in microseconds, or in every generation, in tens of them. A
condition that leaves more narrows less."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """The buckets and the beginnings of keys that rows may have; all of them, where it says None."""

    buckets: frozenset[int] | None = None
    prefixes: tuple[bytes, ...] | None = None

    @classmethod
    def of(cls, definition: LiveTable, predicate: Predicate | None) -> KeyRange:
        """What is left by a condition, or a little more."""
        return cls.of_columns(definition, dict(_fixed(predicate)) if predicate is not None else {})

    @classmethod
    def of_columns(cls, definition: LiveTable, fixed: Mapping[str, Sequence[Any] | None]) -> KeyRange:
        """What is left where columns have one of these values each, or any value: no values, or None."""
        values = fixed.get(definition.bucket_column.name)
        buckets = None if values is None else frozenset(bucket_of(definition, value) for value in values)
        return cls(buckets, _prefixes(definition, fixed))

    def has_bucket(self, bucket: int) -> bool:
        """Whether a bucket may have rows."""
        return self.buckets is None or bucket in self.buckets

    def may_be_in(self, index: SparseIndex) -> bool:
        """Whether a file may have rows."""
        return self.prefixes is None or any(
            index.candidates(prefix, prefix_end(prefix)) for prefix in self.prefixes
        )


def _fixed(predicate: Predicate) -> Iterator[tuple[str, Sequence[Any]]]:
    """The columns that have one of a few values in all rows for which a condition is true."""
    match predicate:
        case Every(conditions):
            yield from chain.from_iterable(map(_fixed, conditions))
        case Either(conditions):
            yield from _fixed_by_each([dict(_fixed(one)) for one in conditions])
        case Comparison(column, "=", Value(value)):
            yield column.name, (value,)
        case OneOf(column, values):
            yield column.name, tuple(dict.fromkeys(value.of for value in values))


def _fixed_by_each(each: Sequence[Mapping[str, Sequence[Any]]]) -> Iterator[tuple[str, Sequence[Any]]]:
    for name in each[0]:
        if all(name in one for one in each):
            yield name, tuple(dict.fromkeys(value for one in each for value in one[name]))


def _prefixes(definition: LiveTable, fixed: Mapping[str, Sequence[Any] | None]) -> tuple[bytes, ...] | None:
    leading: list[Sequence[Any]] = []
    for column in definition.key_columns:
        values = fixed.get(column.name)
        if values is None or prod(map(len, leading)) * len(values) > PREFIXES_MAX:
            break
        leading.append(values)
    return tuple(encode_one(definition, values) for values in product(*leading)) if leading else None

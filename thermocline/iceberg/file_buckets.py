"""In which bucket a file is: partition specs with other numbers of buckets may have files in one table.

Iceberg's bucket is a hash modulo the number of buckets. So where one number divides another, the buckets of
the larger one lie whole in those of the smaller one: bucket ``b`` of 16 is part of bucket ``b % 8`` of 8.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyiceberg.transforms import BucketTransform

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec

__all__ = ["UNPLACED", "FileBucket", "bucket_specs"]


@dataclass(frozen=True, slots=True)
class FileBucket:
    """The bucket that a file's rows are in: its ``number``, ``of`` so many that the file's spec has."""

    number: int
    of: int

    def within(self, buckets: int) -> int | None:
        """The bucket of fewer (or as many) that it is part of; None where it is part of several."""
        if not self.of or self.of % buckets:  # safety: buckets-nest
            return None
        return self.number % buckets

    def __str__(self) -> str:
        return f"bucket {self.number} of {self.of}"


UNPLACED: Final = FileBucket(-1, 0)
"""Of a file that nothing is said of: no commit takes it."""


def bucket_specs(specs: Iterable[PartitionSpec]) -> dict[int, PartitionSpec]:
    """The specs that are ours, by their number of buckets: of one field, on the column of the table's first.

    Of several with the same number of buckets it is the first one. A spec of another form is none of ours.
    """
    found: dict[int, PartitionSpec] = {}
    source_id = None
    for spec in sorted(specs, key=lambda spec: spec.spec_id):
        match [(field.source_id, field.transform) for field in spec.fields]:
            case [(source, BucketTransform() as bucket)] if source_id in (None, source):
                source_id = source
                found.setdefault(bucket.num_buckets, spec)
    return found

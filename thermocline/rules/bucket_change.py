"""A change of a table's number of buckets while it is read and written. Pure.

Iceberg's bucket is a hash modulo the number of buckets, so the buckets of a number lie whole in those of each
of its divisors. The unit of work (``buckets``) is at every moment a divisor of the number of buckets of every
file, and of that of new files (``file_buckets``):

* fewer buckets: the unit changes at once, and a file of 16 buckets is part of one bucket of 8;
* more buckets: new files have the larger number, and the unit follows when no file has the old one any more.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from math import gcd
from typing import TYPE_CHECKING, Final

from thermocline.rules.definition.options import BUCKETS_MAX

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable

__all__ = ["FACTOR_MAX", "finished", "fitting", "problems_of_buckets", "with_buckets"]

FACTOR_MAX: Final = 16
"""By so much the number is raised at once: a rewrite has as many files open, each a row group in memory."""


def problems_of_buckets(current: LiveTable, wanted: int, files: Mapping[int, int]) -> Iterator[str]:
    """Why the table can't have so many buckets, a sentence for each reason.

    ``files`` are the numbers of live files, by how many buckets their spec has.
    """
    before = current.buckets_written
    if wanted == before:
        return
    # A table that remembers deletes keeps the files that it has: only batches join them.
    are_kept = current.merging.remembers_deletes and before % wanted == 0
    if not are_kept and (left := _left(current, files)):  # safety: one-bucket-change-at-a-time
        yield (
            f"buckets can't become {wanted} while the change to {before} is under way: {left:,} files are "
            "left to rewrite. Ingest with maintenance enabled, or `maintain run`, rewrites them; `maintain "
            "status` shows the progress"
        )
    elif not _is_allowed(before, wanted):  # safety: buckets-nest-alter
        yield (
            f"buckets can't become {wanted} from {before}: whole buckets are split or joined, so the number "
            f"must be a divisor, or a multiple up to {FACTOR_MAX} times; nearest: "
            f"{' and '.join(map(str, _nearest(before, wanted)))}"
        )


def _nearest(before: int, wanted: int) -> list[int]:
    """The numbers of buckets next to one that can't be had."""
    near = [one for one in range(1, BUCKETS_MAX + 1) if one != before and _is_allowed(before, one)]
    place = bisect_left(near, wanted)
    return near[max(place - 1, 0) : place + 1]


def with_buckets(current: LiveTable, wanted: int, files: Mapping[int, int]) -> LiveTable:
    """The definition of a table that shall have so many buckets, right after the alteration."""
    if wanted == current.buckets_written:
        return current
    is_raised = wanted > current.buckets and any(files.values())
    return replace(current, buckets=current.buckets if is_raised else wanted, file_buckets=wanted)


def finished(definition: LiveTable, numbers: Iterable[int]) -> LiveTable | None:
    """The definition whose unit is the number of buckets of new files; None while files forbid it.

    ``numbers`` are those of the buckets of all live files' specs. None also where nothing is to be done.
    """
    written = definition.buckets_written
    if definition.buckets == written or any(of % written for of in numbers):  # safety: unit-waits-for-files
        return None
    return replace(definition, buckets=written, version=definition.version + 1)


def fitting(definition: LiveTable, numbers: Iterable[int]) -> LiveTable:
    """The definition with a unit that fits these files, as after a return to a snapshot from before."""
    unit = gcd(definition.buckets, *numbers)
    if unit == definition.buckets:
        return definition
    return replace(
        definition, buckets=unit, file_buckets=definition.buckets_written, version=definition.version + 1
    )


def _is_allowed(before: int, wanted: int) -> bool:
    return before % wanted == 0 or (wanted % before == 0 and wanted <= FACTOR_MAX * before)


def _left(current: LiveTable, files: Mapping[int, int]) -> int:
    """How many files are not of the number of buckets that new files have; one where only the unit waits."""
    left = sum(count for of, count in files.items() if of != current.buckets_written)
    return left or int(current.buckets != current.buckets_written)

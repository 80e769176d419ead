"""Whether the files of a bucket should be listed by few manifests again. Pure.

Each commit adds a manifest of the buckets that it writes to, and from a hundred on Iceberg merges them all. A
commit then writes a manifest anew for any file of it that goes, and whoever plans a read of one bucket reads
what is said of all. So before it comes to that, they are put in order of buckets.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from maintenance.measure import TableMeasure

__all__ = ["buckets_together"]

MANIFEST_BYTES: Final = 8 << 20
"""Iceberg's own target: what is much smaller, and does not fit into one of these, it would merge again."""
MANIFEST_BYTES_MIN: Final = 64 << 10
GROUPS_MAX: Final = 32
"""Where all manifests together are below Iceberg's target."""
MANIFESTS_ADDED: Final = 48
"""By commits since: with the groups, fewer than the hundred at which Iceberg merges."""
FILES_MAX: Final = 50_000
"""A rewrite takes 35 microseconds of CPU a file, on all cores, and batches wait for it: about a second."""


def buckets_together(measured: TableMeasure, buckets: int) -> int | None:
    """How many buckets in a row shall share manifests; None where a rewrite of them is not worth it."""
    size, files = measured.data_manifest_bytes, measured.files
    if size > MANIFEST_BYTES:
        groups = math.ceil(size / MANIFEST_BYTES)
    else:
        groups = min(size // MANIFEST_BYTES_MIN, GROUPS_MAX)
    groups = min(groups, buckets)
    if groups < 2 or files > FILES_MAX or measured.data_manifests < groups + MANIFESTS_ADDED:
        return None
    if measured.older_files:  # by each partition spec there are manifests of its own
        return None
    return math.ceil(buckets / groups)

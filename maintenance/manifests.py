"""Manifests to be rewritten, so that few list the files of a bucket. Pure.

Each commit adds a manifest of data files and one of deletes, of all buckets that it writes to, and from a
hundred of a kind on Iceberg merges them all. A commit then rewrites a manifest for any file of it that
goes, and whoever plans a read of one bucket reads what is said of all. So before it comes to that, they are
put in order of buckets.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from thermocline.ingest.commit.change import ManifestContent
    from thermocline.maintenance.measure import ManifestMeasure, TableMeasure

__all__ = ["buckets_together"]

MANIFEST_BYTES: Final = 8 << 20
"""Iceberg's own target: what is much smaller, and does not fit into one of these, it would merge again."""
MANIFEST_BYTES_MIN: Final = 64 << 10
GROUPS_MAX: Final = 32
"""Where all manifests of a kind together are below Iceberg's target."""
MANIFESTS_ADDED: Final = 48
"""By commits since: with the groups, fewer than the hundred at which Iceberg merges."""
FILES_MAX: Final = 50_000
"""A rewrite takes 35 microseconds of CPU a file, on all cores, and batches wait for it: about a second."""


def buckets_together(measured: TableMeasure, buckets: int) -> dict[ManifestContent, int]:
    """How many buckets in a row shall share manifests; without those whose rewrite is not worth it."""
    if measured.older_files:  # by each partition spec there are manifests of its own
        return {}
    sizes = {content: _buckets_together(listed, buckets) for content, listed in measured.listed.items()}
    return {content: together for content, together in sizes.items() if together is not None}


def _buckets_together(listed: ManifestMeasure, buckets: int) -> int | None:
    if listed.bytes > MANIFEST_BYTES:
        groups = math.ceil(listed.bytes / MANIFEST_BYTES)
    else:
        groups = min(listed.bytes // MANIFEST_BYTES_MIN, GROUPS_MAX)
    groups = min(groups, buckets)
    if groups < 2 or listed.files > FILES_MAX or listed.manifests < groups + MANIFESTS_ADDED:
        return None
    return math.ceil(buckets / groups)

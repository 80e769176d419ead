"""A check that the quarantine holds, or held, each record that the snapshots count as quarantined.

Records leave it by a replay or a purge, and then only older snapshots of the companion table hold them. So
all of its snapshots are asked. What left it before the oldest of them is not known, so nothing is said of
batches that began before that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from thermocline.errors import first_line
from thermocline.iceberg.catalog import find_table, quarantine_identifier
from thermocline.iceberg.files import open_input
from thermocline.iceberg.lineage import lineage
from thermocline.verify.finding import Finding
from thermocline.verify.seam_history import name_of
from thermocline.verify.snapshot_files import walk

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.iceberg.lineage import Link

QUARANTINED: Final = "quarantined"
# Rows read at once: of each, the place alone.
_ROWS_AT_ONCE: Final = 64 << 10

Places = dict[tuple[str, int], BitMap64]
"""Offsets, by topic id and partition."""


def quarantine_findings(table: Table, links: Sequence[Link]) -> Iterator[Finding]:
    """Snapshots that count more quarantined records than the companion table ever held of their batch."""
    counted = [
        (before, link)
        for before, link in pairwise(links)
        if before.state is not None and link.state is not None and link.state.counts.get(QUARANTINED, 0)
    ]
    if not counted:
        return
    identifier = quarantine_identifier(".".join(table.name()))
    companion = find_table(table.catalog, identifier)
    if companion is None:
        facts = f"{name_of(counted[0][1])} counts quarantined records, and there is no table {identifier}"
        yield Finding("quarantine-incomplete", facts)
        return
    history = lineage(companion)
    try:
        places = _places(companion, history)
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        companion = find_table(table.catalog, identifier)
        # Else its beginning was expired meanwhile.
        if companion is not None and _since_ms(lineage(companion)) == _since_ms(history):
            yield Finding("file-unreadable", f"a file of {identifier}: {first_line(error)}")
        return
    for before, link in counted:
        if before.snapshot.timestamp_ms > _since_ms(history):  # safety: verify-quarantine-known
            yield from _missing(before, link, places, identifier)


def _since_ms(history: Sequence[Link]) -> int:
    """Since when all that the companion table held is known."""
    if not history:
        return 0
    first = history[0].snapshot
    # PyIceberg, which expires them, makes the oldest that is left look like the table's first.
    return 0 if history[0].is_first and first.sequence_number == 1 else first.timestamp_ms


def _missing(before: Link, link: Link, places: Places, identifier: str) -> Iterator[Finding]:
    assert before.state is not None
    assert link.state is not None
    state, seam = link.state, before.state.seam
    held = sum(
        offsets.range_cardinality(seam.get((topic, partition)), end)
        for topic, partition, end in state.seam.items()
        if (offsets := places.get((state.topic_ids.get(topic, ""), partition))) is not None
    )
    count = state.counts[QUARANTINED]
    if held < count:  # safety: verify-quarantine
        facts = f"{count} records as quarantined, and {identifier} never held more than {held} of its batch"
        yield Finding("quarantine-incomplete", f"{name_of(link)} counts {facts}")


def _places(companion: Table, history: Sequence[Link]) -> Places:
    """Where all records stood that the companion table ever held."""
    places: Places = {}
    for step in walk(companion.io, history):
        for path, reason in step.unreadable.items():
            raise OSError(f"{path}: {reason}")
        for file in step.appeared:
            _add(companion, file.path, places)
    return places


def _add(companion: Table, path: str, places: Places) -> None:
    with open_input(companion.io, path) as source:
        parquet = pq.ParquetFile(source, read_dictionary=["topic_id"])
        for rows in parquet.iter_batches(_ROWS_AT_ONCE, columns=["topic_id", "partition", "offset"]):
            ids = rows.column("topic_id").cast(pa.string()).to_numpy(zero_copy_only=False)
            partitions, offsets = (rows.column(name).to_numpy() for name in ("partition", "offset"))
            for topic_id in np.unique(ids):
                of_topic = ids == topic_id
                for partition in np.unique(partitions[of_topic]).tolist():
                    found = offsets[of_topic & (partitions == partition)].astype(np.uint64)
                    places.setdefault((str(topic_id), partition), BitMap64()).update(found.tolist())

"""Records that a command names in quarantine: whether they are there, and throwing them out for good."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyiceberg.expressions import In

from thermocline.errors import NotFound
from thermocline.iceberg.catalog import open_catalog
from thermocline.ingest.claim.ownership import own_table
from thermocline.ingest.quarantine import SeenRecords, open_quarantine, read_rows, remove

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.ingest.claim.lease import Say
    from thermocline.process.clock import Clock
    from thermocline.settings import Settings

Place = tuple[str, int, int]
"""Topic, partition and offset."""
Row = Mapping[str, Any]


def place_of(row: Row) -> Place:
    """Where a record of the quarantine stood."""
    return (row["topic"], row["partition"], row["offset"])


def places_filter(wanted: Sequence[Place]) -> In:
    """What spares the files that hold none of the wanted records."""
    return In("offset", {offset for _, _, offset in wanted})  # type: ignore[call-arg, arg-type]  # as documented


def check_quarantined(quarantine: Table, name: str, wanted: Sequence[Place]) -> None:
    """Raises `NotFound` with all the wanted records that are not there."""
    found = {place_of(row) for row in read_rows(quarantine, (), places_filter(wanted))}
    missing = [place for place in dict.fromkeys(wanted) if place not in found]
    if missing:
        records = tuple(f"{topic}/{partition}@{offset}" for topic, partition, offset in missing)
        raise NotFound.of_quarantine(name, records)


def purge(
    settings: Settings,
    name: str,
    wanted: Callable[[Row], bool],
    clock: Clock,
    say: Say | None = None,
) -> int:
    """Take the wanted records out of the quarantine for good; their number.

    ``wanted`` is asked of rows with place and timestamp. Raises `TableHeld` when an owner lives.
    """
    quarantine = open_quarantine(open_catalog(settings.catalog), name, settings.table(name).identifier)
    with own_table(settings, name, clock, say=say):
        quarantine.refresh()
        gone = SeenRecords()
        for row in read_rows(quarantine, ("timestamp",)):
            if wanted(row):
                gone.add(row["topic_id"], row["partition"], row["offset"])
        remove(quarantine, gone)
    return len(gone)


__all__ = ["Place", "Row", "check_quarantined", "place_of", "places_filter", "purge"]

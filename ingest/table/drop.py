"""Drop a live table and its quarantine: out of the catalog, and with ``purge`` off the disk too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thermocline.errors import TableMissing
from thermocline.iceberg.catalog import drop_from, find_table, open_catalog, quarantine_identifier
from thermocline.ingest.claim.ownership import Claim
from thermocline.ingest.commit.purge import check_purge
from thermocline.ingest.commit.purge import purge as purge_files

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from thermocline.ingest.claim.lease import Say
    from thermocline.process.clock import Clock
    from thermocline.settings import Settings


@dataclass(frozen=True, slots=True)
class Dropped:
    """What goes: names in the catalog, and where their files are.

    ``left`` are the places that still hold files: all of them without a purge.
    """

    identifiers: tuple[str, ...]
    locations: tuple[str, ...]
    left: tuple[str, ...]


def plan_drop(settings: Settings, name: str) -> Dropped:
    """What `drop_table` would take away. Raises `TableMissing` when there is nothing."""
    tables = _tables(settings, name)[1]
    return _dropped(tables, left=[table.location() for table in tables])


def drop_table(settings: Settings, name: str, purge: bool, clock: Clock, say: Say | None = None) -> Dropped:
    """Take the table and its quarantine out of the catalog; with ``purge``, delete their files.

    The quarantine goes first: what is interrupted can be repeated as long as the table is there.

    Raises:
        TableMissing: there is nothing to drop.
        TableHeld: an owner lives; stop it first.
        ForeignSnapshot: `table create` did not make it.
        PurgeRefused: its files can't be deleted, or may be another table's; nothing was.
    """
    catalog, tables = _tables(settings, name)
    if purge:
        check_purge(catalog, name, tables)  # safety: purge-shared
    if _names(tables) != (_quarantine(settings, name),):
        Claim.of(settings, name, clock, say).wait_until_free()  # safety: drop-owner
    for table in tables:
        drop_from(catalog, ".".join(table.name()))
    left = [place for table in tables for place in (purge_files(table) if purge else [table.location()])]
    return _dropped(tables, left)


def _tables(settings: Settings, name: str) -> tuple[Catalog, list[Table]]:
    """Those of the two that are there, the quarantine first."""
    identifier = settings.table(name).identifier
    catalog = open_catalog(settings.catalog)
    # safety: quarantine-first
    found = [find_table(catalog, each) for each in (_quarantine(settings, name), identifier)]
    tables = [table for table in found if table is not None]
    if not tables:
        raise TableMissing(table=name, identifier=identifier)
    return catalog, tables


def _quarantine(settings: Settings, name: str) -> str:
    return quarantine_identifier(settings.table(name).identifier)


def _names(tables: Sequence[Table]) -> tuple[str, ...]:
    return tuple(".".join(table.name()) for table in tables)


def _dropped(tables: Sequence[Table], left: Sequence[str]) -> Dropped:
    return Dropped(_names(tables), tuple(table.location() for table in tables), tuple(left))

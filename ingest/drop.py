"""Drop a live table and its quarantine: out of the catalog, and with ``purge`` off the disk too."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyarrow.fs import FileSelector, FileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from ingest.ownership import Claim
from ingest.quarantine import quarantine_identifier
from thermocline.catalog import drop_from, find_table, open_catalog
from thermocline.errors import PurgeRefused, TableMissing

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from ingest.lease import Say
    from thermocline.clock import Clock
    from thermocline.settings import Settings

# What Iceberg and we write below a table's location. What else lies there is somebody else's.
ROOMS = ("data", "metadata", "thermocline")
# Where a table may have its files outside its location.
_PATHS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")


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
        TableUnowned: `table create` did not make it.
        PurgeRefused: its files can't be deleted; nothing was.
    """
    catalog, tables = _tables(settings, name)
    if purge:
        for table in tables:
            _check_purge(name, table)
    if _names(tables) != (_quarantine(settings, name),):
        Claim.of(settings, name, clock, say).wait_until_free()
    for table in tables:
        drop_from(catalog, ".".join(table.name()))
    left = [place for table in tables for place in (_purged(table) if purge else [table.location()])]
    return _dropped(tables, left)


def _tables(settings: Settings, name: str) -> tuple[Catalog, list[Table]]:
    """Those of the two that are there, the quarantine first."""
    identifier = settings.table(name).identifier
    catalog = open_catalog(settings.catalog)
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


def _check_purge(name: str, table: Table) -> None:
    identifier = ".".join(table.name())
    if table.properties.get("gc.enabled", "true").lower() == "false":
        why = "its property gc.enabled is false: another table may use its files"
    elif not isinstance(table.io, PyArrowFileIO):
        why = f"{type(table.io).__name__} can't list the files of {table.location()}"
    elif elsewhere := [table.properties[path] for path in _PATHS if path in table.properties]:
        why = f"it has files outside its location, in {', '.join(elsewhere)}, which others may use"
    else:
        return
    raise PurgeRefused(table=name, identifier=identifier, location=table.location(), detail=why)


def _purged(table: Table) -> list[str]:
    """Deletes what lies in the table's rooms; where something is left."""
    io, location = table.io, table.location()
    assert isinstance(io, PyArrowFileIO)
    scheme, netloc, path = io.parse_location(location, io.properties)
    files = io.fs_by_scheme(scheme, netloc)
    for room in ROOMS:
        with suppress(OSError):  # what could not be deleted is found below
            files.delete_dir(f"{path}/{room}")
    if _is_empty(files, path):
        with suppress(OSError):
            files.delete_dir(path)
        return []
    return [location]


def _is_empty(files: FileSystem, path: str) -> bool:
    return not files.get_file_info(FileSelector(path, allow_not_found=True))

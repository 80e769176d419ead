"""Purge: delete the files of tables that leave the catalog, where they are nobody else's."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, RESTError, ValidationError
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.serializers import FromInputFile
from sqlalchemy.exc import SQLAlchemyError

from thermocline.errors import PurgeRefused, first_line
from thermocline.iceberg.files import filesystem_of, place_of

if TYPE_CHECKING:
    from uuid import UUID

    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.typedef import Identifier

# What Iceberg and we write below a table's location. What else lies there is somebody else's.
ROOMS = ("data", "metadata", "thermocline")
# Where a table may have its files outside its location.
_PATHS = ("write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path")
_METADATA = ".metadata.json"


def check_purge(catalog: Catalog, name: str, tables: Sequence[Table]) -> None:
    """Raises `PurgeRefused` where a room of one of the tables may hold files of a table that is not of them.

    Such a table is in the catalog, as one that was renamed or that is named below ours; or only its metadata
    tells of it, as of one that was dropped earlier.
    """
    refused = next(reasons_against(catalog, tables), None)
    if refused is not None:
        table, why = refused
        identifier = ".".join(table.name())
        raise PurgeRefused(table=name, identifier=identifier, location=table.location(), detail=why)


def purge(table: Table) -> list[str]:
    """Deletes what lies in the table's rooms; where something is left."""
    files, path = filesystem_of(table.io, table.location())
    for room in ROOMS:
        with suppress(OSError):  # what could not be deleted is found below
            files.delete_dir(f"{path}/{room}")
    if _is_empty(files, path):  # safety: purge-rooms
        with suppress(OSError):
            files.delete_dir(path)
        return []
    return [table.location()]


def reasons_against(catalog: Catalog, tables: Sequence[Table]) -> Iterator[tuple[Table, str]]:
    """Why files in the rooms of these tables may be those of another one, each with the table."""
    for table in tables:
        if why := _why_not(table):
            yield table, why
    yield from _neighbours(catalog, tables)
    uuids = {table.metadata.table_uuid for table in tables}
    for table in tables:
        if why := _stranger(table, uuids):
            yield table, why


def _why_not(table: Table) -> str | None:
    if table.properties.get("gc.enabled", "true").lower() == "false":
        return "its property gc.enabled is false: another table may use its files"
    if not isinstance(table.io, PyArrowFileIO):
        return f"{type(table.io).__name__} can't list the files of {table.location()}"
    if elsewhere := [table.properties[path] for path in _PATHS if path in table.properties]:
        return f"it has files outside its location, in {', '.join(elsewhere)}, which others may use"
    return None


def _neighbours(catalog: Catalog, tables: Sequence[Table]) -> Iterator[tuple[Table, str]]:
    """Tables of the catalog whose place is one of ours, above it or below it."""
    leaving = {table.name() for table in tables}
    try:
        for identifier in _identifiers(catalog):
            if identifier in leaving:
                continue
            other = ".".join(identifier)
            try:
                places = _places(catalog.load_table(identifier))
            except NoSuchTableError:  # dropped a moment ago, or of another format
                continue
            except (OSError, ValueError, ValidationError) as error:
                yield tables[0], f"where the files of {other} are can't be read: {first_line(error)}"
                continue
            for place in places:
                for table in tables:
                    if _overlap(place_of(table.location()), place_of(place)):  # safety: purge-neighbours
                        yield table, f"{other} has files at {place}"
    except (SQLAlchemyError, OSError, RESTError) as error:
        yield tables[0], f"the catalog can't say which tables have files there: {first_line(error)}"


def _places(table: Table) -> list[str]:
    return [table.location(), *(table.properties[path] for path in _PATHS if path in table.properties)]


def _overlap(one: str, other: str) -> bool:
    """Whether they are one place, or one of them lies within the other."""
    return all(mine == theirs for mine, theirs in zip(one.split("/"), other.split("/"), strict=False))


def _stranger(table: Table, leaving: Collection[UUID]) -> str | None:
    """Metadata in the table's rooms that is of another table."""
    files, path = filesystem_of(table.io, table.location())
    own = {entry.metadata_file for entry in table.metadata.metadata_log} | {table.metadata_location}
    # Each name begins with a number and holds a random one.
    names = {place_of(location).rpartition("/")[2] for location in own}
    location = table.location().rstrip("/")
    try:
        for info in _metadata_below(files, path):
            if info.base_name in names and info.path == f"{path}/metadata/{info.base_name}":
                continue
            place = f"{location}{info.path[len(path) :]}"
            metadata = FromInputFile.table_metadata(table.io.new_input(place))
            if metadata.table_uuid not in leaving:  # safety: purge-strangers
                return f"{place} is of another table"
    except (OSError, ValueError, ValidationError) as error:
        return f"whose files lie there can't be read: {first_line(error)}"
    return None


def _metadata_below(files: FileSystem, path: str) -> Iterator[FileInfo]:
    for room in ROOMS:
        for info in files.get_file_info(FileSelector(f"{path}/{room}", True, recursive=True)):
            if info.type == FileType.File and info.base_name.endswith(_METADATA):
                yield info


def _identifiers(catalog: Catalog, namespace: Identifier = ()) -> Iterator[Identifier]:
    """All tables of the catalog, or of a namespace and those within it."""
    if namespace:
        with suppress(NoSuchNamespaceError):
            yield from catalog.list_tables(namespace)
    for inner in catalog.list_namespaces(namespace):
        # Where namespaces hold no others, a service may answer with the same ones again.
        if len(inner) == len(namespace) + 1 and inner[: len(namespace)] == namespace:
            yield from _identifiers(catalog, inner)


def _is_empty(files: FileSystem, path: str) -> bool:
    return not files.get_file_info(FileSelector(path, allow_not_found=True))

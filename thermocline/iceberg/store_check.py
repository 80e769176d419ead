"""Tries whether the files of a table can be written, read and deleted, before anything depends on it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import pyarrow as pa
from pyiceberg.exceptions import NoSuchNamespaceError
from pyiceberg.io import load_file_io
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, NestedField

from thermocline.errors import StorageFailed, ThermoclineError, first_line
from thermocline.iceberg.catalog import catalog_errors
from thermocline.iceberg.files import beside, local_path, read_file, write_file
from thermocline.process.answered import answered
from thermocline.process.clock import SystemClock

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.typedef import Properties

Place = tuple["FileIO", str]
"""What reaches files, and a location."""
STORE_SECONDS_MAX: Final = 9.0
"""A store that is well answers in a fraction of a second; the user waits for it at a terminal."""
_ONCE: Final = "thermocline.iceberg.store_retries.OneTry"
# What the clients of stores raise; for an address that is none, a ValueError.
_STORE_ERRORS: Final = (OSError, ValueError, ImportError, pa.ArrowException)
_ANY_SCHEMA: Final = Schema(NestedField(1, "id", IntegerType()))


def new_place(catalog: Catalog, name: str, identifier: str) -> Place | None:
    """Where a table that isn't there yet would get its files, and what would reach them.

    Creates nothing. None where the catalog doesn't say: it may want the namespace first. Raises
    `CatalogUnreachable`.
    """
    try:
        with catalog_errors(catalog, name):
            staged = catalog.create_table_transaction(identifier, _ANY_SCHEMA)
    except NoSuchNamespaceError:
        return place_in_warehouse(catalog.properties)
    return staged._table.io, staged.table_metadata.location  # noqa: SLF001  nothing public has it


def place_in_warehouse(properties: Properties) -> Place | None:
    """The same for no table in particular, by PyIceberg's properties; None where only a server knows."""
    warehouse = properties.get("warehouse", "")
    return (load_file_io(properties, warehouse), warehouse) if urlsplit(warehouse).scheme else None


def check_store(io: FileIO, location: str, table: str, seconds_max: float = STORE_SECONDS_MAX) -> None:
    """Writes, reads and deletes a small file below a location.

    Raises `StorageFailed` for a table, also where that takes longer than ``seconds_max``.
    """
    path = beside(location, f"check-{uuid.uuid4()}")
    asked = {path: lambda: _try(_impatient(io, seconds_max), path, table)}
    if path not in answered(asked, SystemClock().monotonic() + seconds_max):
        raise StorageFailed(table=table, detail=f"{location} gave no answer within {seconds_max:g} s")


def _impatient(io: FileIO, seconds_max: float) -> FileIO:
    """The same access, by a client that doesn't try again and again."""
    bounds = {"s3.connect-timeout": seconds_max / 3, "s3.request-timeout": seconds_max / 2}
    properties = {name: str(seconds) for name, seconds in bounds.items()} | {"s3.retry-strategy-impl": _ONCE}
    return type(io)({**io.properties, **properties})


def _try(io: FileIO, path: str, table: str) -> None:
    content = path.encode()
    with _step(table, path, "written"), _without_new_folders(path):
        write_file(io, path, content)
        with _step(table, path, "read"):
            found = read_file(io, path)
        if found != content:
            raise StorageFailed(table=table, detail=f"{path} was written, and something else was read")
        with _step(table, path, "deleted"):
            io.delete(path)


@contextmanager
def _step(table: str, path: str, verb: str) -> Iterator[None]:
    try:
        yield
    except ThermoclineError:
        raise
    except _STORE_ERRORS as error:
        raise StorageFailed(table=table, detail=f"{path} can't be {verb}: {first_line(error)}") from error


@contextmanager
def _without_new_folders(path: str) -> Iterator[None]:
    """Folders of this machine that the block makes, and leaves empty, are gone after it."""
    local = local_path(path)
    made = [] if local is None else [one for one in Path(local).parents if not one.exists()]
    try:
        yield
    finally:
        with suppress(OSError):
            for folder in made:
                folder.rmdir()

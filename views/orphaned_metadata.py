"""Delete the metadata files of views that were replaced, where nobody else does.

On a catalog in a database Trino gives each replacement a folder of its own, ``<view>-<random>/metadata/``,
beside the table's, and never deletes the one before. Other catalogs are left alone.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyarrow.fs import FileInfo, FileSelector, FileSystem, FileType
from pyiceberg.catalog.sql import IcebergTables, SqlCatalog
from pyiceberg.io import load_file_io
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from thermocline.errors import CatalogUnreachable, first_line
from thermocline.iceberg.files import filesystem_of

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

__all__ = ["remove_leftovers"]

KEPT_MS: Final = 3_600_000
"""What is younger may be of a replacement that is under way: Trino ends ours after a minute."""
REMOVED_MAX: Final = 1_000  # in one go; the rest is left for the next

_ENDING: Final = r"-[0-9a-f]{32}"
_FOLDER: Final = re.compile(r"(?P<parent>.+)/(?P<folder>[^/]+)/metadata/[^/]+\.metadata\.json")
_METADATA: Final = re.compile(r"[^/]+\.metadata\.json")


@dataclass(frozen=True, slots=True)
class _Standing:
    """A view as the catalog has it: the folder of its metadata, and its id, which replacing keeps."""

    view: str
    parent: str
    folders: frozenset[str]
    uuid: str


def remove_leftovers(catalog: Catalog, namespace: str, views: Iterable[str], now_ms: int) -> int:
    """Delete what earlier versions of the views left; how many folders.

    A folder is deleted only if it bears the view's name, is none that the catalog names for it, holds nothing
    but view metadata with the view's own id, and is old enough.

    Raises:
        CatalogUnreachable: the catalog can't say which folders are in use.
    """
    if not isinstance(catalog, SqlCatalog):
        return 0
    removed = 0
    for view in views:
        standing = _standing(catalog, namespace, view)
        if standing is not None:
            files, parent = _place(catalog, standing.parent)
            for folder in _leftovers(files, parent, standing, now_ms):
                if removed == REMOVED_MAX:
                    return removed
                with suppress(OSError):
                    files.delete_dir(folder)
                    removed += 1
    return removed


def _leftovers(files: FileSystem, parent: str, standing: _Standing, now_ms: int) -> Iterator[str]:
    ours = re.compile(re.escape(standing.view) + _ENDING, re.IGNORECASE)
    for info in files.get_file_info(FileSelector(parent, allow_not_found=True)):
        name = info.base_name
        # safety: leftovers-in-use
        if info.type == FileType.Directory and ours.fullmatch(name) and name not in standing.folders:
            path = f"{parent}/{name}"
            if _is_leftover(files, path, standing, now_ms):
                yield path


def _is_leftover(files: FileSystem, path: str, standing: _Standing, now_ms: int) -> bool:
    inside: list[FileInfo] = files.get_file_info(FileSelector(path, recursive=True))
    found = [info for info in inside if info.type != FileType.Directory]
    return bool(found) and all(
        info.path == f"{path}/metadata/{info.base_name}"  # safety: leftovers-whole
        and _METADATA.fullmatch(info.base_name)
        and info.mtime_ns is not None
        and now_ms - info.mtime_ns // 1_000_000 > KEPT_MS  # safety: leftovers-young
        and _uuid_of(files, info.path) == standing.uuid  # safety: leftovers-own
        for info in found
    )


def _standing(catalog: SqlCatalog, namespace: str, view: str) -> _Standing | None:
    """None where the catalog has no such view, or where its metadata lies as Trino would not have laid it."""
    row = _row_of(catalog, namespace, view)
    match = _FOLDER.fullmatch(row[0] or "") if row else None
    if row is None or match is None:
        return None
    before = _FOLDER.fullmatch(row[1] or "")
    files, path = _place(catalog, row[0] or "")
    uuid = _uuid_of(files, path)
    folders = frozenset(found["folder"] for found in (match, before) if found)
    return _Standing(view, match["parent"], folders, uuid) if uuid else None


def _row_of(catalog: SqlCatalog, namespace: str, view: str) -> tuple[str | None, str | None] | None:
    """Where the view's metadata is, and was before its last replacement."""
    asked = select(IcebergTables.metadata_location, IcebergTables.previous_metadata_location).where(
        IcebergTables.catalog_name == catalog.name,
        IcebergTables.table_namespace == namespace,
        IcebergTables.table_name == view,
        IcebergTables.iceberg_type == "VIEW",
    )
    try:
        with Session(catalog.engine) as session:
            row = session.execute(asked).one_or_none()
    except SQLAlchemyError as error:
        uri = str(catalog.properties.get("uri", ""))
        raise CatalogUnreachable(uri=uri, detail=first_line(error)) from error
    return None if row is None else (row[0], row[1])


def _uuid_of(files: FileSystem, path: str) -> str:
    """The id in a view's metadata; empty where the file is something else."""
    try:
        with files.open_input_stream(path, compression=None) as source:
            text = source.read()
        unpacked = gzip.decompress(text) if text[:2] == b"\x1f\x8b" else text
        fields: Mapping[str, Any] = json.loads(unpacked)
        return str(fields["view-uuid"])
    except (OSError, EOFError, ValueError, KeyError, TypeError):
        return ""


def _place(catalog: SqlCatalog, location: str) -> tuple[FileSystem, str]:
    return filesystem_of(load_file_io(catalog.properties, location), location)

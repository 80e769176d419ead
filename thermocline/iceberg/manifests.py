"""Manifests and lists of them, with the fields of format version 3; of version 2, the last ones are None.

PyIceberg 0.12 knows these fields, but has no names for them where it reads, and writes none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, cast

from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_ENTRY_SCHEMAS,
    MANIFEST_LIST_FILE_SCHEMAS,
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    PartitionFieldSummary,
)

from thermocline.iceberg.avro import AvroRecords, records_of

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

__all__ = [
    "DELETED_PATH_FIELD_ID",
    "ListedManifest",
    "ManifestedFile",
    "live_entries",
    "manifests_of",
    "referenced_file",
]

DELETED_PATH_FIELD_ID: Final = 2147483546
"""The reserved field id of ``file_path`` in position delete files."""

_VERSION: Final = 3
_FILE_FIELDS: Final = [field.name for field in DATA_FILE_TYPE[_VERSION].fields]
_LIST_FIELDS: Final = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[_VERSION].fields]


class ManifestedFile(DataFile):
    """A file as a manifest says it."""

    def named(self, field: str) -> Any:
        """A field by its name in the specification; None where the manifest lacks it."""
        return self[_FILE_FIELDS.index(field)]


class ListedManifest(ManifestFile):
    """A manifest as a list says it."""

    @property
    def first_row_id(self) -> int | None:
        """Of the first data file that has no id of its own; None in version 2, and of deletes."""
        found: int | None = self[_LIST_FIELDS.index("first_row_id")]
        return found


def manifests_of(io: FileIO, manifest_list: str) -> Iterator[ListedManifest]:
    """The manifests of a list. Raises `OSError`."""
    return records_of(io, manifest_list, _LIST)


def live_entries(io: FileIO, manifest: ManifestFile) -> Iterator[tuple[ManifestEntry, ManifestedFile]]:
    """The entries of a manifest but those of files that were removed, with their files. Raises `OSError`."""
    for entry in records_of(io, manifest.manifest_path, _ENTRIES):
        if entry.status != ManifestEntryStatus.DELETED:
            yield entry, cast(ManifestedFile, entry.data_file)


def referenced_file(file: ManifestedFile) -> str | None:
    """The one data file that position deletes are about, as Iceberg's own library finds it.

    Where the field for it is missing, as in files that Spark rewrote, equal bounds of the paths say it.
    """
    path: str | None = file.named("referenced_data_file")
    if path or file.content != DataFileContent.POSITION_DELETES:
        return path
    low, high = (
        (bounds or {}).get(DELETED_PATH_FIELD_ID) for bounds in (file.lower_bounds, file.upper_bounds)
    )
    return low.decode() if low is not None and low == high else None


_LIST: Final[AvroRecords[ListedManifest]] = AvroRecords(
    MANIFEST_LIST_FILE_SCHEMAS[_VERSION],
    {-1: ListedManifest, 508: PartitionFieldSummary},
    {517: ManifestContent},
)
_ENTRIES: Final[AvroRecords[ManifestEntry]] = AvroRecords(
    MANIFEST_ENTRY_SCHEMAS[_VERSION],
    {-1: ManifestEntry, 2: ManifestedFile},
    {0: ManifestEntryStatus, 101: FileFormat, 134: DataFileContent},
)

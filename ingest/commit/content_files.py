"""Describe files as Iceberg's ``ContentFileParser`` reads them, and hand many to an operation in a few calls.

A call from Python into the JVM takes some 0.2 ms, and each file needs several. A commit onto many young files
names a thousand of them: one by one they took 2 s, so the loop over them is Java's
(`ingest.commit.method_handles`), along one JSON document.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.partitioning import PartitionSpec

from thermocline.iceberg.data_file import WrittenFile
from thermocline.iceberg.file_buckets import FileBucket, bucket_specs
from thermocline.iceberg.files import DataFile, Deletes
from thermocline.iceberg.manifests import DELETED_PATH_FIELD_ID
from thermocline.ingest.commit.metadata import MetadataError
from thermocline.ingest.commit.method_handles import Handles, class_of

if TYPE_CHECKING:
    from thermocline.ingest.commit.change import ChangeKind, TableChange

_Json = dict[str, Any]
_METHODS: Final[Mapping[ChangeKind, tuple[str, ...]]] = {
    "row-delta": ("RowDelta", "addRows", "removeRows", "addDeletes", "removeDeletes"),
    "rewrite": ("RewriteFiles", "addFile", "deleteFile", "addFile", "deleteFile"),
}
"""What takes the files of each kind of change: data files added and removed, deletes added and removed."""


class ContentFiles:
    """Iceberg's ``ContentFileParser``, applied to whole lists. ``specs`` are the table's, by id.

    ``placed`` says of a bucket what a file's description says of it.
    """

    def __init__(self, jvm: Any, specs: Any) -> None:
        self._jvm = jvm
        self.placed = Placing.of(jvm, specs)
        self._iceberg = jvm.org.apache.iceberg
        self._mapper = self._iceberg.util.JsonUtil.mapper()
        self._handles = Handles(jvm)
        parse = self._handles.static(
            self._iceberg.ContentFileParser,
            "fromJson",
            self._iceberg.ContentFile,
            self._iceberg.shaded.com.fasterxml.jackson.databind.JsonNode,
            jvm.java.util.Map,
        )
        # (node, specs) -> file becomes (node) -> file.
        self._parse = self._handles.given(parse, 1, specs)

    def hand_over(self, change: TableChange, update: Any) -> None:
        """Name every file of a change to its ``RowDelta`` or ``RewriteFiles``."""
        interface, *methods = _METHODS[change.kind]
        described: tuple[list[_Json], ...] = ([], [], [], [])
        added, removed, deletes, dropped = described
        for done in change.files:
            parts = done.parts | {file.path: file.part for file in done.removed}
            added += [data_file_json(self.placed(file.part), file) for file in done.added]
            removed += [_live_file_json(self.placed(file.part), file) for file in done.removed]
            # Deletes are listed where their data file is.
            # safety: deletes-in-their-files-bucket
            deletes += [
                deletes_json(self.placed(parts[path]), path, one) for path, one in done.deletes.items()
            ]
            dropped += [
                deletes_json(self.placed(parts[path]), path, one) for path, one in done.dropped().items()
            ]
        kinds = ("DataFile", "DataFile", "DeleteFile", "DeleteFile")
        for method, kind, files in zip(methods, kinds, described, strict=True):
            if files:
                self.give(update, interface, method, kind, files)

    def give(self, update: Any, interface: str, method: str, kind: str, files: Sequence[_Json]) -> None:
        """Call a method of one of Iceberg's interfaces for each described file, of a class of Iceberg's."""
        taken = getattr(self._iceberg, kind)
        operation = getattr(self._iceberg, interface)
        take = self._handles.virtual(operation, method, operation, taken).bindTo(update)
        consumer = self._handles.as_interface(
            self._jvm.java.util.function.Consumer, self._handles.chain(self._parse, take)
        )
        self._mapper.readTree(json.dumps(files)).elements().forEachRemaining(consumer)

    def texts(self, texts: Iterable[str]) -> Any:
        """A ``java.util.List`` of strings."""
        return self._mapper.readValue(json.dumps(list(texts)), class_of(self._jvm.java.util.List))


@dataclass(frozen=True, slots=True)
class Placing:
    """How a file's bucket is described: by the table's partition spec with so many buckets, and its value."""

    spec_ids: Mapping[int, int]

    @classmethod
    def of(cls, jvm: Any, specs: Any) -> Placing:
        """From a table's specs, as Iceberg's Java library has them."""
        ours = bucket_specs(partition_specs(jvm, specs.values()))
        return cls({count: spec.spec_id for count, spec in ours.items()})

    def __call__(self, part: FileBucket) -> _Json:
        """Raises `MetadataError` where the table has no spec with so many buckets."""
        spec_id = self.spec_ids.get(part.of)
        if spec_id is None:
            raise MetadataError(f"the table has no partition spec for {part}")
        return {"spec-id": spec_id, "partition": [part.number]}


def partition_specs(jvm: Any, specs: Iterable[Any]) -> list[PartitionSpec]:
    """Java's partition specs as PyIceberg's."""
    to_json = jvm.org.apache.iceberg.PartitionSpecParser.toJson
    return [PartitionSpec.model_validate_json(to_json(spec)) for spec in specs]


def data_file_json(placed: _Json, file: WrittenFile) -> _Json:
    """A data file as Iceberg's ``ContentFileParser`` reads it; ``placed`` is what `Placing` says of it."""
    return _data_json(placed, file.path, file.file_bytes, file.rows) | {
        "value-counts": _pairs(dict.fromkeys(file.null_counts, file.rows)),
        "null-value-counts": _pairs(file.null_counts),
        "lower-bounds": _pairs({field_id: bound.hex() for field_id, bound in file.lower_bounds.items()}),
        # safety: bounds-listed
        "upper-bounds": _pairs({field_id: bound.hex() for field_id, bound in file.upper_bounds.items()}),
        "sort-order-id": 0,
    }


def _live_file_json(placed: _Json, file: DataFile) -> _Json:
    """The same of a file that the table has: as much as tells which one it is."""
    return _data_json(placed, file.path, file.bytes, file.rows)


def _data_json(placed: _Json, path: str, file_bytes: int, rows: int) -> _Json:
    return placed | {
        "content": "data",
        "file-path": path,
        "file-format": "parquet",
        "file-size-in-bytes": file_bytes,
        "record-count": rows,
    }


def deletes_json(placed: _Json, data_file: str, deletes: Deletes) -> _Json:
    """The deletes of a data file as Iceberg's ``ContentFileParser`` reads them."""
    fields: _Json = placed | {
        "content": "position-deletes",
        "file-path": deletes.path,
        "file-format": deletes.format,
        "file-size-in-bytes": deletes.file_bytes,
        "record-count": deletes.cardinality,
        "referenced-data-file": data_file,  # safety: deletes-referenced
    }
    if deletes.format == "puffin":
        return fields | {"content-offset": deletes.offset, "content-size-in-bytes": deletes.length}
    # Equal bounds say that the file is about one data file, to readers that don't know the field for it.
    bounds = _pairs({DELETED_PATH_FIELD_ID: data_file.encode().hex()})
    return fields | {"lower-bounds": bounds, "upper-bounds": bounds}  # safety: deletes-bounds


def _pairs(values: Mapping[int, Any]) -> dict[str, list[Any]]:
    return {"keys": list(values), "values": list(values.values())}

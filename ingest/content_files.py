"""Describe files as Iceberg's ``ContentFileParser`` reads them, and hand many to an operation in a few calls.

A call from Python into the JVM takes some 0.2 ms, and each file needs several. A commit onto many young files
names a thousand of them: one by one they took 2 s, so the loop over them is Java's, along one JSON document.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.partitioning import PartitionSpec

from ingest.metadata import MetadataError
from thermocline.iceberg.data_file import WrittenFile
from thermocline.iceberg.file_buckets import FileBucket, bucket_specs
from thermocline.iceberg.files import DELETED_PATH_FIELD_ID, DataFile, Deletes

if TYPE_CHECKING:
    from ingest.change import ChangeKind, TableChange

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
        self._handles = jvm.java.lang.invoke.MethodHandles
        self._lookup = self._handles.publicLookup()
        self._content_file = _class(self._iceberg.ContentFile)
        node = _class(self._iceberg.shaded.com.fasterxml.jackson.databind.JsonNode)
        parse = self._lookup.findStatic(
            _class(self._iceberg.ContentFileParser),
            "fromJson",
            self._type(self._content_file, node, _class(jvm.java.util.Map)),
        )
        # (node, specs) -> file becomes (node) -> file.
        self._parse = self._handles.insertArguments(parse, 1, self._list(specs).toArray())

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
        operation = _class(getattr(self._iceberg, interface))
        taken = self._type(operation, _class(getattr(self._iceberg, kind)))
        take = self._lookup.findVirtual(operation, method, taken).bindTo(update)
        take = take.asType(take.type().changeParameterType(0, self._content_file))
        consumer = self._jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(
            _class(self._jvm.java.util.function.Consumer), self._handles.filterReturnValue(self._parse, take)
        )
        self._mapper.readTree(json.dumps(files)).elements().forEachRemaining(consumer)

    def cluster(self, buckets_together: int) -> Any:
        """A ``java.util.function.Function``: the number of the group that the bucket of a file is in."""
        java, iceberg = self._jvm.java, self._iceberg
        number, whole, anything = java.lang.Integer.TYPE, _class(java.lang.Integer), _class(java.lang.Object)
        partition_class = _class(iceberg.StructLike)
        partition = self._lookup.findVirtual(
            _class(iceberg.ContentFile), "partition", self._type(partition_class)
        )
        get = self._lookup.findVirtual(
            partition_class, "get", self._type(anything, number, _class(java.lang.Class))
        )
        bucket = self._handles.insertArguments(get, 1, self._list(0, whole).toArray())
        bucket = bucket.asType(bucket.type().changeReturnType(number))
        divide = self._lookup.findStatic(
            _class(java.lang.Math), "floorDiv", self._type(number, number, number)
        )
        group = self._handles.insertArguments(divide, 1, self._list(buckets_together).toArray())
        of_file = self._handles.filterReturnValue(self._handles.filterReturnValue(partition, bucket), group)
        return java.lang.invoke.MethodHandleProxies.asInterfaceInstance(
            _class(java.util.function.Function), of_file.asType(of_file.type().changeReturnType(anything))
        )

    def texts(self, texts: Iterable[str]) -> Any:
        """A ``java.util.List`` of strings."""
        return self._mapper.readValue(json.dumps(list(texts)), _class(self._jvm.java.util.List))

    def _type(self, returned: Any, *parameters: Any) -> Any:
        return self._jvm.java.lang.invoke.MethodType.methodType(returned, self._list(*parameters))

    def _list(self, *values: Any) -> Any:
        some = self._jvm.java.util.ArrayList()
        for value in values:
            some.add(value)
        return some


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


def _class(java_class: Any) -> Any:
    return java_class._java_lang_class  # noqa: SLF001  py4j's name for what Java calls .class

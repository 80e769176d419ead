"""Describe files as Iceberg's ``ContentFileParser`` reads them, and hand many to an operation in a few calls.

A call from Python into the JVM takes some 0.2 ms, and each file needs several. A commit onto many young files
names a thousand of them: one by one they took 2 s, so the loop over them is Java's, along one JSON document.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from thermocline.iceberg.data_file import WrittenFile
from thermocline.iceberg.deletes import DELETED_PATH_FIELD_ID
from thermocline.iceberg.files import Deletes


class ContentFiles:
    """Iceberg's ``ContentFileParser``, applied to whole lists. ``specs`` are the table's, by id."""

    def __init__(self, jvm: Any, specs: Any) -> None:
        self._jvm = jvm
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

    def add_rows(self, delta: Any, files: Sequence[Mapping[str, Any]]) -> None:
        """``RowDelta.addRows`` for each of the described data files."""
        self._each(delta, "addRows", self._iceberg.DataFile, files)

    def add_deletes(self, delta: Any, files: Sequence[Mapping[str, Any]]) -> None:
        """``RowDelta.addDeletes`` for each of the described delete files."""
        self._each(delta, "addDeletes", self._iceberg.DeleteFile, files)

    def remove_deletes(self, delta: Any, files: Sequence[Mapping[str, Any]]) -> None:
        """``RowDelta.removeDeletes`` for each of the described delete files."""
        self._each(delta, "removeDeletes", self._iceberg.DeleteFile, files)

    def texts(self, texts: Iterable[str]) -> Any:
        """A ``java.util.List`` of strings."""
        return self._mapper.readValue(json.dumps(list(texts)), _class(self._jvm.java.util.List))

    def _each(self, delta: Any, method: str, kind: Any, files: Sequence[Mapping[str, Any]]) -> None:
        row_delta = _class(self._iceberg.RowDelta)
        take = self._lookup.findVirtual(row_delta, method, self._type(row_delta, _class(kind))).bindTo(delta)
        take = take.asType(take.type().changeParameterType(0, self._content_file))
        consumer = self._jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(
            _class(self._jvm.java.util.function.Consumer), self._handles.filterReturnValue(self._parse, take)
        )
        self._mapper.readTree(json.dumps(files)).elements().forEachRemaining(consumer)

    def _type(self, returned: Any, *parameters: Any) -> Any:
        return self._jvm.java.lang.invoke.MethodType.methodType(returned, self._list(*parameters))

    def _list(self, *values: Any) -> Any:
        some = self._jvm.java.util.ArrayList()
        for value in values:
            some.add(value)
        return some


def data_file_json(bucket: int, file: WrittenFile) -> dict[str, Any]:
    """A data file as Iceberg's ``ContentFileParser`` reads it."""
    return {
        "spec-id": 0,
        "content": "data",
        "file-path": file.path,
        "file-format": "parquet",
        "partition": [bucket],
        "file-size-in-bytes": file.file_bytes,
        "record-count": file.rows,
        "value-counts": _pairs(dict.fromkeys(file.null_counts, file.rows)),
        "null-value-counts": _pairs(file.null_counts),
        "lower-bounds": _pairs({field_id: bound.hex() for field_id, bound in file.lower_bounds.items()}),
        "upper-bounds": _pairs({field_id: bound.hex() for field_id, bound in file.upper_bounds.items()}),
        "sort-order-id": 0,
    }


def deletes_json(bucket: int, data_file: str, deletes: Deletes) -> dict[str, Any]:
    """The deletes of a data file as Iceberg's ``ContentFileParser`` reads them."""
    fields: dict[str, Any] = {
        "spec-id": 0,
        "content": "position-deletes",
        "file-path": deletes.path,
        "file-format": deletes.format,
        "partition": [bucket],
        "file-size-in-bytes": deletes.file_bytes,
        "record-count": deletes.cardinality,
        "referenced-data-file": data_file,
    }
    if deletes.format == "puffin":
        return fields | {"content-offset": deletes.offset, "content-size-in-bytes": deletes.length}
    # Equal bounds say that the file is about one data file, to readers that don't know the field for it.
    bounds = _pairs({DELETED_PATH_FIELD_ID: data_file.encode().hex()})
    return fields | {"lower-bounds": bounds, "upper-bounds": bounds}


def _pairs(values: Mapping[int, Any]) -> dict[str, list[Any]]:
    return {"keys": list(values), "values": list(values.values())}


def _class(java_class: Any) -> Any:
    return java_class._java_lang_class  # noqa: SLF001  py4j's name for what Java calls .class

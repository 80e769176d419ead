"""Puts files of the simulation in the place of Parquet, Avro, Puffin and threads, for all of maintenance.

What is decided (what to rewrite, where rows go, what may be deleted) is the product's.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from itertools import count
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import patch

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from tests.simulation.catalog import FakeManifest, read_list
from tests.simulation.records import ENCODED
from tests.simulation.store import FakeIO
from thermocline.iceberg.data_file import WrittenFile
from thermocline.iceberg.files import DataFile, Deletes, ListedFile, place_of
from thermocline.maintenance.expiry import KeepRule
from thermocline.rules.definition import KEY

# Of so many rows is a file that a rewrite writes: some write several.
ROWS_WRITTEN = 3
_FILE_BYTES = 1 << 20
_PLACED = pa.schema([(KEY, pa.binary()), ("stored", pa.binary())])


@contextmanager
def upkeep_simulated() -> Iterator[None]:
    """For as long as the block runs, maintenance is on the store of the simulation."""
    put: Mapping[str, Any] = {
        "thermocline.maintenance.merge.moved_rows": _moved_rows,
        "thermocline.maintenance.merge.load_sparse_index": lambda *_: SimpleNamespace(is_sorted=True),
        "thermocline.maintenance.merge.read_deletes": _read_deletes,
        "thermocline.maintenance.compact.DataFileWriter": _Writer,
        "thermocline.maintenance.compact._SLICES": 1 << 30,
        "thermocline.maintenance.compact._SLICE_ROWS_MIN": ROWS_WRITTEN,
        "thermocline.maintenance.landing.read_deletes": _read_deletes,
        "thermocline.maintenance.landing.write_deletes": _write_deletes,
        "thermocline.maintenance.landing.open_input": _open_input,
        "thermocline.maintenance.measure.listed_files": _listed_files,
        "thermocline.maintenance.sweep.listed_files": _listed_files,
        "thermocline.maintenance.sweep.read_manifest_list": lambda source: read_list(
            source.io, source.location
        ),
        "thermocline.maintenance.sweep.ThreadPoolExecutor": _InTurn,
        "thermocline.iceberg.expired.ThreadPoolExecutor": _InTurn,
        "thermocline.maintenance.sweep.place_of": (place := cache(place_of)),
        "thermocline.maintenance.orphans.place_of": place,
        "thermocline.maintenance.orphans.reasons_against": lambda *_: iter(()),
        "thermocline.maintenance.expiring.KeepRule": partial(KeepRule, newest_kept=2),  # a history has few
        "thermocline.maintenance.cleaning.tend_quarantine": lambda *_, **__: None,
    }
    with ExitStack() as stack:
        for target, new in put.items():
            stack.enter_context(patch(target, new))
        yield


class _InTurn:
    """An executor that does one thing after the other."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, do: Callable[[Any], Any], things: Iterable[Any]) -> Iterator[Any]:
        """When it is asked for."""
        return map(do, things)


class _Writer:
    """Writes a data file of the simulation, which is as large as it may be."""

    file_bytes = _FILE_BYTES

    def __init__(self, io: FakeIO, path: str, *_: object) -> None:
        self._io = io
        self._path = path
        self._rows: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def write(self, rows: pa.Table) -> None:
        self._rows += [pickle.loads(row) for row in rows.column("stored").to_pylist()]

    def finish(self) -> WrittenFile:
        self._io.ask("data write")
        self._io.objects[self._path] = tuple(self._rows)
        return WrittenFile(self._path, 1000, len(self._rows), {}, {}, {})


def _content(io: FakeIO, path: str) -> Any:
    io.ask("store read")
    if path not in io.objects:
        raise FileNotFoundError(path)
    return io.objects[path]


def _moved_rows(
    io: FakeIO, _: object, file: DataFile, deleted: BitMap | None, rows_at_once: int
) -> Iterator[tuple[Any, pa.Table]]:
    content = enumerate(_content(io, file.path))
    rows = [(at, row) for at, row in content if deleted is None or at not in deleted]
    if rows:
        columns = [[ENCODED[row.key] for _, row in rows], [pickle.dumps(row) for _, row in rows]]
        yield np.array([at for at, _ in rows]), pa.table(columns, schema=_PLACED)


def _read_deletes(io: FakeIO, deletes: Deletes) -> BitMap:
    """The blobs of a file are numbered (`tests.simulation.engine`)."""
    return BitMap(list(_content(io, deletes.path).values())[deletes.offset - 4])


def _write_deletes(io: FakeIO, stem: str, _: int, by_file: Mapping[str, BitMap]) -> dict[str, Deletes]:
    if not by_file:
        return {}
    io.ask("deletes write")
    path = f"{stem}-deletes.puffin"
    io.objects[path] = {of: frozenset(positions) for of, positions in by_file.items()}
    numbers = count(4)
    return {of: Deletes(path, "puffin", next(numbers), 1, len(some), 100) for of, some in by_file.items()}


def _open_input(io: FakeIO, path: str) -> pa.NativeFile:
    return pa.BufferReader(_content(io, path))


def _listed_files(io: FakeIO, manifest: FakeManifest) -> Iterator[ListedFile]:
    for file in _content(io, manifest.manifest_path).files:
        yield ListedFile(file.path, "data", file.bucket, file.rows, file.bytes, 1)
        if file.deletes is not None:
            yield _listed_deletes(file, file.deletes)


def _listed_deletes(file: DataFile, deletes: Deletes) -> ListedFile:
    rows, size = deletes.cardinality, deletes.file_bytes
    return ListedFile(deletes.path, "position-deletes", file.bucket, rows, size, 1, file.path, deletes)

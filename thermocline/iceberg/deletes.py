"""The deleted row positions of a data file, as each format version of Iceberg stores them.

Version 3 has deletion vectors: a blob of a Puffin file for each data file. Version 2 has position delete
files: Parquet with a path and a position for each deleted row. Either way a file of ours is about one data
file, so that a reader of that one needs no other, and new deletes can take the place of the old. A Puffin
file may hold several vectors, and ours did: DuckDB 1.5.5 then takes one of them for another, since it caches
what it reads of a file, and shows deleted rows and hides others.

Source: the Puffin specification, blob type ``deletion-vector-v1``; the Iceberg table specification, "Position
Delete Files" and "Deletion Vectors".
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap

from thermocline.failpoints import failstep
from thermocline.iceberg.files import Deletes, deleted_on_error, mapped, new_file, open_input
from thermocline.iceberg.manifests import DELETED_PATH_FIELD_ID
from thermocline.iceberg.store_retries import read_whole

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

# On an object store each takes the time of an answer, whatever its size.
_WRITES_AT_ONCE = 8
# Positions of a version 2 file unpacked at once: half a megabyte of them.
_POSITIONS_AT_ONCE = 64 << 10
_PUFFIN_MAGIC = b"PFA1"
_VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
# The reserved field id of the row position metadata column, which a deletion vector is computed from.
_ROW_POSITION_FIELD_ID = 2147483645

_DELETED_POSITION_FIELD_ID: Final = 2147483545
_POSITION_DELETES: Final = pa.schema(
    [
        pa.field("file_path", pa.string(), False, {"PARQUET:field_id": str(DELETED_PATH_FIELD_ID)}),
        pa.field("pos", pa.int64(), False, {"PARQUET:field_id": str(_DELETED_POSITION_FIELD_ID)}),
    ]
)


def read_deletes(io: FileIO, deletes: Deletes) -> BitMap:
    """The deleted positions of one data file.

    Raises:
        ValueError: a Puffin blob is damaged, or a Parquet file is about several data files.
    """
    read = _read_vector if deletes.format == "puffin" else _read_positions
    return read_whole(lambda: read(io, deletes))


def write_deletes(
    io: FileIO, stem: str, format_version: int, by_file: Mapping[str, BitMap]
) -> dict[str, Deletes]:
    """Write the deleted positions of several data files of a bucket; where each file's stand, by its path.

    A file for each: Puffin in format version 3, Parquet in version 2. Their names begin with the stem.
    """
    write, ending = (_write_vector, "puffin") if format_version > 2 else (_write_positions, "parquet")
    # safety: deletes-of-one-file-each
    paths = {data_file: f"{stem}-deletes-{n:04}.{ending}" for n, data_file in enumerate(by_file)}

    def written(data_file: str) -> Deletes:
        return write(io, paths[data_file], data_file, by_file[data_file])

    with deleted_on_error(io, paths.values()), failstep("deletes.write"):
        return dict(zip(paths, mapped(stem, _WRITES_AT_ONCE, written, paths), strict=True))


def _read_vector(io: FileIO, deletes: Deletes) -> BitMap:
    with open_input(io, deletes.path) as source:
        source.seek(deletes.offset)
        blob: bytes = source.read(deletes.length)
    (size,) = struct.unpack_from(">I", blob)
    body, checksum = blob[4 : 4 + size], blob[4 + size : 8 + size]
    # safety: vector-checksum
    if body[:4] != _VECTOR_MAGIC or struct.pack(">I", zlib.crc32(body)) != checksum:
        raise ValueError(f"{deletes.path} at byte {deletes.offset}: not an intact deletion vector")
    (bitmap_count,) = struct.unpack_from("<Q", body, 4)
    if bitmap_count == 0:
        return BitMap()
    (high_bits,) = struct.unpack_from("<I", body, 12)
    if bitmap_count != 1 or high_bits != 0:
        raise ValueError(
            f"{deletes.path} at byte {deletes.offset}: positions beyond 2^32 rows are not supported"
        )
    return BitMap.deserialize(body[16:])


def _write_vector(io: FileIO, path: str, data_file: str, positions: BitMap) -> Deletes:
    blob, start = _vector_blob(positions), len(_PUFFIN_MAGIC)
    described = _blob_metadata(data_file, start, len(blob), len(positions))
    footer = json.dumps({"blobs": [described], "properties": {"created-by": "thermocline"}}).encode()
    length = struct.pack("<I", len(footer))
    content = b"".join((_PUFFIN_MAGIC, blob, _PUFFIN_MAGIC, footer, length, bytes(4), _PUFFIN_MAGIC))
    with new_file(io, path) as sink:
        sink.write(content)
    return Deletes(path, "puffin", start, len(blob), len(positions), len(content))


def _vector_blob(positions: BitMap) -> bytes:
    # One 32-bit bitmap with high bits 0: a data file holds far fewer than 2^32 rows.
    positions.run_optimize()
    body = _VECTOR_MAGIC + struct.pack("<Q", 1) + struct.pack("<I", 0) + positions.serialize()
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


def _blob_metadata(data_file: str, offset: int, length: int, cardinality: int) -> dict[str, object]:
    # Snapshot and sequence number are unknown before the commit; the specification wants -1 then.
    return {
        "type": "deletion-vector-v1",
        "fields": [_ROW_POSITION_FIELD_ID],
        "snapshot-id": -1,
        "sequence-number": -1,
        "offset": offset,
        "length": length,
        "properties": {"referenced-data-file": data_file, "cardinality": str(cardinality)},
    }


def _read_positions(io: FileIO, deletes: Deletes) -> BitMap:
    positions = BitMap()
    paths: set[str] = set()
    with open_input(io, deletes.path) as source:
        # The path stands in every row: as a dictionary, it is held once.
        parquet = pq.ParquetFile(source, read_dictionary=["file_path"])
        for rows in parquet.iter_batches(_POSITIONS_AT_ONCE, columns=["file_path", "pos"], use_threads=False):
            paths.update(rows.column("file_path").unique().to_pylist())
            positions |= BitMap(rows.column("pos").to_numpy().astype(np.uint32))
    if len(paths) > 1:  # safety: deletes-of-one-file
        raise ValueError(f"{deletes.path}: position deletes of several data files are not supported")
    return positions


def _write_positions(io: FileIO, path: str, data_file: str, positions: BitMap) -> Deletes:
    """One row for each position, ascending, as the specification wants the rows sorted."""
    ascending = pa.array(np.asarray(positions.to_array(), np.int64))
    # The path stands in every row, which a dictionary makes a number each.
    indices = pa.array(np.zeros(len(ascending), np.int32))
    paths = pa.DictionaryArray.from_arrays(indices, pa.array([data_file], pa.string()))
    schema = _POSITION_DELETES.set(0, _POSITION_DELETES.field(0).with_type(paths.type))
    table = pa.Table.from_arrays([paths, ascending], schema=schema)
    with new_file(io, path) as sink:
        # Without Arrow's own schema in the file, by which readers of it would get a dictionary, too.
        pq.write_table(table, sink, compression="zstd", use_dictionary=["file_path"], store_schema=False)
        file_bytes = sink.tell()
    return Deletes(path, "parquet", 0, file_bytes, len(ascending), file_bytes)

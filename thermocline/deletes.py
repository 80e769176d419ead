"""Deletion vectors: the deleted row positions of a data file, as blobs of a Puffin file.

Source: the Puffin specification, blob type ``deletion-vector-v1``, and the Iceberg table specification, v3.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyroaring import BitMap

from thermocline.files import DeletionVector, open_input

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

_PUFFIN_MAGIC = b"PFA1"
_VECTOR_MAGIC = b"\xd1\xd3\x39\x64"
# The reserved field id of the row position metadata column, which a deletion vector is computed from.
_ROW_POSITION_FIELD_ID = 2147483645


def read_vector(io: FileIO, vector: DeletionVector) -> BitMap:
    """The deleted positions of one data file. Raises ValueError when the blob is damaged."""
    with open_input(io, vector.path) as source:
        source.seek(vector.offset)
        blob: bytes = source.read(vector.length)
    (size,) = struct.unpack_from(">I", blob)
    body, checksum = blob[4 : 4 + size], blob[4 + size : 8 + size]
    if body[:4] != _VECTOR_MAGIC or struct.pack(">I", zlib.crc32(body)) != checksum:
        raise ValueError(f"{vector.path} at byte {vector.offset}: not an intact deletion vector")
    (bitmap_count,) = struct.unpack_from("<Q", body, 4)
    if bitmap_count == 0:
        return BitMap()
    (high_bits,) = struct.unpack_from("<I", body, 12)
    if bitmap_count != 1 or high_bits != 0:
        raise ValueError(
            f"{vector.path} at byte {vector.offset}: positions beyond 2^32 rows are not supported"
        )
    return BitMap.deserialize(body[16:])


def write_vectors(io: FileIO, path: str, vectors: Mapping[str, BitMap]) -> dict[str, DeletionVector]:
    """Write the deleted positions of several data files as one Puffin file; where each one stands in it."""
    content = bytearray(_PUFFIN_MAGIC)
    places: dict[str, tuple[int, int]] = {}
    for data_file, positions in vectors.items():
        blob = _vector_blob(positions)
        places[data_file] = (len(content), len(blob))
        content += blob
    blobs = [_blob_metadata(name, *place, len(vectors[name])) for name, place in places.items()]
    footer = json.dumps({"blobs": blobs, "properties": {"created-by": "thermocline"}}).encode()
    content += _PUFFIN_MAGIC + footer + struct.pack("<I", len(footer)) + bytes(4) + _PUFFIN_MAGIC
    with io.new_output(path).create() as sink:
        sink.write(bytes(content))
    return {
        name: DeletionVector(path, offset, length, len(vectors[name]), len(content))
        for name, (offset, length) in places.items()
    }


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

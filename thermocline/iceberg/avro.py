"""Records of Iceberg's own Avro files: manifests and lists of them.

PyIceberg's `AvroFile` parses the schema of every file again, which takes longer than reading the records of a
small manifest. Here the reader of each schema is kept: a table's files have only a few. The same goes for
writing, where PyIceberg also gives out each byte of a number by itself.
"""

from __future__ import annotations

import io as streams
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pyiceberg.avro.codecs import AVRO_CODEC_KEY
from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.encoder import BinaryEncoder
from pyiceberg.avro.file import MAGIC, META_SCHEMA, SYNC_SIZE, AvroFile, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader, construct_writer, resolve_reader, resolve_writer
from pyiceberg.typedef import StructProtocol
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

if TYPE_CHECKING:
    from pyiceberg.avro.reader import Reader
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema
    from pyiceberg.typedef import Record

__all__ = ["AvroForm", "AvroRecords", "records_of"]

D = TypeVar("D", bound=StructProtocol)
_HEADER: Final = construct_reader(META_SCHEMA, {-1: AvroFileHeader})
_HEADER_WRITER: Final = construct_writer(META_SCHEMA)
_SCHEMA: Final = "avro.schema"
_UNPACKED: Final = "null"
_SMALL: Final = tuple(bytes([2 * number]) for number in range(64))
"""The numbers that are one byte: most lengths and counts, and which of two types a value has."""


@dataclass(frozen=True, eq=False, slots=True)
class AvroRecords(Generic[D]):
    """What a kind of files holds: the fields to be read, and the classes of structs and enums by field id.

    The id -1 is that of a whole record.
    """

    schema: Schema
    types: dict[int, Callable[..., StructProtocol]]
    enums: dict[int, Callable[..., Enum]]


def records_of(io: FileIO, path: str, kind: AvroRecords[D]) -> Iterator[D]:
    """The records of a file, which is read when the first one is asked for.

    Raises ValueError where the file has no schema, or a codec that PyIceberg does not know.
    """
    file = AvroFile[D](io.new_input(path))
    with file.input_file.open() as stream:
        file.decoder = new_decoder(stream.read())
    file.header = _HEADER.read(file.decoder)
    file.reader = _reader_of(file.header.meta.get(_SCHEMA, ""), kind)
    yield from file


class AvroForm:
    """How files of one schema are written, in memory, and not packed. For any threads."""

    def __init__(self, name: str, file_schema: Schema, record_schema: Schema) -> None:
        """``name`` is what the file calls a record, ``record_schema`` the fields by which one is held."""
        self._schema = json.dumps(AvroSchemaConversion().iceberg_to_avro(file_schema, schema_name=name))
        self._writer = resolve_writer(record_schema=record_schema, file_schema=file_schema)

    def file(self, header: Mapping[str, str], records: Sequence[Record]) -> bytes:
        """A whole file with these records, and the header as its own metadata."""
        meta = {**header, _SCHEMA: self._schema, AVRO_CODEC_KEY: _UNPACKED}
        sync, block, content = os.urandom(SYNC_SIZE), _Encoder(), _Encoder()
        for record in records:
            self._writer.write(block, record)
        _HEADER_WRITER.write(content, AvroFileHeader(MAGIC, meta, sync))
        content.write_int(len(records))
        content.write_bytes(block.content)
        content.write(sync)
        return content.content


class _Encoder(BinaryEncoder):
    def __init__(self) -> None:
        self._stream = streams.BytesIO()
        super().__init__(self._stream)

    @property
    def content(self) -> bytes:
        return self._stream.getvalue()

    def write(self, b: bytes) -> None:
        self._stream.write(b)

    def write_int(self, integer: int) -> None:
        # As the encoding of Avro has it: zig-zag, seven bits a byte.
        if 0 <= integer < 64:
            self._stream.write(_SMALL[integer])
            return
        rest = (integer << 1) ^ (integer >> 63)
        packed = bytearray()
        while rest > 0x7F:
            packed.append(rest & 0x7F | 0x80)
            rest >>= 7
        packed.append(rest)
        self._stream.write(packed)

    def write_bytes(self, b: bytes) -> None:
        self.write_int(len(b))
        self._stream.write(b)


@lru_cache(maxsize=64)
def _reader_of(schema: str, kind: AvroRecords[Any]) -> Reader:
    written = AvroSchemaConversion().avro_to_iceberg(json.loads(schema))
    return resolve_reader(written, kind.schema, kind.types, kind.enums)

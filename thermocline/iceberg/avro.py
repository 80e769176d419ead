"""Records of Iceberg's own Avro files: manifests and lists of them.

PyIceberg's `AvroFile` parses the schema of every file again, which takes longer than reading the records of a
small manifest. Here the reader of each schema is kept: a table's files have only a few.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pyiceberg.avro.decoder import new_decoder
from pyiceberg.avro.file import META_SCHEMA, AvroFile, AvroFileHeader
from pyiceberg.avro.resolver import construct_reader, resolve_reader
from pyiceberg.typedef import StructProtocol
from pyiceberg.utils.schema_conversion import AvroSchemaConversion

if TYPE_CHECKING:
    from pyiceberg.avro.reader import Reader
    from pyiceberg.io import FileIO
    from pyiceberg.schema import Schema

__all__ = ["AvroRecords", "records_of"]

D = TypeVar("D", bound=StructProtocol)
_HEADER: Final = construct_reader(META_SCHEMA, {-1: AvroFileHeader})
_SCHEMA: Final = "avro.schema"


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


@lru_cache(maxsize=64)
def _reader_of(schema: str, kind: AvroRecords[Any]) -> Reader:
    written = AvroSchemaConversion().avro_to_iceberg(json.loads(schema))
    return resolve_reader(written, kind.schema, kind.types, kind.enums)

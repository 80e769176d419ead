"""Rows of an entity ready to send, file by file, as the store of rows has them.

What is stored is of one data file, by one definition, and has the deleted rows, too: it is the same for as
long as the file is there. `live_rows` leaves out what a snapshot has deleted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from thermocline import __version__
from thermocline.rules.definition.stored import apart_from_topics
from thermocline.serving.cold.entity_rows import EntityRows

if TYPE_CHECKING:
    from pyroaring import BitMap

    from thermocline.rules.definition import LiveTable
    from thermocline.serving.cold.entity_rows import JsonRow
    from thermocline.serving.cold.index import ColdFile, ColdIndex
    from thermocline.serving.cold.reader import Entity, Located, Row

FORMAT: Final = 3
"""Of the entries and of the rows in them; with the version, it names what may have written them otherwise."""
_DIGEST_BYTES: Final = 16

ReadyRow = tuple[int, bytes, bytes, bytes]
"""A row's position in its file, key, JSON, and sequence, which is empty where no columns order the rows."""

FileRows = tuple[Sequence[ReadyRow], "BitMap | None", "BitMap | None"]
"""What a file has of an entity, what of the file is deleted, and which of that are deletes to remember."""

_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(list[ReadyRow]).decode
_codec: Final = pa.Codec("lz4_raw")
_LENGTH: Final = Struct("<I")


def packed(rows: Sequence[ReadyRow]) -> bytes:
    """As they are stored. The rows of an entity are much alike, so this takes a third of the room."""
    whole = _encode(rows)
    return _LENGTH.pack(len(whole)) + bytes(_codec.compress(whole, asbytes=True))


def unpacked(stored: bytes) -> list[ReadyRow]:
    """What was packed; nothing at all is no rows."""
    if not stored:
        return []
    (length,) = _LENGTH.unpack_from(stored)
    return _decode(_codec.decompress(stored[_LENGTH.size :], length, asbytes=True))


def stored_key(of_file: bytes, entity: Entity) -> bytes:
    """By what the rows of a file are stored: all that they depend on."""
    return of_file + entity.prefix  # safety: rows-place


def file_key(index: ColdIndex, file: ColdFile) -> bytes:
    """What the keys of all that is stored of a file begin with."""
    return _digest(_of_definition(index.table_uuid, index.definition_json) + file.data.path.encode())


@lru_cache(maxsize=64)
def _of_definition(table_uuid: str, definition_json: str) -> bytes:
    """Another definition makes other rows of the same file; but for its topics, which come and go."""
    said = apart_from_topics(definition_json)
    return _digest(repr((FORMAT, __version__, table_uuid, said)).encode())  # safety: rows-definition


def _digest(of: bytes) -> bytes:
    return hashlib.blake2b(of, digest_size=_DIGEST_BYTES).digest()


def ready_rows(
    definition: LiveTable, located: Iterable[Located], to_json: Callable[[Row], JsonRow]
) -> list[ReadyRow]:
    """Rows as they are stored."""
    names = [column.name for column in definition.columns]
    merging = definition.merging
    ordering = [names.index(name) for name in merging.ordered_by]

    def sequence(row: Row) -> bytes:
        return merging.sequence([row[place] for place in ordering]) if ordering else b""

    return [(position, key, to_json(row), sequence(row)) for position, key, row in located]


def live_rows(files: Iterable[FileRows]) -> EntityRows:
    """The rows that are not deleted, and the highest sequences of the rows and remembered deletes."""
    rows: dict[bytes, JsonRow] = {}
    sequences: dict[bytes, bytes] = {}
    for of_file, deleted, remembered in files:
        for position, key, row, sequence in of_file:
            if deleted is None or position not in deleted:  # safety: index-deletes
                rows[key] = row
            elif remembered is None or position not in remembered:
                continue
            if sequence:
                sequences[key] = max(sequence, sequences.get(key, b""))
    return EntityRows.of(rows, sequences)

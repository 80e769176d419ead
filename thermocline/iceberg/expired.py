"""Notes of snapshots that left a table's metadata: which files they had, and what they said of the log.

Maintenance writes one before it expires snapshots. Their files are deleted much later, by the note; and what
they said of the log stays known to those who judge old records (``reading``).
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.table.snapshots import Snapshot

from thermocline.iceberg.files import listed_folder

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

__all__ = ["ExpiryNote", "expired_snapshots", "notes_of", "remove_note", "write_note"]

# Not .gz: PyArrow compresses by itself what is named so.
_ENDING = ".json.zlib"


@dataclass(frozen=True, slots=True)
class ExpiryNote:
    """Snapshots that were, or were to be, expired together at a time.

    ``is_swept``: what only they had of files is deleted; the note stays for what they said.
    """

    name: str
    expired_ms: int
    snapshots: tuple[Snapshot, ...]
    is_swept: bool = False


def write_note(io: FileIO, location: str, note: ExpiryNote) -> None:
    """Writes a note, or writes it anew. Raises `OSError`."""
    document = {
        "expired-ms": note.expired_ms,
        "swept": note.is_swept,
        "snapshots": [snapshot.model_dump(mode="json", by_alias=True) for snapshot in note.snapshots],
    }
    with io.new_output(_path(location, note.name)).create(overwrite=True) as sink:
        sink.write(zlib.compress(json.dumps(document).encode()))


def remove_note(io: FileIO, location: str, note: ExpiryNote) -> None:
    """Removes a note. Raises `OSError`."""
    io.delete(_path(location, note.name))


def notes_of(io: FileIO, location: str) -> Iterator[ExpiryNote]:
    """The notes of a table, oldest first.

    Raises `OSError` where they can't be listed or read, and `ValueError` where one is damaged.
    """
    for file in listed_folder(io, _folder(location)):
        if not file.path.endswith(_ENDING):
            continue
        with io.new_input(file.path).open() as source:
            document = json.loads(zlib.decompress(source.read()))
        yield ExpiryNote(
            file.path.rpartition("/")[2].removesuffix(_ENDING),
            document["expired-ms"],
            tuple(Snapshot.model_validate(one) for one in document["snapshots"]),
            document["swept"],
        )


def expired_snapshots(notes: Iterable[ExpiryNote]) -> Mapping[int, Snapshot]:
    """The snapshots of notes, by id."""
    return {snapshot.snapshot_id: snapshot for note in notes for snapshot in note.snapshots}


def united(name: str, notes: Sequence[ExpiryNote], since_ms: int) -> ExpiryNote:
    """One swept note in place of several, without what snapshots said that are older."""
    snapshots = sorted(expired_snapshots(notes).values(), key=lambda one: one.sequence_number or 0)
    kept = tuple(one for one in snapshots if one.timestamp_ms >= since_ms)
    return ExpiryNote(name, max(note.expired_ms for note in notes), kept, is_swept=True)


def _folder(location: str) -> str:
    return f"{location.rstrip('/')}/thermocline/expired"


def _path(location: str, name: str) -> str:
    return f"{_folder(location)}/{name}{_ENDING}"

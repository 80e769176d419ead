"""Notes of unknown commits, kept beside the table until somebody can say what became of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from thermocline.errors import first_line
from thermocline.failpoints import failstep
from thermocline.iceberg.files import beside, listed_folder, read_file, write_file
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

_ENDING: Final = ".json"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnknownCommit:
    """What an unknown commit was planned on, and the files that it brought."""

    batch_id: str
    epoch: int
    planned_on: int
    ranges: str
    files: tuple[str, ...]
    detail: str


def write_note(io: FileIO, location: str, note: UnknownCommit) -> None:
    """Note an unknown commit. Only a warning where that fails, however it does: its files are kept."""
    try:
        with failstep("commit.note"):
            write_file(io, note_path(location, note.batch_id), json.dumps(asdict(note)).encode())
    except Exception as error:  # noqa: BLE001  a store raises what it likes
        _logger.warning(
            "an unknown commit could not be noted", extra=fields(batch_id=note.batch_id, detail=str(error))
        )


@dataclass(frozen=True, slots=True)
class BrokenNote:
    """A note that nobody can read, such as one that was written to a full disk."""

    path: str
    detail: str

    @property
    def batch_id(self) -> str:
        """The batch, by the note's name."""
        return self.path.rpartition("/")[2].removesuffix(_ENDING)


def notes(io: FileIO, location: str) -> Iterator[UnknownCommit | BrokenNote]:
    """The notes of a table's unknown commits, also those that can't be read.

    Raises `OSError` where the store does not say which notes there are, or what is in one: there may be files
    that must be kept.
    """
    for path in [file.path for file in listed_folder(io, _folder(location))]:
        try:
            content = read_file(io, path)
        except FileNotFoundError:  # it was settled since it was listed
            continue
        yield _parsed(path, content)


def _parsed(path: str, content: bytes) -> UnknownCommit | BrokenNote:
    if not content:
        return BrokenNote(path, "it is empty")
    try:
        note = json.loads(content)
        read = UnknownCommit(**{**note, "files": tuple(note["files"])})
    except (ValueError, TypeError, KeyError) as error:
        return BrokenNote(path, first_line(error))
    broken = BrokenNote(path, "it is of another batch than its name says")
    return read if read.batch_id == broken.batch_id else broken


def remove_note(io: FileIO, location: str, batch_id: str) -> None:
    """Forget a commit that was settled."""
    with failstep("settle.forget"):
        io.delete(note_path(location, batch_id))


def _folder(location: str) -> str:
    return beside(location, "unknown")


def note_path(location: str, batch_id: str) -> str:
    """Where the note of a batch is."""
    return f"{_folder(location)}/{batch_id}{_ENDING}"

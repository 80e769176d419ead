"""Notes of unknown commits, kept beside the table until somebody can say what became of them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from thermocline.failpoints import failstep
from thermocline.iceberg.files import beside, listed_folder, read_file, write_file
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

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
            write_file(io, _path(location, note.batch_id), json.dumps(asdict(note)).encode())
    except Exception as error:  # noqa: BLE001  a store raises what it likes
        _logger.warning(
            "an unknown commit could not be noted", extra=fields(batch_id=note.batch_id, detail=str(error))
        )


def notes(io: FileIO, location: str) -> Iterator[UnknownCommit]:
    """The notes of a table's unknown commits.

    What is no whole note is passed over with a warning. Raises `OSError` where the store does not say which
    notes there are, or what is in one: there may be files that must be kept.
    """
    for path in [file.path for file in listed_folder(io, _folder(location))]:
        try:
            content = read_file(io, path)
        except FileNotFoundError:  # it was settled since it was listed
            continue
        try:
            note = json.loads(content)
            read = UnknownCommit(**{**note, "files": tuple(note["files"])})
        except (ValueError, TypeError, KeyError) as error:
            _logger.warning("not a note of an unknown commit", extra=fields(path=path, detail=str(error)))
        else:
            yield read


def remove_note(io: FileIO, location: str, batch_id: str) -> None:
    """Forget a commit that was settled."""
    with failstep("settle.forget"):
        io.delete(_path(location, batch_id))


def _folder(location: str) -> str:
    return beside(location, "unknown")


def _path(location: str, batch_id: str) -> str:
    return f"{_folder(location)}/{batch_id}.json"

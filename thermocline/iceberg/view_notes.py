"""Notes of a table's views in one small object beside it: what each showed when it was published last.

Its publisher leaves them for those who can't ask Trino, as a server; they decide nothing. They still have a
view that somebody else has dropped or replaced since.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from thermocline.iceberg.files import beside, delete_files, read_file, write_file

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

__all__ = ["ViewNote", "ViewNotes", "forget_view_notes", "read_view_notes", "write_view_notes"]


@dataclass(frozen=True, slots=True)
class ViewNote:
    """One view: by schema and name, how it reads the log, and the snapshot that it lays the log over.

    ``snapshot_id`` is None of a view of the server's live table, and of one that is withdrawn, for the reason
    in ``withdrawn``. ``ends_ms`` is when it stops to answer, in milliseconds since 1970; None: never.
    """

    view: str
    mode: str
    snapshot_id: int | None
    ends_ms: int | None
    definition_version: int
    withdrawn: str = ""


@dataclass(frozen=True, slots=True)
class ViewNotes:
    """Those of a table, as of ``at_ms``."""

    at_ms: int
    views: tuple[ViewNote, ...]


def write_view_notes(io: FileIO, location: str, notes: ViewNotes) -> None:
    """Leave them in place of those before. Raises `OSError`."""
    document = asdict(notes)
    for one in document["views"]:  # JSON readers round long integers
        one["snapshot_id"] = None if one["snapshot_id"] is None else str(one["snapshot_id"])
    write_file(io, _path_of(location), json.dumps(document).encode())


def read_view_notes(io: FileIO, location: str) -> ViewNotes | None:
    """Those of the table at that location; None where there are none, or none whole. Raises `OSError`."""
    try:
        document = json.loads(read_file(io, _path_of(location)))
        return ViewNotes(int(document["at_ms"]), tuple(map(_note_of, document["views"])))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def forget_view_notes(io: FileIO, location: str) -> None:
    """The views are gone."""
    delete_files(io, [_path_of(location)])


def _note_of(one: dict[str, Any]) -> ViewNote:
    snapshot_id, ends_ms = one["snapshot_id"], one["ends_ms"]
    return ViewNote(
        str(one["view"]),
        str(one["mode"]),
        None if snapshot_id is None else int(snapshot_id),
        None if ends_ms is None else int(ends_ms),
        int(one["definition_version"]),
        str(one.get("withdrawn", "")),
    )


def _path_of(location: str) -> str:
    return beside(location, "views.json")

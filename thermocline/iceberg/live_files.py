"""The files of live catalogs: beside the table, a folder for each server.

A server's lease in ``thermocline/leases`` says that its folder is in use, and which of the table's snapshots
its files lie over; while it runs out, queries may still read the files. The server itself removes what is
old. Of one that is gone for good, `forget_live_files` removes all.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from thermocline.iceberg.files import beside, delete_files, listed_folder
from thermocline.iceberg.leases import READERS, lease_path, read_lease

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

__all__ = ["forget_live_files", "live_folder", "live_lease"]

_FOLDER: Final = "live"


def live_folder(location: str, server: str) -> str:
    """The folder of a server's live files; ``server`` tells it from others."""
    return beside(location, _FOLDER, server)


def live_lease(location: str, server: str) -> str:
    """The server's lease."""
    return lease_path(location, READERS, f"{_FOLDER}-{server}")


def forget_live_files(io: FileIO, location: str, now_ms: int, before_ms: int) -> int:
    """Delete the live files of servers that are gone, if they were written before that; how many.

    A server is gone whose lease has run out, or is not there: one that begins has files before its lease.
    Raises `OSError` where the store can't be asked, and `ValueError` where a lease is damaged.
    """
    folder = beside(location, _FOLDER)
    by_server: dict[str, list[str]] = {}
    for file in listed_folder(io, folder, is_recursive=True):
        server = file.path.removeprefix(f"{folder}/").partition("/")[0]
        if file.modified_ms is not None and file.modified_ms < before_ms:
            by_server.setdefault(server, []).append(file.path)
    deleted = 0
    for server, paths in by_server.items():
        lease: dict[str, int] = {}
        with suppress(FileNotFoundError):
            lease = read_lease(io, live_lease(location, server))
        if max(lease.values(), default=0) < now_ms:  # safety: live-folder-in-use
            deleted += delete_files(io, paths)  # not the lease, which a server that goes on may write now
    return deleted

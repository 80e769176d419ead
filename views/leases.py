"""Leases of the snapshots that views read: small objects beside the table, for whoever expires snapshots.

Each view has one (`thermocline.iceberg.leases`), ``<table location>/thermocline/views/<schema>.<view>.json``.
It is written before the view is replaced.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from thermocline.errors import StorageFailed, first_line
from thermocline.failpoints import failstep
from thermocline.iceberg.files import listed_folder
from thermocline.iceberg.leases import VIEWS, lease_path, read_lease, write_lease

if TYPE_CHECKING:
    from pyiceberg.table import Table

__all__ = ["held_views", "hold", "path_of", "release"]

_ENDING: Final = ".json"
AFTER_REPLACEMENT_MS: Final = 3_600_000
"""A query keeps the view that it began with; an hour is longer than any should run."""
WITHOUT_END_MS: Final = 86_400_000
"""Of a view without an end the snapshot is kept for a day, which is renewed while anybody publishes."""
RENEWED_SECONDS: Final = 600.0
"""A publisher that writes at the same moment may overwrite a lease with one that lacks its snapshot: each is
written again after so long. It has to be less than any snapshot is kept without a lease."""


def hold(
    table: Table,
    view: str,
    snapshot_id: int,
    until_ms: int | None,
    now_ms: int,
    standing_id: int | None = None,
) -> None:
    """Keep a snapshot for a view, until the view ends or is replaced.

    That of the view that stands by now (``standing_id``) is kept as it was: nobody knows whether it will be
    replaced. Earlier ones stay for the queries that run. Raises `StorageFailed`.
    """
    until_ms = now_ms + WITHOUT_END_MS if until_ms is None else until_ms
    kept = {
        # safety: views-lease-of-before, views-lease-of-standing
        older: their_end_ms if older == str(standing_id) else min(their_end_ms, now_ms + AFTER_REPLACEMENT_MS)
        for older, their_end_ms in _read(table, view).items()
        if their_end_ms > now_ms
    }
    snapshots = kept | {str(snapshot_id): until_ms + AFTER_REPLACEMENT_MS}
    path = path_of(table, view)
    try:
        with failstep("views.lease"):
            write_lease(table.io, path, {"view": view}, snapshots)
    except OSError as error:
        raise _unreachable(table, path, error) from error


def release(table: Table, view: str) -> None:
    """Keep nothing for a view that is gone. Raises `StorageFailed`."""
    path = path_of(table, view)
    try:
        table.io.delete(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise _unreachable(table, path, error) from error


def held_views(table: Table) -> list[str]:
    """The views that have a lease, by schema and name. Raises `StorageFailed`."""
    folder = path_of(table, "").rpartition("/")[0]
    try:
        files = listed_folder(table.io, folder)
    except OSError as error:
        raise _unreachable(table, folder, error) from error
    names = (file.path.rpartition("/")[2] for file in files)
    return [name.removesuffix(_ENDING) for name in names if name.endswith(_ENDING)]


def path_of(table: Table, view: str) -> str:
    """Where a view's lease is."""
    return lease_path(table.location(), VIEWS, view)


def _read(table: Table, view: str) -> dict[str, int]:
    """What the lease says; nothing where there is none, or one that nobody can read."""
    path = path_of(table, view)
    try:
        return read_lease(table.io, path)
    except FileNotFoundError:
        return {}
    except ValueError:
        return {}  # half written, as after a crash: it is rewritten
    except OSError as error:
        raise _unreachable(table, path, error) from error


def _unreachable(table: Table, path: str, error: OSError) -> StorageFailed:
    return StorageFailed(table=".".join(table.name()), detail=f"{path}: {first_line(error)}")

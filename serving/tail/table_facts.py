"""Facts about a table that its metadata and the files beside it tell, in ``table.json``.

`FactsKeeper` writes them, where the table is followed; API workers read them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from thermocline.serving.store.layout import TABLE_FACTS

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "BARS_MAX",
    "BAR_MS",
    "Bar",
    "CommitFact",
    "LeaseFact",
    "OwnerFact",
    "RefFact",
    "RewriteFact",
    "SchemaCauseFact",
    "SchemaChangeFact",
    "StandbyFact",
    "TableFacts",
    "UnreadFact",
    "VersionFact",
    "ViewFact",
    "read_facts",
]

BAR_MS: Final = 900_000
BARS_MAX: Final = 96
"""A day of quarters of an hour."""


class Bar(msgspec.Struct, frozen=True):
    """What was committed in a quarter of an hour, which begins then, in milliseconds since 1970.

    ``seconds_max`` is what the longest batch took, as far as its snapshots say it.
    """

    begins_ms: int
    commits: int = 0
    records: int = 0
    deleted_rows: int = 0
    quarantined: int = 0
    rewrites: int = 0
    seconds_max: float = 0.0


class CommitFact(msgspec.Struct, frozen=True):
    """One snapshot. ``seconds`` is what its batch took; None where the snapshot does not say it."""

    snapshot_id: str
    at_ms: int
    kind: str
    records: int
    deleted_rows: int
    quarantined: int
    seconds: float | None


class RefFact(msgspec.Struct, frozen=True):
    """A branch or tag."""

    name: str
    kind: str
    snapshot_id: str


class VersionFact(msgspec.Struct, frozen=True):
    """From when on the table had that version of its definition, as far as that is known.

    ``snapshot_id`` is of the first snapshot that said so, and ``changes`` are sentences; empty where unknown.
    """

    version: int
    since_ms: int
    snapshot_id: str = ""
    changes: tuple[str, ...] = ()


class SchemaCauseFact(msgspec.Struct, frozen=True):
    """What made the table change; see `thermocline.iceberg.alterations.NotedCause`."""

    columns: tuple[str, ...]
    record: str
    part: str
    schema: str
    named: str


class SchemaChangeFact(msgspec.Struct, frozen=True):
    """The last change that the table's contract made."""

    version: int
    at_ms: int
    changes: tuple[str, ...]
    causes: tuple[SchemaCauseFact, ...]


class RewriteFact(msgspec.Struct, frozen=True):
    """What a rewrite read, and how long it took, its commit included."""

    bytes: int
    seconds: float


class StandbyFact(msgspec.Struct, frozen=True):
    """A process that waits to take the table over; see `thermocline.iceberg.holder.standby_of`."""

    host: str
    pid: int
    since: str
    renewed: str


class ViewFact(msgspec.Struct, frozen=True):
    """A view in Trino, as its publisher noted it; see `thermocline.iceberg.view_notes.ViewNote`."""

    view: str
    mode: str
    snapshot_id: str | None
    ends_ms: int | None
    definition_version: int
    withdrawn: str


class OwnerFact(msgspec.Struct, frozen=True):
    """Who owns the table, or owned it last; see `thermocline.iceberg.holder.Holder`."""

    host: str
    pid: int
    epoch: int
    since: str
    renewed: str
    lease_seconds: float
    ended: str
    stopped_by: str
    stopped_because: str
    is_gone: bool


class LeaseFact(msgspec.Struct, frozen=True):
    """Somebody who needs snapshots, of which each is needed until then."""

    kind: str
    holder: str
    snapshots: dict[str, int]


class UnreadFact(msgspec.Struct, frozen=True):
    """Fields that no column is read from; see `thermocline.rules.unread_counts.UnreadCounts`."""

    since_ms: int | None
    values: int
    fields: dict[str, int]
    others: int


class TableFacts(msgspec.Struct, frozen=True):
    """All of it. ``counted_to`` is the sequence number of the newest snapshot that is in the bars.

    ``owner`` is known once somebody has looked (``owner_at_ms``), and so are the standby (``standby_at_ms``),
    and views, leases, expiry and orphans (``closely_at_ms``). ``views_at_ms`` is when the views were noted.
    Times are in milliseconds since 1970, but for those of owner and standby.
    """

    table_uuid: str
    updated_ms: int
    interval_seconds: float
    counted_to: int = -1
    format_version: int = 0
    snapshots: int = 0
    refs: tuple[RefFact, ...] = ()
    bars: tuple[Bar, ...] = ()
    recent: tuple[CommitFact, ...] = ()
    last_commit_ms: int | None = None
    last_commit_seconds: float | None = None
    drained_ms: int | None = None
    rewritten_ms: int | None = None
    rewrites: tuple[RewriteFact, ...] = ()
    totals: dict[str, int] = {}
    versions: tuple[VersionFact, ...] = ()
    schema_change: SchemaChangeFact | None = None
    accepted: tuple[dict[str, Any], ...] = ()
    unread_fields: tuple[str, ...] = ()
    unread: UnreadFact | None = None
    owner: OwnerFact | None = None
    owner_at_ms: int | None = None
    standby: StandbyFact | None = None
    standby_at_ms: int | None = None
    views: tuple[ViewFact, ...] = ()
    views_at_ms: int | None = None
    leases: tuple[LeaseFact, ...] = ()
    expired_ms: int | None = None
    waiting_snapshots: int = 0
    waiting_bytes: int = 0
    orphans: int = 0
    orphan_bytes: int = 0
    closely_at_ms: int | None = None


def read_facts(folder: Path) -> TableFacts | None:
    """Those in a table's folder; None where there are none, or none that this release can read."""
    try:
        return msgspec.json.decode((folder / TABLE_FACTS).read_bytes(), type=TableFacts)
    except (OSError, msgspec.DecodeError):
        return None

"""The Iceberg table, its catalog, and who commits to it."""

from __future__ import annotations

from thermocline.errors.root import ExitCode, ThermoclineError
from thermocline.masking import mask_password


class TableError(ThermoclineError):
    """The Iceberg table, its catalog or its ownership is not as it must be."""

    http_status = 503
    exit_code = ExitCode.AWAY


class CatalogUnreachable(TableError):
    """The Iceberg catalog did not answer.

    The address in [catalog] is wrong, credentials are missing, or the service is down. For a SQLite catalog,
    the folder does not exist or cannot be written.

    Nothing was committed by this attempt. Servers go on with the snapshot that they hold.
    """

    code = "catalog-unreachable"
    retryable = True
    _what = "the catalog at {uri} did not answer."
    _state = "the table is as last committed."
    _cause = "{detail}"
    _next = "thermocline status      (after checking [catalog])"

    uri: str
    detail: str

    def __post_init__(self) -> None:
        self.uri, self.detail = mask_password(self.uri), mask_password(self.detail)


class TableMissing(TableError):
    """The catalog has no such table.

    It has not been created yet, it was dropped, or the catalog or the identifier is another one.

    Nothing was written. `thermocline table create` makes it, from its section in the configuration.
    """

    code = "table-missing"
    http_status = 404
    exit_code = ExitCode.USAGE
    _what = "table {table} does not exist: the catalog has no {identifier}."
    _next = "thermocline table create {table}"

    table: str
    identifier: str


class TableExists(TableError):
    """The catalog already has a table of that identifier.

    Creating never replaces one: a table that exists is somebody's data.

    The existing table is untouched. Use it as it is, or choose another identifier.
    """

    code = "table-exists"
    http_status = 409
    exit_code = ExitCode.USAGE
    _what = "the catalog already has a table {identifier}."
    _state = "the existing table is untouched."
    _next = "thermocline table show {table}      (or choose another identifier in [tables.{table}])"

    table: str
    identifier: str


class TableUnowned(TableError):
    """The current snapshot of the table is not one that Thermocline can go on from.

    Every snapshot that Thermocline writes says up to which offsets it contains the log (its seam). This one
    does not, or the table's properties say something else: somebody else wrote to the table, or rolled it
    back. Going on would lose or repeat records, so ingest stops; servers go on from what they hold.

    Nothing was written. Let only Thermocline commit to the table. Set its main branch to the newest snapshot
    that Thermocline wrote (any Iceberg engine can do that; such snapshots have `thermocline.seam` in their
    summary, and writes after it are given up by that), or create a new table.
    """

    code = "table-unowned"
    exit_code = ExitCode.STOPPED
    _what = "table {table} cannot be continued{_from}: {detail}"
    _state = "nothing was written."
    _cause = "another program committed to the table, or it was rolled back."
    _next = (
        "thermocline table show {table}      (shows the current snapshot)\n"
        "then set its main branch to the newest snapshot with a thermocline.seam, or create a new table"
    )

    table: str
    snapshot_id: int  # negative when the table has no snapshot
    detail: str

    @property
    def _from(self) -> str:
        return f" from snapshot {self.snapshot_id}" if self.snapshot_id >= 0 else ""


class CommitRejected(TableError):
    """A commit certainly did not land.

    The catalog refused it, because the table had moved on from the snapshot that the batch was planned on, or
    a check of ours failed before it was published.

    Nothing of the batch is in the table, and its records are still in the log. Run ingest again: it plans a
    new batch from the current seam.
    """

    code = "commit-rejected"
    retryable = True
    _what = "the commit of batch {batch_id} to {table} was rejected."
    _state = "nothing of the batch is in the table; its records are still in the log."
    _cause = "{detail}"
    _next = "thermocline ingest run {table}      (plans again from the seam; safe to repeat)"

    table: str
    batch_id: str
    detail: str


class CommitUnknown(TableError):
    """The catalog did not confirm a commit: it may or may not have landed.

    The connection broke or timed out after the request was sent. It is neither a success nor a failure, so
    all files of the batch are kept: deleting them would destroy rows if the commit did land.

    Rows and seam are written together, so nothing can be lost or doubled. Run ingest again: it starts by
    taking a new epoch, after which the unknown commit can no longer land. It goes on from the seam that the
    table then has: after the batch if that had landed, else with the same records again. Do not delete files
    by hand.
    """

    code = "commit-unknown"
    exit_code = ExitCode.COMMIT_UNKNOWN
    _what = "the catalog did not confirm the commit of batch {batch_id} to {table}."
    _state = "the files of the batch ({ranges}) are kept; nothing was deleted."
    _cause = "it may or may not have landed: {detail}"
    _next = "thermocline ingest run {table}      (goes on from the table's seam; safe to repeat)"

    table: str
    batch_id: str
    ranges: str
    detail: str


class OwnerLost(TableError):
    """Another process owns the table now.

    One process commits to a table. Each that starts takes a new number, the epoch, in a commit of its own,
    and commits of an older epoch are impossible from then on.

    Nothing of this process's last batch is in the table; the new owner reads the same records. If that is not
    what you want, find the other process (`thermocline status` shows the epoch going up) and keep one.
    """

    code = "owner-lost"
    exit_code = ExitCode.NOT_OWNER
    _what = "another process owns table {table} now: its epoch is {epoch_found}, ours was {epoch_ours}."
    _state = "nothing of this process's last batch is in the table; the new owner reads the same records."
    _next = (
        "nothing, if another ingest was started on purpose; otherwise keep one of them: thermocline status"
    )

    table: str
    epoch_ours: int
    epoch_found: int


class EngineFailed(TableError):
    """A job of the processing engine failed.

    Spark reports only the last link of the chain; its log above the error tells more. Often memory, disk or
    the object store ran out.

    The batch was not committed, and its records are still in the log. Run ingest again: it plans from the
    seam.
    """

    code = "engine-failed"
    _what = "a job of {engine} failed."
    _state = "the batch was not committed; its records are still in the log."
    _cause = "{detail}"
    _next = "run the same command again, with --log-level debug if it fails once more"

    engine: str
    detail: str

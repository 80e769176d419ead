"""The Iceberg table, its catalog, and who commits to it."""

from __future__ import annotations

from thermocline.errors import places
from thermocline.errors.root import SAME_COMMAND, ExitCode, Resumable, ThermoclineError
from thermocline.process.masking import mask_password


class TableError(ThermoclineError):
    """The Iceberg table, its catalog or its ownership is not as it must be."""

    http_status = 503
    exit_code = ExitCode.UNAVAILABLE


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


class ForeignSnapshot(Resumable, TableError):
    """The current snapshot of the table is not one that Thermocline can go on from.

    Every snapshot that Thermocline writes says up to which offsets it contains the log (its seam). This one
    does not, or the table's properties say something else: somebody else wrote to the table, or rolled it
    back. Going on would lose or repeat records, so ingest stops; servers go on from what they hold.

    Maintenance is no reason to stop: where all that others committed since are rewrites (Spark's
    `rewrite_data_files`, Trino's `optimize`, rewritten manifests or deletes) and hold the very rows that the
    newest snapshot with a seam holds, `thermocline ingest run` goes on from there by itself. It reads the
    files that went and those that came, and compares every column; where something differs, the error says
    what. Servers follow once it has gone on. Deletes that are bound to no data file are not accepted: a table
    of format version 2 that an older release made needs the property `write.delete.granularity` = `file`
    before another engine rewrites its deletes. Do not expire the newest snapshot with a seam before ingest
    has gone on: without it, nothing can be proved.

    Nothing was written. Let only Thermocline commit to the table. `thermocline ingest rebase`, with the
    current snapshot repeated as its fact and `--onto` (the error prints the whole command), goes on from the
    newest snapshot that carries a seam. What others wrote after it is given up, since nobody can say where in
    the log it belongs; what was read from the log after it is read again. Where nothing can be continued,
    create a new table.
    """

    code = "foreign-snapshot"
    exit_code = ExitCode.STOPPED
    _what = "table {table} cannot be continued{_from}: {detail}"
    _state = "nothing was written."
    _cause = "another program committed to the table, or it was rolled back."
    _next = "{_next_lines}"

    table: str
    snapshot_id: int  # negative when the table has no snapshot
    detail: str
    onto: int = -1  # the newest snapshot that can be continued; negative when there is none
    given_up: tuple[str, ...] = ()  # the ids of the snapshots that come after it

    @property
    def tokens(self) -> tuple[str, ...]:
        """The snapshot that is current: what comes after it is not known to be given up."""
        return (f"current={self.snapshot_id}",)

    @property
    def resume(self) -> str:
        """Going on from the newest snapshot that carries a seam; empty where there is none."""
        if self.onto < 0:
            return ""
        return places.command("rebase", self.table, self.tokens, f"--onto {self.onto}")

    @property
    def _from(self) -> str:
        return f" from snapshot {self.snapshot_id}" if self.snapshot_id >= 0 else ""

    @property
    def _next_lines(self) -> str:
        if not self.resume:
            return f"thermocline table show {self.table}\nthen create a new table"
        return f"{self.resume}\nthis gives up {self._lost}, and reads the log from there"

    @property
    def _lost(self) -> str:
        return f"snapshot {places.some(self.given_up)}" if self.given_up else "nothing"


class DefinitionChanged(TableError):
    """The table's definition was altered while it was ingested.

    Records were read by the old definition, so their batch must not land in a table that has another one.
    Ingest stops before it commits.

    Nothing of the batch is in the table, and its records are still in the log. Run ingest again: it starts
    with the new definition, and reads the same records by it.
    """

    code = "definition-changed"
    exit_code = ExitCode.STOPPED
    _what = "the definition of table {table} was altered: its version is {found} now, not {planned}."
    _state = "nothing of the batch is in the table; its records are still in the log."
    _next = "thermocline ingest run {table}"

    table: str
    planned: int
    found: int


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
    _next = f"{SAME_COMMAND}      (safe to repeat: what it does is planned again)"

    table: str
    batch_id: str
    detail: str


class CommitUnknown(TableError):
    """The catalog did not confirm a commit: it may or may not have landed.

    The connection broke or timed out after the request was sent. It is neither a success nor a failure, so
    all files of the batch are kept: deleting them would destroy rows if the commit did land.

    Rows and seam are written together, so nothing can be lost or doubled. `thermocline ingest reconcile`
    takes a new epoch, after which the commit can no longer land, and looks whether it had. If not, the files
    of the batch are deleted, and its records are read again by the next ingest. `thermocline ingest run` does
    the same at its start. Do not delete files by hand.
    """

    code = "commit-unknown"
    exit_code = ExitCode.COMMIT_UNKNOWN
    _what = "the catalog did not confirm the commit of batch {batch_id} to {table}."
    _state = "the files of the batch ({ranges}) are kept; nothing was deleted."
    _cause = "it may or may not have landed: {detail}"
    _next = "thermocline ingest reconcile {table}      (says whether it landed; safe to repeat)"

    table: str
    batch_id: str
    ranges: str
    detail: str


class OwnerLost(TableError):
    """Another process owns the table now.

    One process commits to a table. Each that starts takes a new number, the epoch, in a commit of its own,
    and commits of an older epoch are impossible from then on.

    Nothing of this process's last batch is in the table; the new owner reads the same records. A process that
    was frozen for longer than its lease (`ingest.lease_seconds`) meets this when it wakes up. If two are run
    on purpose, keep one: `thermocline ingest run` refuses while another lives, and says who that is.
    """

    code = "owner-lost"
    exit_code = ExitCode.NOT_OWNER
    _what = "another process owns table {table} now: its epoch is {epoch_found}, ours was {epoch_ours}."
    _state = "nothing of this process's last batch is in the table; the new owner reads the same records."
    _next = f"{SAME_COMMAND}      (says who owns the table, or goes on where nobody does any more)"

    table: str
    epoch_ours: int
    epoch_found: int


class TableHeld(TableError):
    """Another process holds the table.

    Only one process at a time commits to a table. While it lives it renews a lease, a small file beside the
    table's data (`thermocline/owner.json`) that says who it is; another process must not interfere.

    Nothing was written. Let that process work, or end it: a clean end frees the table at once, and so does a
    crash on the same machine. After a crash elsewhere the table is free once its lease was not renewed for
    the time that it promises (`ingest.lease_seconds`); `thermocline ingest run` waits that long.
    """

    code = "table-held"
    http_status = 409
    exit_code = ExitCode.NOT_OWNER
    _what = "process {pid} on {host} holds table {table} since {since} (last renewed at {renewed})."
    _state = "nothing was written."
    _next = f"{SAME_COMMAND}      (when that process has ended)"

    table: str
    host: str
    pid: int
    since: str
    renewed: str
    epoch: int


class StorageFailed(TableError):
    """A disk or a store failed under the table.

    The store of the table's files did not answer: credentials are missing or do not allow it, or the service
    is down. Or the disk of serving.state_dir, or of the temporary folder of a command, is full or fails. A
    tailer that says so in `thermocline status` stands still: what it holds stays readable and grows old.

    Nothing was lost, and nothing was answered from half of the data: the table and the log are as they were.
    Free the disk, or see that the store answers, and ask again; a server and a running ingest go on by
    themselves. Ingest needs to read, write, list and delete below the table's location.
    """

    code = "storage-failed"
    retryable = True
    _what = "a disk or a store failed under table {table}: {detail}."
    _state = "nothing is lost; the table and the log are as they were."
    _next = f"{SAME_COMMAND}      (when it works again; safe to repeat)"

    table: str
    detail: str


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
    _next = f"{SAME_COMMAND}      (with --log-level debug, if it fails once more)"

    engine: str
    detail: str


class MaintenanceBehind(TableError):
    """The table needs more rewriting than can be done.

    Each commit adds small files and deletes, and rewrites keep them few. What is worth a rewrite would take
    one core more than a day by now, and has not grown less in about an hour, so readers grow slower with each
    commit. Before that, ingest warned in its log (from six hours on), and committed a quarter as often (from
    twelve hours on).

    Nothing is lost: the table is as last committed, and its records wait in the log. `thermocline maintain
    run` does the rewriting, on any machine or Spark cluster; then ingest goes on. To stay ahead, set a longer
    commit_interval_seconds, or run ingest on a larger machine.
    """

    code = "maintenance-behind"
    exit_code = ExitCode.STOPPED
    _what = "table {table} needs {hours} hours of rewriting, more than {max_hours:g}."
    _state = "the table is as last committed; its records wait in the log."
    _next = "thermocline maintain run {table}"

    table: str
    hours: float
    max_hours: float

"""The Iceberg table, its catalog, and who commits to it."""

from __future__ import annotations

from thermocline.errors import places
from thermocline.errors.root import SAME_COMMAND, ExitCode, Listing, Resumable, ThermoclineError
from thermocline.process.masking import mask_password


class TableError(ThermoclineError):
    """The Iceberg table, its catalog or its owner."""

    http_status = 503
    exit_code = ExitCode.UNAVAILABLE


class CatalogUnreachable(TableError):
    """The Iceberg catalog didn't answer.

    The address in [catalog] is wrong, credentials are missing, or the service is down. If the catalog is in
    SQLite, its folder doesn't exist or isn't writable.

    This attempt committed nothing. Servers continue with the snapshot that they hold.
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

    It hasn't been created yet, it was dropped, or the catalog or identifier is wrong.

    Nothing was written. `thermocline table create` creates it from its section in the configuration.
    """

    code = "table-missing"
    http_status = 404
    exit_code = ExitCode.USAGE
    _what = "table {table} does not exist: the catalog has no {identifier}."
    _next = "thermocline table create {table}"

    table: str
    identifier: str


class TableRestricted(TableError):
    """The catalog restricts which rows or columns of the table may be read.

    Iceberg REST catalogs can return row filters and column masks with a table, for whoever asks with these
    credentials. Thermocline reads all of the table's files with the same credentials for everybody, and
    would show what the catalog hides. So such a table is neither served nor written.

    Nothing was read or written. Let the principal of [catalog] read the whole table, and say in the clients
    file which client sees what.
    """

    code = "table-restricted"
    http_status = 503
    exit_code = ExitCode.USAGE
    _what = "the catalog lets us read only a part of table {table} ({identifier}): {detail}."
    _next = "let the principal of [catalog] read the whole table; then: thermocline config check --connect"

    table: str
    identifier: str
    detail: str


class TableExists(TableError):
    """The catalog already has a table with that identifier.

    Creating a table never replaces an existing one.

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


class TableTaken(TableError):
    """A route can't make the table of a value: the catalog has another table by that name.

    A route makes a table for each value that its records have. It takes a table that is there already only
    if it made it for this value itself, with the definition that the route has now, and from early enough
    that no record is missing.

    The existing table is untouched. The records of the value are in the log, and the other tables go on. The
    route tries again every minute: drop or rename the table that is in the way.
    """

    code = "table-taken"
    http_status = 409
    exit_code = ExitCode.USAGE
    _what = "the catalog has another table {identifier}, where {table} would be: {detail}."
    _state = "the existing table is untouched."
    _next = "thermocline table list      (then drop or rename the table that is in the way)"

    table: str
    identifier: str
    detail: str


class SchemaUnusable(TableError):
    """A route can't make the table of a value: its records' schema is not that of a table.

    A route with `columns = "schema"` gives each table the columns of the schema that the first record of its
    value names. That can't be done if no record names a schema that the registry knows, a field of the key is
    of a type that no key can have, or records of such a schema are to be read otherwise than the route says.

    Nothing was written. The records of the value are in the log, and the other tables go on. The route tries
    again every minute, and with each record if none named a known schema yet. Deny the value if it is to have
    no table.
    """

    code = "schema-unusable"
    http_status = 409
    exit_code = ExitCode.USAGE
    _what = "no table {table} can be made of its records' schema: {detail}."
    _state = "nothing was written; its records wait in the log."
    _next = "{remedy}"

    table: str
    detail: str
    remedy: str


class ForeignSnapshot(Resumable, TableError):
    """Thermocline can't continue from the table's current snapshot.

    Each snapshot that Thermocline writes records up to which offsets it contains the log (its seam). This one
    doesn't, or the table's properties disagree: another program wrote to the table, or rolled it back.
    Continuing would lose or repeat records, so ingest stops; servers continue from what they hold.

    Maintenance by other programs is fine: if they committed nothing but rewrites (Spark's
    `rewrite_data_files`, Trino's `optimize`, rewritten manifests or deletes) with exactly the rows of the
    newest snapshot with a seam, `thermocline ingest run` continues from there by itself. It reads the files
    before and after, and compares every column; if anything differs, the error says what. Servers follow once
    ingest has continued. Deletes that aren't bound to one data file are not accepted: a table of format
    version 2 that an older release created needs the property `write.delete.granularity` = `file` before
    another engine rewrites its deletes. Don't expire the newest snapshot with a seam before ingest has
    continued: without it, nothing can be proved.

    Nothing was written. Only Thermocline should commit to the table. `thermocline ingest rebase`, with the
    current snapshot repeated as a fact and `--onto` (the error prints the whole command), continues from the
    newest snapshot that has a seam. It discards what others wrote after it, since their rows have no place in
    the log, and reads the log from there again, and topics that were added since from their start. If
    `thermocline quarantine replay` made a discarded snapshot, its records have left the quarantine, too: have
    the producer send them again. If there is no snapshot with a seam, create a new table.

    A server never goes back to an older snapshot by itself. If the catalog was restored from an older copy on
    purpose, stop each server, delete the table's folder in its serving.state_dir, and start it again.
    """

    code = "foreign-snapshot"
    exit_code = ExitCode.STOPPED
    _what = "ingest of table {table} can't continue{_from}: {detail}"
    _state = "nothing was written."
    _cause = "another program committed to the table, or it was rolled back."
    _next = "{_next_lines}"

    table: str
    snapshot_id: int  # negative when the table has no snapshot
    detail: str
    onto: int = -1  # the newest snapshot that can be continued; negative when there is none
    given_up: tuple[str, ...] = ()  # the ids of the snapshots that come after it
    is_rewrite: bool = False  # by what these say of themselves; not proved yet
    is_served_newer: bool = False  # a server holds a newer one, and never goes back by itself

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
        if self.is_served_newer:
            again = f"stop the server, delete serving.state_dir/{self.table}, and start it again"
            return f"thermocline table show {self.table}\nif its catalog was restored on purpose: {again}"
        if not self.resume:
            return f"thermocline table show {self.table}\nthen create a new table"
        if self.is_rewrite:
            return f"thermocline ingest run {self.table}\nit continues if only files were rewritten"
        return f"{self.resume}\nthis discards {self._lost}, and reads the log from there"

    @property
    def _lost(self) -> str:
        return f"snapshot {places.some(self.given_up)}" if self.given_up else "nothing"


class ForeignSchema(Listing, TableError):
    """Another program changed the columns of the table.

    The definition in the table says which columns there are, by field id, name and type, and data files are
    written and read by it. Another program dropped or renamed a column (`ALTER TABLE`), or changed its type.
    Other engines would not find what Thermocline writes, so ingest stops, and servers continue from what they
    hold.

    Nothing is lost: the data files still have the columns, and the records are in the log. `thermocline table
    alter` gives the table the columns of its definition back. It only changes metadata, and a dropped column
    has its values again. If the change is what you want, make it in the configuration, and `table alter`
    applies it as far as it can (it widens int to long and decimals; it can't drop or rename columns).

    Columns that others add are no hindrance: they are null in every row that Thermocline writes. Neither are
    another order of the columns, comments, identifier fields, or another default partitioning.
    """

    code = "foreign-schema"
    http_status = 503
    exit_code = ExitCode.STOPPED
    _listed = "differences"
    _what = "the columns of table {table} are not those of its definition any more; {_problems}"
    _state = "nothing was read or written; the data files still have all columns."
    _next = "thermocline table alter {table}      (gives the table its columns back)"

    table: str
    differences: tuple[str, ...]


class DefinitionChanged(TableError):
    """The table's definition was altered during ingest.

    The batch was decoded with the old definition, so it must not be committed to the altered table. Ingest
    stops before that.

    Nothing of the batch is in the table, and its records are still in the log. Run ingest again: it starts
    with the new definition, and reads the same records with it.
    """

    code = "definition-changed"
    exit_code = ExitCode.STOPPED
    _what = "the definition of table {table} was altered: it has version {found} now, not {planned}."
    _state = "nothing of the batch is in the table; its records are still in the log."
    _next = "thermocline ingest run {table}"

    table: str
    planned: int
    found: int


class DefinitionNewer(TableError):
    """The table's definition was written by a newer release.

    It has settings that this release doesn't know. To read the table without them could give wrong rows, so
    ingest, servers and commands refuse the table. Other tables go on.

    Nothing was read or written. Upgrade this installation: ingest and all servers before a table uses what is
    new (docs/operate-ingest.md).
    """

    code = "definition-newer"
    exit_code = ExitCode.USAGE
    _what = "the definition of table {table} was written by {_writer}; this is release {running}: {detail}."
    _state = "nothing was read or written."
    _next = "upgrade Thermocline here to {_wanted}, then: thermocline table show {table}"

    table: str
    written_by: str
    running: str
    detail: str

    @property
    def _is_named(self) -> bool:
        return self.written_by not in ("", self.running)

    @property
    def _writer(self) -> str:
        return f"release {self.written_by}" if self._is_named else "a newer release"

    @property
    def _wanted(self) -> str:
        return f"release {self.written_by} or later" if self._is_named else f"a later one than {self.running}"


class CommitRejected(TableError):
    """A commit definitely didn't land.

    The catalog rejected it because the table had moved on from the snapshot that the batch was planned on, or
    one of our own checks failed before it was published.

    Nothing of the batch is in the table, and its records are still in the log. Run ingest again: it plans a
    new batch from the current seam.
    """

    code = "commit-rejected"
    retryable = True
    _what = "the commit of batch {batch_id} to {table} was rejected."
    _state = "nothing of the batch is in the table; its records are still in the log."
    _cause = "{detail}"
    _next = f"{SAME_COMMAND}      (safe to repeat: it plans again)"

    table: str
    batch_id: str
    detail: str


class CommitUnknown(TableError):
    """The catalog didn't confirm a commit: it may or may not have landed.

    The connection broke or timed out after the request was sent. The commit may have landed, so all files of
    the batch are kept: deleting them could destroy rows.

    Rows and seam are written together, so nothing can be lost or doubled. `thermocline ingest reconcile`
    takes a new epoch, after which the commit can no longer land, and checks whether it did. If not, it
    deletes the batch's files, and the next ingest reads its records again. `thermocline ingest run` does the
    same when it starts. Don't delete files by hand.
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

    Only one process commits to a table. Each one takes a new number, the epoch, in a commit of its own when
    it starts; from then on, commits with an older epoch are impossible.

    Nothing of this process's last batch is in the table; the new owner reads the same records. This happens
    to a process that was frozen for longer than its lease (`ingest.lease_seconds`). To have a second process
    take over, start it with `--standby`; without that, `thermocline ingest run` ends while another process
    owns the table, and says which.
    """

    code = "owner-lost"
    exit_code = ExitCode.NOT_OWNER
    _what = "another process owns table {table} now: its epoch is {epoch_found}, ours was {epoch_ours}."
    _state = "nothing of this process's last batch is in the table; the new owner reads the same records."
    _next = f"{SAME_COMMAND}      (says who owns the table, or continues if nobody does)"

    table: str
    epoch_ours: int
    epoch_found: int


class TableHeld(TableError):
    """Another process owns the table and is alive.

    Only one process at a time commits to a table. While it lives it renews a lease, a small file beside the
    table's data (`thermocline/owner.json`) that says who it is.

    Nothing was written. Let that process work, or stop it: a clean stop releases the table at once, and so
    does a crash on the same machine. After a crash on another machine, the table is released once its lease
    has expired (`ingest.lease_seconds`); `thermocline ingest run` waits that long.
    """

    code = "table-held"
    http_status = 409
    exit_code = ExitCode.NOT_OWNER
    _what = "process {pid} on {host} has owned table {table} since {since} (last renewed at {renewed})."
    _state = "nothing was written."
    _next = f"{SAME_COMMAND}      (when that process has ended)"

    table: str
    host: str
    pid: int
    since: str
    renewed: str
    epoch: int


class StorageFailed(TableError):
    """A disk or an object store failed.

    The store of the table's files didn't answer: credentials are missing or insufficient, or the service is
    down. Or the disk of serving.state_dir, or of a command's temporary folder, is full or fails. A tailer
    that reports this in `thermocline status` has paused: what it holds stays readable and grows old.

    Nothing was lost, and no answer was given from partial data: the table and the log are unchanged. Free
    disk space, or restore the store, and ask again; servers and a running ingest recover by themselves.
    Ingest needs permission to read, write, list and delete below the table's location. `table create` tries
    that before it creates anything, and so does `thermocline config check --connect`: correct
    catalog.warehouse or catalog.properties if the store is not the right one.
    """

    code = "storage-failed"
    retryable = True
    _what = "a disk or store of table {table} failed: {detail}."
    _state = "nothing is lost; the table and the log are unchanged."
    _next = f"{SAME_COMMAND}      (when it works again; safe to repeat)"

    table: str
    detail: str


class EngineFailed(TableError):
    """A job of the processing engine failed.

    Spark reports only the last error of a chain; its log above the error says more. Often memory, disk or the
    object store ran out.

    The batch was not committed, and its records are still in the log. Run ingest again: it plans from the
    seam.
    """

    code = "engine-failed"
    _what = "a job of {engine} failed."
    _state = "the batch was not committed; its records are still in the log."
    _cause = "{detail}"
    _next = f"{SAME_COMMAND}      (with --log-level debug if it fails again)"

    engine: str
    detail: str


class MaintenanceBehind(TableError):
    """Maintenance can't keep up with ingest.

    Each commit adds small files and deletes, and rewrites keep their number down. The rewrites that are
    worthwhile now would take one core more than a day, and that has not decreased for about an hour, so reads
    become slower with each commit. Before that, ingest logged a warning (from six hours on), and committed at
    a quarter of the rate (from twelve hours on).

    Nothing is lost: the table is as last committed, and its records are still in the log. Run `thermocline
    maintain run`, on any machine or Spark cluster, then ingest again. To stay ahead, set a longer
    commit_interval_seconds, or run ingest on a larger machine.
    """

    code = "maintenance-behind"
    exit_code = ExitCode.STOPPED
    _what = "table {table} needs {hours} hours of rewrites; the limit is {max_hours:g}."
    _state = "the table is as last committed; its records wait in the log."
    _next = "thermocline maintain run {table}"

    table: str
    hours: float
    max_hours: float

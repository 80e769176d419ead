"""The metrics of ingest and of its table: what an owner read, committed and left behind.

All are set from what the owner holds in memory; none asks the table, the catalog or the log.
"""

from __future__ import annotations

from collections import Counter as Counts
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from prometheus_client import Counter, Gauge, Histogram

from thermocline.ingest.batch.accounting import Accounting
from thermocline.ingest.batch.plan import lag_of
from thermocline.ingest.claim.reconcile import Resolution
from thermocline.ingest.commit.commit import Landed, Outcome, Rejected, Unknown
from thermocline.process.metrics import REGISTRY

if TYPE_CHECKING:
    from thermocline.iceberg.files import DataFile
    from thermocline.ingest.claim.reconcile import Settled
    from thermocline.rules.seam import Seam
    from thermocline.upsert.bucket_task import BucketResult
    from thermocline.upsert.files_by_bucket import FilesByBucket

_TABLE: Final = ("table",)
# From a few records on the local engine to a first batch of many millions.
_RUN_SECONDS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 60.0, 150.0, 600.0)
# From a catalog beside the process to one that answers after every attempt but the last was lost.
_COMMIT_SECONDS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)

_OUTCOMES: Final = {Landed: "landed", Rejected: "rejected", Unknown: "unknown"}
_RECORD_OUTCOMES: Final = tuple(name for name in Accounting().counts() if name != "read")  # their sum

RECORDS: Final = Counter(
    "thermocline_ingest_records",
    "Records of landed batches, by where each one went. The sum over outcome is the number of records read.",
    ("table", "outcome"),
    registry=REGISTRY,
)
COMMITS: Final = Counter(
    "thermocline_ingest_commits",
    "Commits, by outcome: landed, rejected or unknown. An unknown one stops ingest of the table.",
    ("table", "outcome"),
    registry=REGISTRY,
)
RECONCILED: Final = Gauge(
    "thermocline_ingest_reconciled_commits",
    "Unknown commits of earlier owners that this owner found when it took the table, by verdict.",
    ("table", "verdict"),
    registry=REGISTRY,
)
OWNED: Final = Gauge(
    "thermocline_ingest_owned_timestamp_seconds",
    "Unix time at which this process took the table.",
    _TABLE,
    registry=REGISTRY,
)
RUN_SECONDS: Final = Histogram(
    "thermocline_ingest_run_seconds",
    "Time to read, fold and write a batch, in seconds. Landed batches only.",
    _TABLE,
    buckets=_RUN_SECONDS,
    registry=REGISTRY,
)
COMMIT_SECONDS: Final = Histogram(
    "thermocline_ingest_commit_seconds",
    "Time to set a batch's bad records aside and to commit the batch, in seconds. Landed batches only.",
    _TABLE,
    buckets=_COMMIT_SECONDS,
    registry=REGISTRY,
)
INTERVAL_SECONDS: Final = Gauge(
    "thermocline_ingest_commit_interval_seconds",
    "Time between commits, in seconds: the table's commit_interval_seconds setting, multiplied by 4 "
    "while maintenance is far behind. Exported only while the process owns the table.",
    _TABLE,
    registry=REGISTRY,
)
LAST_COMMIT: Final = Gauge(
    "thermocline_ingest_last_commit_timestamp_seconds",
    "Unix time at which a commit last landed, including the one that took the table. Stands still while the "
    "table is idle, or gets no record of its own.",
    _TABLE,
    registry=REGISTRY,
)
LAST_STEP: Final = Gauge(
    "thermocline_ingest_last_step_timestamp_seconds",
    "Unix time at which ingest last finished a step: it landed a batch, or found nothing to commit.",
    _TABLE,
    registry=REGISTRY,
)
LAG_RECORDS: Final = Gauge(
    "thermocline_ingest_lag_records",
    "Offsets that ingest has not read yet, up to the ends of the log as of its last look. The seam may be "
    "further behind: what was read and held nothing for the table is committed later.",
    _TABLE,
    registry=REGISTRY,
)
MERGED_FILES: Final = Counter(
    "thermocline_ingest_merged_files",
    "Data files that left the table because a commit merged them, or because all their rows were deleted.",
    _TABLE,
    registry=REGISTRY,
)
CARRIED_ROWS: Final = Counter(
    "thermocline_ingest_carried_rows",
    "Rows that commits wrote again while merging files.",
    _TABLE,
    registry=REGISTRY,
)
UNREAD_FIELDS: Final = Counter(
    "thermocline_ingest_unread_fields",
    "Values with a field that no column is read from, by the name of the field, in a sample: eight "
    "values of each chunk that is read. Of values with a schema, the fields that it declares, by path.",
    (*_TABLE, "field"),
    registry=REGISTRY,
)
SAMPLED_VALUES: Final = Counter(
    "thermocline_ingest_sampled_values",
    "Values that were looked at for fields that no column is read from: the whole of which "
    "thermocline_ingest_unread_fields_total counts a part.",
    _TABLE,
    registry=REGISTRY,
)
MIRROR_FAILURES: Final = Counter(
    "thermocline_ingest_mirror_failures",
    "Attempts to write the table's seam to the consumer group of ingest.mirror_group that failed. Data and "
    "reads are not affected. Exported only where that is set.",
    _TABLE,
    registry=REGISTRY,
)
LINEAGE_FAILURES: Final = Counter(
    "thermocline_ingest_lineage_failures",
    "Attempts to send lineage events to lineage.url that failed; they are tried again. Data and reads are "
    "not affected. Exported only where that is set.",
    _TABLE,
    registry=REGISTRY,
)
LINEAGE_DROPPED: Final = Counter(
    "thermocline_ingest_lineage_dropped_events",
    "Lineage events that were never sent: they were refused, too many waited, or the owner ended. Exported "
    "only where lineage.url is set.",
    _TABLE,
    registry=REGISTRY,
)
TOPICS_PASSED_OVER: Final = Gauge(
    "thermocline_ingest_topics_passed_over",
    "Topics that match a pattern of the table and are not read: the user may not read them, or they are "
    "compacted and the table needs all records.",
    _TABLE,
    registry=REGISTRY,
)
ROUTE_RECORDS: Final = Counter(
    "thermocline_ingest_route_records",
    "Records that a route's directory read and that have a value, by what became of them: routed to the "
    "table of their value, denied, beyond tables_max, or with a value that can't name a table.",
    (*_TABLE, "outcome"),
    registry=REGISTRY,
)
ROUTE_VALUES: Final = Gauge(
    "thermocline_ingest_route_values",
    "Values that a route's directory knows, by state: with a table, or failed, whose table can't be made. "
    "Exported only for directories.",
    (*_TABLE, "state"),
    registry=REGISTRY,
)
TABLE_FILES: Final = Gauge(
    "thermocline_table_files", "Data files in the table's newest snapshot.", _TABLE, registry=REGISTRY
)
TABLE_BYTES: Final = Gauge(
    "thermocline_table_bytes",
    "Size of the data files in the table's newest snapshot, in bytes.",
    _TABLE,
    registry=REGISTRY,
)
TABLE_ROWS: Final = Gauge(
    "thermocline_table_rows",
    "Live rows in the table, that is, without the deleted ones.",
    _TABLE,
    registry=REGISTRY,
)
TABLE_DEAD_ROWS: Final = Gauge(
    "thermocline_table_dead_rows",
    "Deleted rows that are still in the data files, where every read skips them.",
    _TABLE,
    registry=REGISTRY,
)
TABLE_DELETE_FILES: Final = Gauge(
    "thermocline_table_delete_files",
    "Delete files, which say which rows are deleted.",
    _TABLE,
    registry=REGISTRY,
)
BUCKET_FILES_MAX: Final = Gauge(
    "thermocline_table_bucket_files_max",
    "Data files in the bucket that has the most.",
    _TABLE,
    registry=REGISTRY,
)
DEAD_RATIO_MAX: Final = Gauge(
    "thermocline_table_dead_ratio_max",
    "Share (0 to 1) of dead rows among all rows in a bucket's files, for the worst bucket.",
    _TABLE,
    registry=REGISTRY,
)
_GAUGES: Final = tuple(metric for metric in globals().values() if isinstance(metric, Gauge))


def opened(
    table: str, interval_seconds: float, settled: Sequence[Settled], files: FilesByBucket, at_ms: int
) -> None:
    """An owner took the table at that time, and settled these commits of owners before."""
    commits_expected(table, interval_seconds)
    LAST_COMMIT.labels(table).set(at_ms / 1000)
    OWNED.labels(table).set(at_ms / 1000)
    LAST_STEP.labels(table).set(at_ms / 1000)
    TOPICS_PASSED_OVER.labels(table).set(0)
    found = Counts(one.verdict for one in settled)
    for verdict in Resolution:
        RECONCILED.labels(table, verdict.value).set(found[verdict])
    for outcome in _OUTCOMES.values():
        COMMITS.labels(table, outcome)  # from 0 on, so that Prometheus sees the first one as a change
    for outcome in _RECORD_OUTCOMES:
        RECORDS.labels(table, outcome)
    measure_table(table, files)


def routed(table: str, outcomes: Mapping[str, int]) -> None:
    """A batch of a directory landed, with so many records of each outcome."""
    for outcome in ("routed", "denied", "beyond", "unusable"):
        count = outcomes.get(outcome, 0) + (outcomes.get("new", 0) if outcome == "routed" else 0)
        ROUTE_RECORDS.labels(table, outcome).inc(count)


def route_known(table: str, with_table: int, failed: int) -> None:
    """A directory knows so many values by now."""
    ROUTE_VALUES.labels(table, "table").set(with_table)
    ROUTE_VALUES.labels(table, "failed").set(failed)


def commits_expected(table: str, interval_seconds: float) -> None:
    """From now on, a table that changes has a commit in each interval of that length."""
    INTERVAL_SECONDS.labels(table).set(interval_seconds)


def closed(table: str) -> None:
    """Nobody in this process owns the table any more: its gauges go, as they would say for ever what was."""
    for gauge in _GAUGES:
        gauge.remove_by_labels({"table": table})


def looked(table: str, seam: Seam, ends: Seam) -> None:
    """The log ends there, and the table there."""
    LAG_RECORDS.labels(table).set(lag_of(seam, ends))


def stepped(table: str, seam: Seam, ends: Seam, at_ms: int) -> None:
    """A step is done, with a commit that landed or with nothing to commit; ``seam`` is the table's now."""
    looked(table, seam, ends)
    LAST_STEP.labels(table).set(at_ms / 1000)


def counted(table: str, outcome: Outcome, at_ms: int) -> Outcome:
    """The same outcome, counted."""
    COMMITS.labels(table, _OUTCOMES[type(outcome)]).inc()
    if isinstance(outcome, Landed):
        LAST_COMMIT.labels(table).set(at_ms / 1000)
    return outcome


def landed(
    table: str,
    accounting: Accounting,
    buckets: Sequence[BucketResult],
    files: FilesByBucket,
    run_seconds: float,
    commit_seconds: float,
) -> None:
    """A batch landed; ``buckets`` are what its tasks gave, and ``files`` the table's after it."""
    accounted(table, accounting)
    MERGED_FILES.labels(table).inc(sum(len(part.removed) for part in buckets))
    CARRIED_ROWS.labels(table).inc(sum(part.carried for part in buckets))
    RUN_SECONDS.labels(table).observe(run_seconds)
    COMMIT_SECONDS.labels(table).observe(commit_seconds)
    measure_table(table, files)


def accounted(table: str, accounting: Accounting) -> None:
    """A commit that landed says of so many records where they went."""
    counts = accounting.counts()
    for outcome in _RECORD_OUTCOMES:
        RECORDS.labels(table, outcome).inc(counts[outcome])


def measure_table(table: str, files: FilesByBucket) -> None:
    """Sets the gauges of the table's files: 5 ms for 20,000 of them, beside a commit of 60 ms at least."""
    found = [_Bucket(some) for some in files.values()]
    rows, dead_rows = sum(one.rows for one in found), sum(one.dead_rows for one in found)
    TABLE_FILES.labels(table).set(sum(one.files for one in found))
    TABLE_BYTES.labels(table).set(sum(one.bytes for one in found))
    TABLE_ROWS.labels(table).set(rows - dead_rows)
    TABLE_DEAD_ROWS.labels(table).set(dead_rows)
    TABLE_DELETE_FILES.labels(table).set(sum(one.delete_files for one in found))
    BUCKET_FILES_MAX.labels(table).set(max((one.files for one in found), default=0))
    DEAD_RATIO_MAX.labels(table).set(max((one.dead_ratio for one in found), default=0))


class _Bucket:
    """The files of a bucket, counted; ``rows`` has the dead ones too."""

    __slots__ = ("bytes", "dead_rows", "delete_files", "files", "rows")

    def __init__(self, files: Sequence[DataFile]) -> None:
        deletes = [file.deletes for file in files if file.deletes is not None]
        self.files = len(files)
        self.bytes = sum(file.bytes for file in files)
        self.rows = sum(file.rows for file in files)
        self.dead_rows = sum(one.cardinality for one in deletes)
        self.delete_files = len({one.path for one in deletes})

    @property
    def dead_ratio(self) -> float:
        return self.dead_rows / self.rows if self.rows else 0.0

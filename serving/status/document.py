"""The parts of the status document. Times are in milliseconds since 1970; None is not known."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "BadGroupStatus",
    "BadRecordsStatus",
    "BucketStatus",
    "ColumnStatus",
    "CommitBar",
    "CommitStatus",
    "DebtStatus",
    "DefinitionStatus",
    "Details",
    "Disk",
    "Finding",
    "Freshness",
    "IngestStatus",
    "LeaseStatus",
    "Level",
    "OwnerStatus",
    "PartitionStatus",
    "RecordsStatus",
    "RefStatus",
    "SchemaCauseStatus",
    "SchemaChangeStatus",
    "ServerStatus",
    "SnapshotStatus",
    "StandbyStatus",
    "TableStatus",
    "UnreadStatus",
    "UpkeepStatus",
    "VersionStatus",
    "ViewStatus",
]

Level = Literal["well", "attention", "trouble"]
Offsets = dict[str, dict[str, int]]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class Finding(_Part):
    """Something to know; ``next`` says what to do, with commands in backticks."""

    level: Level
    text: str
    next: str = ""


class Freshness(_Part):
    """How old answers are. ``minutes`` are the greatest ages of each minute of the last hour in order."""

    age_seconds: float | None = None
    stale: bool
    stale_after_seconds: float
    minutes: tuple[float | None, ...] = ()
    minutes_end_ms: int | None = None


class IngestStatus(_Part):
    """What the table has of its log."""

    lag_records: Annotated[
        int | None,
        Field(description="Offsets that wait to be committed, up to the log's end, as far as it was read."),
    ] = None
    lag_seconds: Annotated[
        float | None, Field(description="For how long the oldest record waits; null before it was looked at.")
    ] = None
    headroom_seconds: Annotated[
        float | None,
        Field(description="Until the broker drops records that are not committed yet, if ingest stays away."),
    ] = None
    interval_seconds: float | None = None
    last_commit_ms: int | None = None
    last_commit_seconds: float | None = None
    next_commit_ms: Annotated[
        int | None, Field(description="When a commit is due; null while no record waits for one.")
    ] = None


class StandbyStatus(_Part):
    """A process that waits to take the table over once its owner ends. Its times are ISO 8601."""

    host: str
    pid: int
    since: str
    renewed: str


class OwnerStatus(_Part):
    """The process that may commit to the table, or was the last one. Its times are ISO 8601."""

    host: str
    pid: int
    epoch: int
    since: str
    renewed: str
    lease_seconds: float
    ended: str = ""
    stopped_by: str = ""
    stopped_because: str = ""
    is_gone: bool
    standby: StandbyStatus | None = None


class RecordsStatus(_Part):
    """Bad records: quarantined in the table's life and over the last day, refused since the seam."""

    quarantined: int | None = None
    quarantined_of_day: int = 0
    read_of_day: int = 0
    refused: int | None = None
    refused_more: bool = False


class DebtStatus(_Part):
    """What reads of the table's files cost beyond its rows."""

    files: int
    bytes: int
    rows: int
    dead_rows: int
    delete_files: int = 0
    rewrite_bytes: Annotated[int, Field(description="Of the data files that have dead rows.")] = 0
    rewrite_seconds: Annotated[
        float | None,
        Field(description="To rewrite these, at the rate of the newest rewrites; null while there was none."),
    ] = None
    worst_dead_share: Annotated[float, Field(description="Of the bucket with the greatest share.")]
    worst_files: Annotated[int, Field(description="Of the bucket with the most data files.")]
    buckets: int
    bad_buckets: int


class SnapshotStatus(_Part):
    """The snapshot that is served."""

    snapshot_id: str
    timestamp_ms: int
    watermark_ms: int
    files: int
    rows: int
    definition_version: int


class PartitionStatus(_Part):
    """One partition of the log."""

    topic: str
    partition: int
    log_start: int | None = None
    seam: int
    end: int
    lag_records: int


class CommitBar(_Part):
    """What was committed in a quarter of an hour, which begins then."""

    begins_ms: int
    commits: int
    records: int
    deleted_rows: int
    quarantined: int
    rewrites: int
    seconds_max: float


class CommitStatus(_Part):
    """One snapshot; ``seconds`` is how long its batch took."""

    snapshot_id: str
    at_ms: int
    kind: str
    records: int
    deleted_rows: int
    quarantined: int
    seconds: float | None = None


class BucketStatus(_Part):
    """The files of one bucket; ``rows`` are those alive."""

    bucket: int
    files: int
    bytes: int
    rows: int
    dead_rows: int
    delete_files: int = 0
    rewrite_bytes: Annotated[int, Field(description="Of its data files that have dead rows.")] = 0
    is_bad: bool


class UpkeepStatus(_Part):
    """When the table was last tended, and what waits to be deleted."""

    rewritten_ms: int | None = None
    expired_ms: int | None = None
    waiting_snapshots: int = 0
    waiting_bytes: int = 0
    orphans: int = 0
    orphan_bytes: int = 0
    as_of_ms: Annotated[int | None, Field(description="Null until somebody has looked.")] = None


class LeaseStatus(_Part):
    """Somebody who needs snapshots: a published view, or a long read."""

    kind: Literal["view", "reader"]
    holder: str
    snapshots: Annotated[dict[str, int], Field(description="By id, until when each is needed.")]


class ViewStatus(_Part):
    """A view in Trino, as its publisher left it."""

    view: str
    mode: str
    state: Annotated[
        Literal["now", "newest", "older", "ended", "withdrawn"],
        Field(description="Whether it answers as of now or of the newest snapshot, and why not."),
    ]
    snapshot_id: str | None = None
    ends_ms: int | None = None
    reason: Annotated[str, Field(description="Why it is withdrawn.")] = ""


class RefStatus(_Part):
    """A branch or tag of the table."""

    name: str
    kind: str
    snapshot_id: str


class ColumnStatus(_Part):
    """A column; ``role`` says whether it is of the entity, of the rest of the key, or neither."""

    name: str
    type: str
    role: Literal["entity", "key", "none"]


class VersionStatus(_Part):
    """From when on the table had a version of its definition, and what that changed, as far as is known."""

    version: int
    since_ms: int
    snapshot_id: str = ""
    changes: tuple[str, ...] = ()


class SchemaCauseStatus(_Part):
    """What made the table change: a schema of its writers; or, without a ``record``, a sample of values."""

    columns: Annotated[tuple[str, ...], Field(description="Those that it changed.")]
    record: Annotated[str, Field(description="The first that named the schema: TOPIC/PARTITION@OFFSET.")] = ""
    part: Annotated[str, Field(description="Whether it named it in its key or its value.")] = ""
    schema_id: Annotated[str, Field(description="As records name it.")] = ""
    named: Annotated[str, Field(description="What the registry calls it.")] = ""


class SchemaChangeStatus(_Part):
    """A change that the table took up by its contract, and why; ``version`` is that of its definition."""

    version: int
    at_ms: int
    changes: tuple[str, ...]
    causes: tuple[SchemaCauseStatus, ...]


class UnreadStatus(_Part):
    """Fields that no column is read from, in a sample of the values that ingest read; of JSON alone."""

    since_ms: Annotated[int | None, Field(description="Since when values are counted; two days at most.")]
    values: Annotated[int, Field(description="How many values were looked at.")]
    fields: Annotated[
        dict[str, int],
        Field(description="By name, in how many of these values a field is. Some names, the frequent first."),
    ]
    others: Annotated[int, Field(description="How often fields of further names were met.")]


class DefinitionStatus(_Part):
    """What the table is."""

    identifier: str
    topics: tuple[str, ...]
    version: int
    format_version: int | None = None
    buckets: int
    columns: tuple[ColumnStatus, ...]
    versions: tuple[VersionStatus, ...] = ()
    schema_change: Annotated[
        SchemaChangeStatus | None,
        Field(description="The last change by the table's contract; null where none is known."),
    ] = None
    accepted: tuple[dict[str, Any], ...] = ()
    unread_fields: tuple[str, ...] = ()
    unread: Annotated[
        UnreadStatus | None, Field(description="Null until ingest of this release has sampled values.")
    ] = None


class BadGroupStatus(_Part):
    """Records that are bad in the same way. ``first_ms`` and ``last_ms`` are times of the records."""

    where: Annotated[
        Literal["quarantine", "refused"],
        Field(description="Whether they are in quarantine, or newer than the last commit."),
    ]
    stage: str
    code: Annotated[str, Field(description="What is wrong, without anything that the records have.")]
    means: Annotated[str, Field(description="The same in words.")]
    column: str | None = None
    records: int
    first_ms: int | None = None
    last_ms: int | None = None
    example: Annotated[str, Field(description="Where the newest stands: TOPIC/PARTITION@OFFSET.")]
    reason: Annotated[
        str | None,
        Field(
            description="Its own reason, which may quote it; null for a caller who may neither look up nor "
            "extract the whole table."
        ),
    ] = None


class BadRecordsStatus(_Part):
    """The newest bad records, in groups; in the order of the newest of each.

    ``looked_at`` of those in quarantine are in the groups, up to a bound; ``is_all`` says whether there are
    no others. ``refused_more`` says that more are refused than are in the groups. ``as_of_ms`` is null until
    the quarantine has been looked at, and ``problem`` is why it could not be.
    """

    groups: tuple[BadGroupStatus, ...] = ()
    more_groups: int = 0
    looked_at: int = 0
    is_all: bool = True
    refused_more: bool = False
    as_of_ms: int | None = None
    problem: str = ""


class Details(_Part):
    """What is told of a table that is asked for by its name."""

    partitions: tuple[PartitionStatus, ...] = ()
    bars: Annotated[tuple[CommitBar, ...], Field(description="Of the last day, oldest first.")] = ()
    commits: Annotated[tuple[CommitStatus, ...], Field(description="The newest first.")] = ()
    buckets: tuple[BucketStatus, ...] = ()
    upkeep: UpkeepStatus
    views: tuple[ViewStatus, ...] = ()
    views_at_ms: Annotated[int | None, Field(description="When their publisher last noted them.")] = None
    leases: tuple[LeaseStatus, ...] = ()
    refs: tuple[RefStatus, ...] = ()
    snapshots: int | None = None
    bad_records: BadRecordsStatus = BadRecordsStatus()
    definition: DefinitionStatus


class TableStatus(_Part):
    """One table. ``verdict`` is the worst of the ``findings``.

    ``tailer`` is what its tailer says of itself. The parts after ``problem`` are there once it can be read.
    """

    model_config = ConfigDict(frozen=True, extra="allow")  # whatever else the table says of itself

    ready: bool
    tailer: dict[str, Any]
    worker_pid: int
    problem: str = ""
    read_point: dict[str, Any] = {}
    age_seconds: float | None = None
    stale: bool = True
    snapshot: SnapshotStatus | None = None
    verdict: Finding
    findings: tuple[Finding, ...] = ()
    freshness: Freshness
    ingest: IngestStatus
    owner: OwnerStatus | None = None
    records: RecordsStatus
    debt: DebtStatus | None = None
    details: Details | None = None


class Disk(_Part):
    """The disk of serving.state_dir: with less than ``kept_bytes`` of it free, tailers pause."""

    path: str = ""
    free_bytes: int = 0
    kept_bytes: int = 0
    used_bytes_max: int = 0


class ServerStatus(_Part):
    """For each table that the caller operates, how fresh it is, what is wrong and what to do next.

    ``disk`` and ``problems`` are the server's own, for those who operate all of its tables.
    """

    tables: dict[str, TableStatus]
    not_operated: Annotated[
        tuple[str, ...],
        Field(description="Tables of which the caller may read something, without the verb admin."),
    ] = ()
    disk: Disk
    problems: tuple[str, ...] = ()
    as_of_ms: int
    version: str

"""Open a catalog and a table, and read what a snapshot of ours says of itself."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pyiceberg.catalog import Catalog
from pyiceberg.catalog import load_catalog as load_pyiceberg_catalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError, NotInstalledError, RESTError
from pyiceberg.table.snapshots import Operation
from requests import RequestException
from sqlalchemy.exc import SQLAlchemyError

from thermocline import __version__
from thermocline.errors import (
    CatalogUnreachable,
    ConfigInvalid,
    DefinitionNewer,
    DependencyMissing,
    ForeignSnapshot,
    StorageFailed,
    TableMissing,
    TableRestricted,
    first_line,
)
from thermocline.failpoints import failpoint
from thermocline.iceberg.catalog_properties import pyiceberg_properties, sqlite_path
from thermocline.rules.definition import LiveTable, unknown_settings
from thermocline.rules.partition_time import PartitionTimes
from thermocline.rules.seam import Seam, unpacked

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from thermocline.settings import CatalogSettings, Settings

# Table properties.
DEFINITION_PROPERTY = "thermocline.definition"
RELEASE_PROPERTY = "thermocline.release"  # which wrote the definition
EPOCH_PROPERTY = "thermocline.epoch"
SEAM_PROPERTY = "thermocline.seam"
BATCH_PROPERTY = "thermocline.batch-id"
ACCEPTED_PROPERTY = "thermocline.accepted"
UNREAD_PROPERTY = "thermocline.unread-fields"  # JSON: names of fields of values that no column is read from
UNREAD_COUNTS_PROPERTY = (
    "thermocline.unread-counts"  # JSON: in how many of the sampled values; `UnreadCounts`
)
CONTRACT_SAMPLE_PROPERTY = (
    "thermocline.contract-sample"  # JSON: fields of JSON without a column; `SampledFields`
)
TOMBSTONES_PROPERTY = "thermocline.tombstones-since-ms"  # JSON, by topic
LEFT_PROPERTY = "thermocline.topics-left"  # JSON, by topic: the id, and its part of the seam
DELETED_PROPERTY = "thermocline.topics-deleted-unread"  # a seam: the ends that such topics were seen to have
ROUTED_PROPERTY = "thermocline.routed"  # of a route's directory: JSON, packed where long; `Directory`
HELD_PROPERTY = "thermocline.topics-held-back"  # JSON: those with open transactions when all was held

# Of `LEFT_PROPERTY`, some 100 bytes for a topic: a season of daily topics.
LEFT_TOPICS_MAX = 100

# Of `ACCEPTED_PROPERTY`, which is copied into each metadata file; beyond, the oldest entries are dropped.
# One of a topic with a thousand partitions takes some 60 kB.
ACCEPTED_ENTRIES_MAX = 100
ACCEPTED_BYTES_MAX = 256 << 10

QUARANTINE_SUFFIX = "_quarantine"
"""Of a companion table's name in the catalog."""

# Snapshot summary fields.
SUMMARY_SEAM = "thermocline.seam"
SUMMARY_EPOCH = "thermocline.epoch"
SUMMARY_BATCH = "thermocline.batch-id"
SUMMARY_CLUSTER = "thermocline.cluster-id"
SUMMARY_TOPIC_IDS = "thermocline.topic-ids"
SUMMARY_DEFINITION_VERSION = "thermocline.definition-version"
SUMMARY_WATERMARK = "thermocline.watermark-ms"
SUMMARY_DRAINED = "thermocline.drained-ms"
SUMMARY_PARTITION_TIMES = "thermocline.partition-times-ms"
SUMMARY_SCHEMA_CAUSE = "thermocline.schema-cause"  # JSON: why a table took up changes by itself
SUMMARY_TOPICS_ADDED = "thermocline.topics-added"
SUMMARY_TOPICS_LEFT = "thermocline.topics-left"
SUMMARY_ACCEPTED = "thermocline.accepted"
SUMMARY_REPLAYED = "thermocline.replayed"
SUMMARY_TAKEN_IN = "thermocline.taken-in"
TAKEN_IN_PROPERTY = "thermocline.taken-in"
"""Of a table that has, or had, rows of another source than its topics: what the last were taken from."""
SUMMARY_TAKEN_OVER = "thermocline.taken-over"
SUMMARY_CARRIED = "thermocline.carried-rows"
SUMMARY_BEGAN = "thermocline.began-ms"
SUMMARY_RECORDS = "thermocline.records-"
SUMMARY_RECORDS_TOTAL = "thermocline.total-records-"
SUMMARY_BAD_DIGEST = "thermocline.total-bad-digest"

_NO_SEAM = "the snapshot carries no seam: another writer made it"
NO_SNAPSHOT = "the table has no snapshot"
ROLLED_BACK = "the table was rolled back to it after more had been committed"

# What the catalogs of PyIceberg raise where they can't be asked.
_CATALOG_ERRORS = (SQLAlchemyError, OSError, RESTError)
_FIRST_TABLE = "`thermocline table create NAME` makes it with the first table"


def quarantine_identifier(identifier: str) -> str:
    """The name of a table's companion table in the catalog, which holds its bad records."""
    return f"{identifier}{QUARANTINE_SUFFIX}"


@dataclass(frozen=True, slots=True)
class SnapshotState:
    """What one snapshot of ours carries in its summary.

    ``counts`` are of its batch and ``totals`` over the table's life: read, applied, superseded, unchanged,
    quarantined, skipped, filtered. ``watermark_ms`` is -1 before the first record. ``drained_ms`` is when, by
    ingest's clock, the table last held all that the log held. ``tombstones_since_ms`` is the table's, not the
    snapshot's: by topic, from when on it matters that tombstones are lost. Losing those before was accepted,
    or the table had no row yet. ``bad_digest`` is of all bad records that the table has read
    (`rules.bad_digest`); None in snapshots of earlier releases, which don't say it. ``partition_times`` are
    those at the seam; None in snapshots of releases that decided by each record's own time.
    """

    snapshot_id: int
    seam: Seam
    epoch: int
    batch_id: str
    cluster_id: str
    topic_ids: Mapping[str, str]
    definition_version: int
    watermark_ms: int
    timestamp_ms: int
    counts: Mapping[str, int] = field(default_factory=dict)
    totals: Mapping[str, int] = field(default_factory=dict)
    drained_ms: int = 0
    tombstones_since_ms: Mapping[str, int] = field(default_factory=dict)
    bad_digest: int | None = None
    partition_times: PartitionTimes | None = None

    @property
    def has_read(self) -> bool:
        """Whether the table has ever read a record."""
        return self.totals.get("read") != 0


def open_catalog(settings: CatalogSettings, may_create: bool = False) -> Catalog:
    """The catalog, through PyIceberg.

    An SQLite file that does not exist is an error unless ``may_create``: connecting would make an empty one.
    Raises `CatalogUnreachable` and `DependencyMissing`.
    """
    sqlite = sqlite_path(settings.uri)
    if sqlite is not None:
        _check_sqlite(settings, Path(sqlite), may_create)
    try:
        failpoint("catalog.open")
        return load_pyiceberg_catalog(settings.name, **pyiceberg_properties(settings))
    except NotInstalledError as error:
        if settings.type == "sql" and sqlite is None and find_spec("psycopg") is None:
            # PyIceberg names another driver, which SQLAlchemy does not take for such an address.
            raise DependencyMissing.of_extra("the Python package psycopg", "postgres") from error
        what = f"the Python package for a catalog of type {settings.type}"
        raise DependencyMissing(what_is_missing=what, how_to_get=str(error)) from error
    except (*_CATALOG_ERRORS, ValueError) as error:
        raise _unreachable(settings.uri, error) from error


def load_table(catalog: Catalog, name: str, identifier: str) -> Table:
    """The table as it is now. Raises `TableMissing`, `TableRestricted` and `CatalogUnreachable`."""
    try:
        failpoint("catalog.load")
        return catalog.load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError) as error:
        raise TableMissing(table=name, identifier=identifier) from error
    except TableRestricted as error:  # it knows the table by its address alone
        raise TableRestricted(table=name, identifier=identifier, detail=error.detail) from error
    except _CATALOG_ERRORS as error:
        raise _unreachable(str(catalog.properties.get("uri", "")), error) from error


def open_table(settings: Settings, name: str) -> Table:
    """A table of the configuration as it is now. Raises what `open_catalog` and `load_table` raise."""
    return load_table(open_catalog(settings.catalog), name, settings.table(name).identifier)


def find_table(catalog: Catalog, identifier: str) -> Table | None:
    """The table as it is now; None where the catalog has none. Raises `CatalogUnreachable`."""
    try:
        return load_table(catalog, identifier, identifier)
    except TableMissing:
        return None


def catalog_if_any(settings: CatalogSettings) -> Catalog | None:
    """The catalog; None where it is made with the first table. Raises as `open_catalog` does."""
    sqlite = sqlite_path(settings.uri)
    if sqlite is not None and not Path(sqlite).exists():
        return None
    return open_catalog(settings)


def drop_from(catalog: Catalog, identifier: str) -> None:
    """Take a table out of the catalog, if it is there; its files stay. Raises `CatalogUnreachable`."""
    try:
        catalog.drop_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        return
    except _CATALOG_ERRORS as error:
        raise _unreachable(str(catalog.properties.get("uri", "")), error) from error


@contextmanager
def catalog_errors(catalog: Catalog, name: str) -> Iterator[None]:
    """What a catalog raises that creates something: `CatalogUnreachable`; of its files, `StorageFailed`."""
    try:
        yield
    except _CATALOG_ERRORS as error:
        if isinstance(error, OSError) and not isinstance(error, RequestException):
            raise StorageFailed(table=name, detail=first_line(error)) from error
        raise _unreachable(str(catalog.properties.get("uri", "")), error) from error


def definition_of(table: Table, name: str) -> LiveTable:
    """The definition that the table carries.

    Raises:
        ForeignSnapshot: it carries none.
        DefinitionNewer: a newer release wrote it, and this one can't read it.
        ConfigInvalid: it can't be read.
    """
    text = table.properties.get(DEFINITION_PROPERTY)
    if text is None:
        raise ForeignSnapshot(
            table=name,
            snapshot_id=_snapshot_id(table),
            detail=f"the table has no property {DEFINITION_PROPERTY}: it was not made by `table create`",
        )
    try:
        return LiveTable.from_json(text, name)
    except ConfigInvalid as error:
        written_by, unknown = table.properties.get(RELEASE_PROPERTY, ""), unknown_settings(text)
        if not unknown and _release(written_by) <= _release(__version__):
            raise
        detail = f"it has {', '.join(unknown)}" if unknown else "; ".join(error.problems)
        raise DefinitionNewer(
            table=name, written_by=written_by, running=__version__, detail=detail
        ) from error


def defined_by(definition: LiveTable) -> dict[str, str]:
    """The properties by which a table carries a definition."""
    return {DEFINITION_PROPERTY: definition.to_json(), RELEASE_PROPERTY: __version__}


def _release(version: str) -> tuple[int, ...]:
    """A release as it is compared; nothing at all is less than any."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def current_state(table: Table, name: str) -> SnapshotState:
    """The state of the current snapshot.

    Raises `ForeignSnapshot` when it is not one of ours, or when the table was rolled back to it.
    """
    snapshot = table.current_snapshot()
    if snapshot is None:
        raise ForeignSnapshot(table=name, snapshot_id=-1, detail=NO_SNAPSHOT)
    try:
        state = table_state_of(table, snapshot, name)
    except ForeignSnapshot as foreign:
        raise _foreign(table, name, snapshot, foreign.detail) from None  # safety: beh-foreign
    if is_rolled_back(summary_of(snapshot), table.properties):  # safety: beh-rollback
        raise _foreign(table, name, snapshot, ROLLED_BACK)
    return state


def table_state_of(table: Table, snapshot: Snapshot, name: str) -> SnapshotState:
    """The state that a snapshot carries, with what the table says beside. Raises as `state_of` does."""
    tombstones = json.loads(table.properties.get(TOMBSTONES_PROPERTY, "{}"))
    return replace(state_of(snapshot, name), tombstones_since_ms=tombstones)


def is_rolled_back(summary: Mapping[str, str], properties: Mapping[str, str | None]) -> bool:
    """Whether a snapshot of ours is not that of the newest commit, of which the table's properties tell.

    The seam alone does not say it: a commit may leave it where it was. A missing property says nothing.
    """
    seam, batch = properties.get(SEAM_PROPERTY), properties.get(BATCH_PROPERTY)
    is_other_seam = seam is not None and Seam.from_json(seam) != Seam.from_json(summary[SUMMARY_SEAM])
    # safety: rolled-back-batch
    return is_other_seam or (batch is not None and batch != summary[SUMMARY_BATCH])


def epoch_of(properties: Mapping[str, str | None], name: str) -> int:
    """The epoch of the table's owner. Raises `ForeignSnapshot` when the property is missing or no number."""
    text = properties.get(EPOCH_PROPERTY) or ""
    if not text.isdecimal():
        detail = f"its property {EPOCH_PROPERTY} was removed or changed"
        raise ForeignSnapshot(table=name, snapshot_id=-1, detail=detail)
    return int(text)


def state_of(snapshot: Snapshot, name: str) -> SnapshotState:
    """The state that a snapshot carries. Raises `ForeignSnapshot` when it carries no seam."""
    return state_from(summary_of(snapshot), snapshot.snapshot_id, snapshot.timestamp_ms, name)


def state_from(summary: Mapping[str, str], snapshot_id: int, timestamp_ms: int, name: str) -> SnapshotState:
    """The state that a snapshot's summary says, however it was read.

    Raises `ForeignSnapshot` when it says no seam.
    """
    if not _has_seam(summary):
        raise ForeignSnapshot(table=name, snapshot_id=snapshot_id, detail=_NO_SEAM)
    times = summary.get(SUMMARY_PARTITION_TIMES)
    return SnapshotState(
        snapshot_id=snapshot_id,
        seam=Seam.from_json(summary[SUMMARY_SEAM]),
        epoch=int(summary[SUMMARY_EPOCH]),
        batch_id=summary[SUMMARY_BATCH],
        cluster_id=summary[SUMMARY_CLUSTER],
        topic_ids=json.loads(unpacked(summary[SUMMARY_TOPIC_IDS])),
        definition_version=int(summary[SUMMARY_DEFINITION_VERSION]),
        watermark_ms=int(summary[SUMMARY_WATERMARK]),
        timestamp_ms=timestamp_ms,
        counts=_counts(summary, SUMMARY_RECORDS),
        totals=_counts(summary, SUMMARY_RECORDS_TOTAL),
        # Tables of the first release do not say it: their newest commit stands for it.
        drained_ms=int(summary.get(SUMMARY_DRAINED, timestamp_ms)),
        bad_digest=int(summary[SUMMARY_BAD_DIGEST]) if summary.get(SUMMARY_BAD_DIGEST) else None,
        partition_times=PartitionTimes.from_json(times) if times is not None else None,
    )


def summary_of(snapshot: Snapshot) -> Mapping[str, str]:
    """What a snapshot's summary says beside its operation; nothing where it has none."""
    return snapshot.summary.additional_properties if snapshot.summary else {}


def is_rewrite(snapshot: Snapshot) -> bool:
    """Whether a snapshot says that it changed files and no rows, as compaction does."""
    return snapshot.summary is not None and snapshot.summary.operation == Operation.REPLACE


def ancestors(table: Table) -> Iterator[Snapshot]:
    """The snapshots of main that the table still holds, newest first.

    PyIceberg's own function looks through all snapshots for each of them.
    """
    by_id: dict[int | None, Snapshot] = {one.snapshot_id: one for one in table.snapshots()}
    at = table.current_snapshot()
    while at is not None:
        yield at
        at = by_id.get(at.parent_snapshot_id)


def _check_sqlite(settings: CatalogSettings, path: Path, may_create: bool) -> None:
    if may_create:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _unreachable(settings.uri, error) from error
    elif not path.exists():
        raise CatalogUnreachable(uri=settings.uri, detail=f"the file {path} does not exist; {_FIRST_TABLE}")


def _counts(summary: Mapping[str, str], prefix: str) -> dict[str, int]:
    return {
        name.removeprefix(prefix): int(value) for name, value in summary.items() if name.startswith(prefix)
    }


def _foreign(table: Table, name: str, current: Snapshot, detail: str) -> ForeignSnapshot:
    """With the newest snapshot of main's history that carries a seam, and what comes after it."""
    others: list[Snapshot] = []
    onto = None
    for one in ancestors(table):
        if _has_seam(summary_of(one)):
            onto = one
            break
        others.append(one)
    later = [] if onto is None else [one for one in table.snapshots() if _number(one) > _number(onto)]
    return ForeignSnapshot(
        table=name,
        snapshot_id=current.snapshot_id,
        detail=detail,
        onto=-1 if onto is None else onto.snapshot_id,
        given_up=tuple(str(one.snapshot_id) for one in sorted(later, key=_number)),
        is_rewrite=bool(others) and all(map(is_rewrite, others)),
    )


def _number(snapshot: Snapshot) -> int:
    return snapshot.sequence_number or 0


def _has_seam(summary: Mapping[str, str]) -> bool:
    return SUMMARY_SEAM in summary


def _snapshot_id(table: Table) -> int:
    snapshot = table.current_snapshot()
    return snapshot.snapshot_id if snapshot else -1


def _unreachable(uri: str, error: Exception) -> CatalogUnreachable:
    return CatalogUnreachable(uri=uri, detail=first_line(error))

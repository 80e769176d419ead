"""The registry: every failpoint, where it stands, what happens there, what a real failure there raises."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tests.failpoints.point import Failpoint, Form, Process
from tests.failpoints.real_errors import (
    catalog_away,
    database_away,
    disk_full,
    duckdb_fails,
    engine_failed,
    kafka_away,
    lmdb_fails,
    memory_gone,
    metadata_fails,
    no_answer,
    no_broker_answers,
    store_fails,
    trino_away,
)


def points_of(process: Process) -> tuple[str, ...]:
    """The names of the failpoints that a kind of process comes by."""
    return tuple(point.name for point in POINTS.values() if process in point.processes)


_OWNER: Final = (Process.INGEST,)
_TASK: Final = (Process.TASK,)
_UPKEEP: Final = (Process.UPKEEP,)
_TAILER: Final = (Process.TAILER,)
_TIER: Final = (Process.TAILER, Process.COMMAND)
_READER: Final = (Process.API, Process.COMMAND)
_PUBLISHER: Final = (Process.PUBLISHER,)
_WITH_A_CATALOG: Final = (
    Process.INGEST,
    Process.PUBLISHER,
    Process.TAILER,
    Process.API,
    Process.COMMAND,
)
_P: Final = Form.POINT
_S: Final = Form.STEP

_LISTED: Final = (
    # What all rooms share.
    Failpoint(
        "clock",
        Form.CLOCK,
        "thermocline/process/clock.py",
        "the wall clock is wrong",
        store_fails,
        _WITH_A_CATALOG,
    ),
    Failpoint(
        "catalog.open",
        _P,
        "thermocline/iceberg/catalog.py",
        "before the catalog is opened",
        database_away,
        _WITH_A_CATALOG,
    ),
    Failpoint(
        "catalog.load",
        _P,
        "thermocline/iceberg/catalog.py",
        "before a table's metadata is read",
        database_away,
        _WITH_A_CATALOG,
    ),
    Failpoint(
        "catalog.files",
        _P,
        "thermocline/iceberg/files.py",
        "before a snapshot's manifests are read",
        store_fails,
        (Process.INGEST, Process.TAILER, Process.COMMAND),
    ),
    Failpoint(
        "log.request",
        _P,
        "thermocline/kafka/log.py",
        "before an answer of the brokers is taken",
        no_broker_answers,
        (Process.INGEST, Process.PUBLISHER, Process.TAILER, Process.COMMAND),
    ),
    # Ownership.
    Failpoint("lease.read", _P, "ingest/claim/lease.py", "before the lease is read", store_fails, _OWNER),
    Failpoint("lease.write", _S, "ingest/claim/lease.py", "the lease is written", disk_full, _OWNER),
    Failpoint(
        "ownership.taken",
        _P,
        "ingest/claim/ownership.py",
        "the epoch is raised, and the lease does not say so yet",
        catalog_away,
        _OWNER,
    ),
    # Maintenance, in the order of what happens.
    Failpoint(
        "compact.start", _P, "maintenance/compact.py", "before the files are opened", store_fails, _UPKEEP
    ),
    Failpoint(
        "compact.done",
        _P,
        "maintenance/compact.py",
        "the new files are written, and what is to commit them does not know them yet",
        memory_gone,
        _UPKEEP,
    ),
    Failpoint(
        "landing.commit",
        _P,
        "maintenance/rewriting.py",
        "deletes that were made meanwhile have followed their rows, and nothing is committed",
        store_fails,
        _UPKEEP,
    ),
    Failpoint(
        "expiry.noted",
        _P,
        "maintenance/expiring.py",
        "the snapshots are noted, and the metadata still has them",
        store_fails,
        _UPKEEP,
    ),
    Failpoint(
        "sweep.known",
        _P,
        "maintenance/sweep.py",
        "what may go is known, and all is there",
        store_fails,
        _UPKEEP,
    ),
    Failpoint(
        "sweep.deleted",
        _P,
        "maintenance/sweep.py",
        "some files are deleted, and the note does not say so",
        store_fails,
        _UPKEEP,
    ),
    Failpoint(
        "orphans.listed",
        _P,
        "maintenance/orphans.py",
        "the files are listed, and what the metadata names is not known yet",
        store_fails,
        _UPKEEP,
    ),
    # A batch, in the order of what happens.
    Failpoint(
        "owner.plan", _P, "ingest/owner/scans.py", "before the log is asked what there is", kafka_away, _OWNER
    ),
    Failpoint(
        "read-task.chunk",
        _P,
        "ingest/batch/read_task.py",
        "in the middle of reading: records were taken, and are not decoded yet",
        kafka_away,
        _TASK,
    ),
    Failpoint(
        "quarantine.write-file",
        _S,
        "ingest/quarantine.py",
        "a file of bad records is written",
        disk_full,
        (Process.TASK, Process.INGEST),
    ),
    Failpoint(
        "bucket-task.probe",
        _P,
        "thermocline/upsert/bucket_task.py",
        "before the rows that a batch replaces are looked for",
        store_fails,
        _TASK,
    ),
    Failpoint(
        "deletes.write",
        _S,
        "thermocline/iceberg/deletes.py",
        "a bucket's deletes are written",
        disk_full,
        _TASK,
    ),
    Failpoint(
        "data-file.write", _S, "thermocline/iceberg/data_file.py", "a data file is written", disk_full, _TASK
    ),
    Failpoint(
        "bucket-task.done",
        _P,
        "thermocline/upsert/bucket_task.py",
        "a bucket's files are written, and what is to commit them does not know them yet",
        memory_gone,
        _TASK,
    ),
    Failpoint(
        "batch.gathered",
        _P,
        "ingest/batch/batch.py",
        "all files of a batch are written, and nothing is checked yet",
        engine_failed,
        _OWNER,
    ),
    Failpoint(
        "owner.check",
        _P,
        "ingest/owner/table_batch.py",
        "before the log is compared again with what was read of it",
        kafka_away,
        _OWNER,
    ),
    Failpoint(
        "dead-letters.send",
        _S,
        "thermocline/kafka/dead_letters.py",
        "bad records go to the dead-letter topic",
        kafka_away,
        _OWNER,
    ),
    Failpoint(
        "quarantine.keep",
        _S,
        "ingest/quarantine.py",
        "files of bad records become part of their table",
        database_away,
        _OWNER,
    ),
    # The commit.
    Failpoint(
        "commit.refresh",
        _P,
        "ingest/commit/commit.py",
        "before a commit reads what it starts from",
        metadata_fails,
        _OWNER,
    ),
    Failpoint(
        "commit.build",
        _S,
        "ingest/commit/commit.py",
        "manifests and metadata are made, unpublished",
        metadata_fails,
        _OWNER,
    ),
    Failpoint(
        "commit.publish", _S, "ingest/commit/commit.py", "the metadata pointer is swapped", no_answer, _OWNER
    ),
    Failpoint(
        "commit.look",
        _P,
        "ingest/commit/commit.py",
        "before a commit whose answer was lost is looked for",
        metadata_fails,
        _OWNER,
    ),
    Failpoint("commit.note", _S, "ingest/commit/unknown.py", "an unknown commit is noted", disk_full, _OWNER),
    Failpoint(
        "owner.landed",
        _P,
        "ingest/owner/table_batch.py",
        "a commit landed, and its owner still goes by the snapshot before it",
        kafka_away,
        _OWNER,
    ),
    Failpoint(
        "owner.clean-up",
        _P,
        "thermocline/iceberg/files.py",
        "before a file that no table knows is deleted",
        store_fails,
        (Process.INGEST, Process.TASK),
    ),
    Failpoint(
        "owner.reload",
        _P,
        "ingest/owner/owner.py",
        "before an owner reads its table again",
        catalog_away,
        _OWNER,
    ),
    # Unknown commits.
    Failpoint(
        "settle.delete",
        _S,
        "ingest/claim/reconcile.py",
        "a file of a commit that did not land goes",
        store_fails,
        _OWNER,
    ),
    Failpoint(
        "settle.forget",
        _S,
        "ingest/commit/unknown.py",
        "the note of a settled commit goes",
        store_fails,
        _OWNER,
    ),
    # Commands that commit.
    Failpoint(
        "alter.commit",
        _P,
        "ingest/table/alter.py",
        "before an altered definition is committed",
        kafka_away,
        _OWNER,
    ),
    Failpoint(
        "resume.commit",
        _P,
        "ingest/table/resume.py",
        "before an accepted loss is committed",
        kafka_away,
        _OWNER,
    ),
    Failpoint(
        "replay.commit",
        _P,
        "ingest/replay/replay.py",
        "replayed records' files are written, and not committed",
        kafka_away,
        _OWNER,
    ),
    Failpoint(
        "replay.remove",
        _S,
        "ingest/quarantine.py",
        "replayed records are taken out of the quarantine",
        database_away,
        _OWNER,
    ),
    # The views, of which a publication replaces several.
    Failpoint(
        "views.look",
        _P,
        "views/publish.py",
        "before a publication looks at the views and at the table",
        trino_away,
        _PUBLISHER,
    ),
    Failpoint(
        "views.lease",
        _S,
        "views/leases.py",
        "it is written which snapshot a view reads, before the view is replaced",
        disk_full,
        _PUBLISHER,
    ),
    Failpoint("views.replace", _S, "views/publish.py", "a view is replaced", trino_away, _PUBLISHER),
    # The tailer and its hot tier.
    Failpoint(
        "tailer.check",
        _P,
        "serving/tail/tailer.py",
        "before the log is compared with the table",
        kafka_away,
        _TAILER,
    ),
    Failpoint(
        "tailer.poll", _S, "serving/tail/tailer.py", "records are taken from the log", kafka_away, _TAILER
    ),
    Failpoint(
        "tailer.status",
        _P,
        "serving/tail/tailer_status.py",
        "before the tailer says how it is",
        disk_full,
        _TAILER,
    ),
    Failpoint(
        "hot.open",
        _P,
        "serving/hot/tier_folder.py",
        "before the generations of an earlier tailer are opened",
        lmdb_fails,
        _TAILER,
    ),
    Failpoint(
        "hot.append",
        _P,
        "serving/hot/generation.py",
        "in the middle of an append: records are written, positions are not",
        lmdb_fails,
        _TIER,
    ),
    Failpoint(
        "hot.roll",
        _P,
        "serving/hot/tier.py",
        "a new generation is made, and not listed yet",
        lmdb_fails,
        _TIER,
    ),
    Failpoint(
        "hot.publish",
        _S,
        "serving/hot/tier.py",
        "the active generation names a manifest, which is written after that",
        disk_full,
        _TIER,
    ),
    Failpoint("hot.evict", _P, "serving/hot/tier.py", "before old generations go", lmdb_fails, _TAILER),
    Failpoint("hot.merge", _P, "serving/hot/merge.py", "before each step of a merge", lmdb_fails, _TAILER),
    Failpoint(
        "hot.sweep", _P, "serving/hot/tier.py", "before a file that is not listed goes", store_fails, _TAILER
    ),
    Failpoint(
        "hot.leases",
        _P,
        "serving/hot/leases.py",
        "before the leases of readers are read",
        store_fails,
        _TIER,
    ),
    # The follower and its cold index.
    Failpoint(
        "follower.look",
        _P,
        "serving/tail/follower.py",
        "before the catalog is asked for a snapshot",
        catalog_away,
        _TAILER,
    ),
    Failpoint(
        "cold.index-file",
        _P,
        "serving/cold/folder.py",
        "between the two files that index a data file",
        disk_full,
        _TIER,
    ),
    Failpoint(
        "cold.publish",
        _S,
        "serving/cold/folder.py",
        "the index of a snapshot becomes the newest",
        disk_full,
        _TIER,
    ),
    Failpoint(
        "cold.remove", _P, "serving/cold/folder.py", "before files that no index names go", store_fails, _TIER
    ),
    # Readers.
    Failpoint(
        "reader.refresh",
        _P,
        "serving/read/lookup.py",
        "before a reader looks for a newer snapshot",
        store_fails,
        _READER,
    ),
    Failpoint(
        "reader.switch",
        _P,
        "serving/read/lookup.py",
        "a newer snapshot is ready, and answers are still given from the one before",
        store_fails,
        _READER,
    ),
    Failpoint(
        "reader.lease", _S, "serving/hot/leases.py", "a lease of the hot tier is written", disk_full, _READER
    ),
    Failpoint(
        "reader.view",
        _P,
        "serving/hot/view.py",
        "before generations are opened to be read",
        lmdb_fails,
        _READER,
    ),
    Failpoint("cold.read", _P, "serving/cold/reader.py", "before a row group is read", store_fails, _READER),
    Failpoint("cold.deletes", _P, "serving/cold/reader.py", "before deletes are read", store_fails, _READER),
    Failpoint(
        "pin.name",
        _P,
        "serving/hot/pinned.py",
        "a pin has opened generations, and its lease does not name them yet",
        disk_full,
        _READER,
    ),
    Failpoint(
        "extract.begin", _P, "serving/read/extract.py", "before an extract's first row", duckdb_fails, _READER
    ),
    Failpoint(
        "extract.bucket",
        _P,
        "serving/read/extract.py",
        "before each bucket of an extract",
        duckdb_fails,
        _READER,
    ),
    Failpoint(
        "snapshot.write",
        _S,
        "thermocline/iceberg/snapshot_writer.py",
        "a manifest of the live catalog, or their list, is written",
        disk_full,
        (Process.LIVE,),
    ),
)

POINTS: Final[Mapping[str, Failpoint]] = {point.name: point for point in _LISTED}
"""By name, in the order of what happens."""

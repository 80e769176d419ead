"""An owner without Kafka and Spark, on a real catalog, for tests of what a commit does."""

from __future__ import annotations

import random
import sqlite3
import uuid
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyroaring import BitMap

from tests.ingest.postgres import Loss
from thermocline.iceberg.catalog import current_state, load_table, open_catalog
from thermocline.iceberg.data_file import write_data_file
from thermocline.iceberg.deletes import read_deletes
from thermocline.iceberg.file_buckets import FileBucket
from thermocline.iceberg.files import DataFile, local_path, plan_files
from thermocline.ingest.batch.accounting import Accounting
from thermocline.ingest.claim.ownership import Claim, Owned
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Committer
from thermocline.ingest.commit.java import JavaCatalog
from thermocline.ingest.commit.java_metadata import JavaMetadata
from thermocline.ingest.table.create import create_java_table
from thermocline.kafka.facts import OffsetRange
from thermocline.process.clock import SystemClock
from thermocline.rules.definition import LiveTable
from thermocline.rules.keys import buckets, encode_table
from thermocline.rules.seam import Seam
from thermocline.settings import Settings, load_settings
from thermocline.upsert.bucket_task import BucketResult, run_bucket_task
from thermocline.upsert.files_by_bucket import by_bucket, with_held

NAME = "profiles"
CONFIG = """\
[kafka]
bootstrap_servers = "127.0.0.1:1" # nothing here asks it

[catalog]
uri = "{uri}"
warehouse = "warehouse"
properties = {{ "jdbc.prepareThreshold" = "0" }} # so that each request for an update says so in plain text

[tables.profiles]
identifier = "app.profiles"
topics = ["profiles"]
key = ["user_id", "key"]
entity = ["user_id"]
buckets = 2

[tables.profiles.columns]
user_id = "string"
key = "string"
value = "string"
"""
Key = tuple[str, str]


class Ingest:
    """An owner without Kafka and Spark: batches of random records, through bucket tasks and the committer."""

    def __init__(self, settings: Settings, jvm: Any, seed: int) -> None:
        print(f"seed {seed}")
        self.settings = settings
        self.jvm = jvm
        self.random = random.Random(seed)
        self.expected: dict[Key, str] = {}
        self.end = 0
        self.held: frozenset[str] = frozenset()
        self.definition = settings.table(NAME).definition(NAME)
        catalog = open_catalog(settings.catalog, may_create=True)
        catalog.create_namespace_if_not_exists("app")
        first = TableChange(Seam({(NAME, 0): 0}), "cluster", {NAME: "topic"}, watermark_ms=-1, drained_ms=0)
        create_java_table(JavaCatalog(jvm, settings.catalog), self.definition, first)
        self.owned: Owned = self._taken()

    def take_over(self) -> Owned:
        """A new owner, as after a crash or a stop of the one before."""
        self.owned.release()
        self.owned = self._taken()
        return self.owned

    def _taken(self) -> Owned:
        claim = Claim.of(self.settings, NAME, SystemClock())
        claim.wait_until_free()
        return claim.take(self.jvm)

    @property
    def planned(self) -> tuple[int, Seam]:
        """What a batch is planned on now."""
        return self.owned.state.snapshot_id, self.owned.state.seam

    def java_table(self) -> Any:
        """The table as another program would load it."""
        return JavaCatalog(self.jvm, self.settings.catalog).load(self.definition.identifier)

    def batch(self) -> tuple[TableChange, dict[Key, str]]:
        """A batch that goes on from the table as it is, its files written, and what the rows are after it."""
        records = []
        after = dict(self.expected)
        first = self.owned.state.seam[NAME, 0]
        for offset in range(first, first + self.random.randrange(1, 20)):
            key = (f"u{self.random.randrange(12)}", f"k{self.random.randrange(4)}")
            value = None if self.random.random() < 0.3 else f"v{offset}-{self.random.random()}"
            records.append((offset, key, value))
            after.pop(key, None) if value is None else after.update({key: value})
        end = records[-1][0] + 1
        files = self.run_tasks(records_of(self.definition, records))
        change = TableChange(
            seam=Seam({(NAME, 0): end}),
            cluster_id="cluster",
            topic_ids={NAME: "topic"},
            watermark_ms=end,
            drained_ms=end,
            accounting=Accounting(
                read=len(records),
                applied=sum(done.applied for done in files),
                superseded=sum(done.superseded for done in files),
                unchanged=sum(done.unchanged for done in files),
            ),
            files=files,
            ranges=str(OffsetRange(NAME, 0, first, end)),
        )
        return change, after

    def files(self) -> tuple[DataFile, ...]:
        """The live files of the snapshot that the next commit is planned on."""
        return plan_files(self.owned.table, self.owned.state.snapshot_id)

    def rewrite(self) -> TableChange:
        """Every bucket's live rows in one file, which is written, in place of all that it has."""
        parts = []
        for bucket, files in by_bucket(self.files()).items():
            rows = pa.concat_tables(self.live_rows(file) for file in files).sort_by("_key")
            path = f"{self.owned.table.location()}/data/bucket={bucket}/{uuid.uuid4()}.parquet"
            part = FileBucket(bucket, self.definition.buckets)
            io = self.owned.table.io
            added = (write_data_file(io, path, self.definition, rows, part),) if len(rows) else ()
            parts.append(BucketResult(bucket, added, removed=tuple(files)))
        return replace(TableChange.carrying_on(self.owned.state), kind="rewrite", files=parts)

    def live_rows(self, file: DataFile) -> pa.Table:
        deleted = read_deletes(self.owned.table.io, file.deletes) if file.deletes else BitMap()
        stored = pq.read_table(local_path(file.path), partitioning=None)
        rows = stored.take(pa.array([at for at in range(file.rows) if at not in deleted], pa.int64()))
        rows = rows.append_column("_tombstone", pa.array([False] * len(rows), pa.bool_()))
        rows = rows.append_column("_key", encode_table(self.definition, rows))
        schema = self.definition.records_schema
        return rows.select(schema.names).cast(schema)

    def run_tasks(self, records: pa.Table) -> list[BucketResult]:
        table, files = self.owned.table, with_held(by_bucket(self.files()), self.held)
        of_bucket = pa.array(buckets(self.definition, records.column(self.definition.bucket_column.name)))
        return [
            run_bucket_task(
                table.io, self.definition, f"{table.location()}/data", bucket, files.get(bucket, ()), part
            )
            for bucket in range(self.definition.buckets)
            if (part := records.filter(pc.equal(of_bucket, bucket))).num_rows
        ]

    def refresh(self) -> None:
        self.owned.table = load_table(open_catalog(self.settings.catalog), NAME, self.definition.identifier)
        self.owned.state = current_state(self.owned.table, NAME)

    def rows(self) -> dict[Key, str]:
        self.refresh()
        rows = self.owned.table.scan().to_arrow().to_pylist()
        by_key = {(row["user_id"], row["key"]): row["value"] for row in rows}
        assert len(by_key) == len(rows), "a key is live twice"
        return by_key

    def files_written(self) -> set[str]:
        folder = Path(local_path(self.owned.table.location()) or "") / "data"
        return {str(path) for path in folder.rglob("*") if path.suffix in (".parquet", ".puffin")}

    def files_ever_in_the_table(self) -> set[str]:
        """Of every snapshot: what time travel reads must not be gone either."""
        self.refresh()
        found = set()
        for snapshot in self.owned.table.snapshots():
            for file in plan_files(self.owned.table, snapshot.snapshot_id):
                found |= {file.path} | ({file.deletes.path} if file.deletes else set())
        return {local_path(path) or path for path in found}


def records_of(definition: LiveTable, records: list[tuple[int, Key, str | None]]) -> pa.Table:
    columns = {
        "user_id": [key[0] for _, key, _ in records],
        "key": [key[1] for _, key, _ in records],
        "value": [value for _, _, value in records],
        "_kafka_topic": [NAME] * len(records),
        "_kafka_partition": [0] * len(records),
        "_kafka_offset": [offset for offset, _, _ in records],
        "_kafka_timestamp": [0] * len(records),
        "_tombstone": [value is None for _, _, value in records],
    }
    schema = definition.records_schema
    nothing = [None] * len(records)  # in columns that an alteration added
    names = [name for name in schema.names if name != "_key"]
    table = pa.table({name: pa.array(columns.get(name, nothing), schema.field(name).type) for name in names})
    return table.append_column("_key", encode_table(definition, table)).cast(schema)


def java_store(committer: Committer) -> JavaMetadata:
    """What a committer commits through; its table can be replaced by one that fails."""
    store = committer._store
    assert isinstance(store, JavaMetadata)
    return store


def settings_of(folder: Path, uri: str, format_version: int = 3) -> Settings:
    config = folder / "thermocline.toml"
    kind = 'type = "rest"\n' if uri.startswith("http") else ""
    text = CONFIG.format(uri=uri).replace("[catalog]\n", f"[catalog]\n{kind}")
    config.write_text(text.replace("buckets = 2\n", f"buckets = 2\nformat_version = {format_version}\n"))
    return load_settings(config)


class SqliteThatLosesAnswers:
    """A committer's table whose catalog carries out one swap, or not, and then fails to answer.

    A late swap is what a request does that was under way for long: the same update, whatever happened since.
    ``lose_race`` fails as if another program had been faster, while in truth the swap is only late.
    """

    def __init__(self, ingest: Ingest, catalog: Path) -> None:
        self._ingest = ingest
        self._catalog = catalog
        self._loss: Loss | None = None
        self._stale: Any = None
        self._late: list[tuple[str, str]] = []
        self.table: Any = None

    def lose_next_commit(self, loss: Loss) -> None:
        store = java_store(self._ingest.owned.committer)
        if store.table is not self:
            self.table, store.table = store.table, self
        self._loss = loss

    def lose_race(self) -> None:
        """The next swap is made when the table is looked at for the attempt after it."""
        self.lose_next_commit(Loss.LATE)
        self._stale = self.table.operations().current()
        self.table.updateProperties().set("somebody", "else").commit()

    def newTransaction(self) -> Any:  # noqa: N802  Java's name
        if self._late:
            self.deliver_late()
        return self.table.newTransaction()

    def operations(self) -> Any:
        return self.table.operations() if self._loss is None else self

    def commit(self, base: Any, metadata: Any) -> None:
        loss, self._loss = self._loss, None
        if loss == Loss.APPLIED:
            self.table.operations().commit(base, metadata)
        elif loss == Loss.LATE:
            path = f"{self.table.location()}/metadata/{uuid.uuid4()}.metadata.json"
            parser = self._ingest.jvm.org.apache.iceberg.TableMetadataParser
            parser.write(metadata, self.table.io().newOutputFile(path))
            self._late.append((base.metadataFileLocation(), path))
        if self._stale is not None:
            self.table.operations().commit(self._stale, metadata)  # which Iceberg refuses by itself
        raise Py4JJavaError("no answer", self._ingest.jvm.java.lang.RuntimeException("connection reset"))

    def deliver_late(self) -> None:
        with closing(sqlite3.connect(self._catalog)) as connection:
            for before, after in self._late:
                connection.execute(
                    "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = ? "
                    "WHERE table_name = 'profiles' AND metadata_location = ?",
                    (after, before, before),
                )
                connection.commit()
        self._late.clear()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)

"""A table and its log in a folder, without Kafka, Spark or a catalog, and what a plain dict says of them.

`World` writes what ingest and the tailer write, through the same shared modules: sorted data files with their
sparse index, deletion vectors, the published cold index, and the hot tier.
"""

from __future__ import annotations

import json
import pickle
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.schema import Schema
from pyroaring import BitMap

from tests.manual_clock import ManualClock
from tests.thermocline import profiles
from thermocline.iceberg import data_file
from thermocline.iceberg.catalog import SnapshotState
from thermocline.iceberg.data_file import WrittenFile, write_data_file
from thermocline.iceberg.deletes import write_deletes
from thermocline.iceberg.files import DataFile
from thermocline.kafka.facts import RecordChunk, TopicRecords
from thermocline.process.clock import Clock, SystemClock
from thermocline.rules.decode import decoder_for, json_row, records_table
from thermocline.rules.definition import KEY, PROVENANCE, TOMBSTONE, DeleteRule, LiveTable
from thermocline.rules.fold import fold
from thermocline.rules.keys import buckets, decode_one
from thermocline.rules.seam import Seam
from thermocline.serving.cold import folder as cold_folder
from thermocline.serving.cold.folder import ColdFolder
from thermocline.serving.cold.manifest import source_of
from thermocline.serving.hot.tier import HotTier
from thermocline.serving.read.tables import ServedTable
from thermocline.upsert.bucket_task import run_bucket_task
from thermocline.upsert.files_by_bucket import after_commit, by_bucket

if TYPE_CHECKING:
    from thermocline.serving.cold.index import ColdIndex
    from thermocline.serving.cold.reader import ColdReader, Entity, Row

TOPIC = "profiles"
PARTITIONS = 3


def rows_of(reader: ColdReader, index: ColdIndex, entity: Entity) -> list[Row]:
    """The entity's rows as values, sorted by key."""
    return [pickle.loads(row) for row in reader.entity_rows(index, entity, pickle.dumps).by_key().values()]


@dataclass
class World:
    """One table. ``logs`` are the records of each partition; the hot tier has all up to ``tailed``.

    Its files are in ``data``, a folder or a place in a store that ``io`` knows.
    """

    folder: Path
    definition: LiveTable
    fields_left: int | None = field(default=None, init=False)
    """How many columns another program left the table; None: all."""
    clock: Clock = field(default_factory=ManualClock)
    io: PyArrowFileIO = field(default_factory=PyArrowFileIO)
    logs: list[list[tuple[bytes, bytes | None, int]]] = field(
        default_factory=lambda: [[] for _ in range(PARTITIONS)]
    )
    seam: Seam = field(default_factory=lambda: Seam.of({TOPIC: dict.fromkeys(range(PARTITIONS), 0)}))
    snapshots: dict[int, tuple[DataFile, ...]] = field(default_factory=dict)
    positions: dict[bytes, tuple[str, int]] = field(default_factory=dict)
    deleted: dict[str, BitMap] = field(default_factory=dict)
    table_uuid: UUID = field(default_factory=uuid4)
    lock: threading.Lock = field(default_factory=threading.Lock)
    altered: tuple[Seam, frozenset[str]] | None = None
    properties: dict[str, str] = field(default_factory=dict)
    data: str = ""
    is_as_ingest: bool = False
    """Whether commits are made by the bucket task, of which ``written`` is what it wrote."""
    written: dict[str, WrittenFile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.hot_folder, self.cold_folder = self.folder / "hot", self.folder / "cold"
        self.folder.mkdir(parents=True)
        self.data = self.data or str(self.folder / "data")
        self.tailed = self.seam
        self.decoder = decoder_for(self.definition)

    @cached_property
    def tier(self) -> HotTier:
        return self.open_tier()

    def open_tier(self, may_continue: bool = True) -> HotTier:
        source = source_of(self.table, self.state)
        return HotTier.open(
            self.hot_folder, self.definition, self.tailed, self.clock, may_continue, source=source
        )

    @property
    def state(self) -> SnapshotState:
        """What the newest snapshot says of itself."""
        return SnapshotState(self.newest, self.seam, 1, "batch", "cluster", {}, self.definition.version, 0, 0)

    @property
    def end(self) -> Seam:
        return Seam.of({TOPIC: {partition: len(log) for partition, log in enumerate(self.logs)}})

    def produce(
        self, key: dict[str, Any], value: dict[str, Any] | None, partition: int = 0, seconds_ago: int = 0
    ) -> None:
        """Appends a record; no value is a tombstone."""
        raw = None if value is None else json.dumps(value).encode()
        timestamp_ms = self.clock.now_ms() + sum(map(len, self.logs)) - 1_000 * seconds_ago
        self.logs[partition].append((json.dumps(key).encode(), raw, timestamp_ms))

    def tail(self) -> None:
        """The hot tier takes in all that was produced."""
        tailed = enumerate(self.logs)
        chunks = [
            self.chunk(partition, self.tailed[(TOPIC, partition)], len(log)) for partition, log in tailed
        ]
        read = TopicRecords.of_each(chunks)
        batch = [(one, self.decoder.decode(one.keys, one.values)) for one in read]
        now = self.clock.monotonic()
        with self.lock:
            self.tier.append(batch, self.end, {(TOPIC, partition): now for partition in range(PARTITIONS)})
        self.tailed = self.end

    def restart_tailer(self, start: Seam, may_continue: bool = True) -> None:
        """The hot tier is given up, since it can't be used from ``start`` on, and begun again there."""
        self.tier.close()
        self.tailed = start
        self.tier = self.open_tier(may_continue)
        assert self.tier.end == start

    def alter(self, definition: LiveTable) -> None:
        """A snapshot without new records that follows another definition; not yet published."""
        self.altered = (self.seam, frozenset(column.name for column in self.definition.columns))
        self.definition = definition
        self.decoder = decoder_for(definition)
        self.snapshots[self.newest + 1] = self.snapshots.get(self.newest, ())

    def commit(self, up_to: Seam | None = None) -> None:
        """A snapshot that contains the log up to a seam, the whole of it by default; not yet published."""
        up_to = up_to or self.end
        tables = [
            self.records_in(self.chunk(p, self.seam[(TOPIC, p)], up_to[(TOPIC, p)]))
            for p in range(PARTITIONS)
        ]
        if self.definition.sequence_by or self.is_as_ingest:
            self.commit_as_ingest(pa.concat_tables(tables))
            self.seam = up_to
            return
        winners = fold(pa.concat_tables(tables)).winners
        if self.definition.partial_updates:
            winners = self._as_replayed(winners, up_to)
        touched = self._delete_old(winners.column(KEY).to_pylist())
        written = self._write_new(winners.filter(pa.compute.invert(winners.column(TOMBSTONE))))
        stem = f"{self.data}/{uuid4().hex}"
        by_file = {path: self.deleted[path] for path in touched}
        deletes = write_deletes(self.io, stem, self.definition.format_version, by_file)
        before = self.snapshots.get(len(self.snapshots), ())
        files = [
            DataFile(f.path, f.bucket, f.rows, f.bytes, deletes.get(f.path, f.deletes))
            for f in [*before, *written]
        ]
        self.snapshots[len(self.snapshots) + 1] = tuple(sorted(files, key=lambda f: (f.bucket, f.path)))
        self.seam = up_to

    def commit_as_ingest(self, records: pa.Table) -> None:
        numbers = buckets(self.definition, records.column(self.definition.bucket_column.name))
        files = by_bucket(self.snapshots.get(self.newest, ()))
        done = [
            run_bucket_task(
                self.io,
                self.definition,
                self.data,
                bucket,
                files.get(bucket, ()),
                records.filter(pa.array(numbers == bucket)),
            )
            for bucket in sorted(set(numbers.tolist()))
        ]
        self.written.update({file.path: file for one in done for file in one.added})
        after = after_commit(files, done, {})
        self.snapshots[self.newest + 1] = tuple(file for some in after.values() for file in some)

    def publish(self, snapshot_id: int | None = None) -> bool:
        """Builds and publishes the cold index of the newest snapshot."""
        state = replace(self.state, snapshot_id=snapshot_id or self.newest)
        return cold_folder.publish(self.cold_folder, self.table, self.definition, state)

    @property
    def published(self) -> ColdFolder:
        """What was published, for one reader."""
        return ColdFolder(self.cold_folder, self.definition.name, lambda: self.io)

    @property
    def newest(self) -> int:
        """The id of the newest snapshot."""
        return len(self.snapshots)

    @property
    def table(self) -> Any:
        """As much of a PyIceberg table as publishing looks at."""
        return SimpleNamespace(
            io=self.io,
            location=lambda: self.data.removesuffix("/data"),
            properties=self.properties,
            metadata=SimpleNamespace(table_uuid=self.table_uuid),
            snapshot_by_id=lambda number: SimpleNamespace(sequence_number=number),
            planned=self.snapshots,
            schema=lambda: Schema(*self.definition.iceberg_schema().fields[: self.fields_left]),
        )

    def rows(self, end: Seam | None = None) -> dict[tuple[Any, ...], dict[str, Any]]:
        """What a plain replay gives: key → row, as JSON would show it.

        What was committed before an alteration has null in the columns that it added.
        """
        end = end or self.end
        if self.definition.sequence_by:
            return self._rows_in_order(end)
        rows: dict[tuple[Any, ...], dict[str, Any]] = {}
        for partition, log in enumerate(self.logs):
            for offset, (raw_key, raw, _) in enumerate(log[: end[(TOPIC, partition)]]):
                key = json.loads(raw_key)
                place = tuple(key[name] for name in self.definition.key)
                if raw is None:
                    rows.pop(place, None)
                else:
                    before = rows.get(place, {}) if self.definition.partial_updates else {}
                    fields = {**before, **json.loads(raw), **key}
                    if self.altered is not None and offset < self.altered[0][(TOPIC, partition)]:
                        fields = {name: fields.get(name) for name in self.altered[1]}
                    rows[place] = {column.name: fields.get(column.name) for column in self.definition.columns}
        return rows

    def _rows_in_order(self, end: Seam) -> dict[tuple[Any, ...], dict[str, Any]]:
        """The same where columns order the records; of equal sequences the later record wins."""
        states: dict[tuple[Any, ...], tuple[Any, dict[str, Any] | None]] = {}
        for partition, log in enumerate(self.logs):
            for raw_key, raw, _ in log[: end[(TOPIC, partition)]]:
                key, fields = json.loads(raw_key), json.loads(raw or b"{}")
                place = tuple(key[name] for name in self.definition.key)
                sequence = [fields[name] for name in self.definition.sequence_by]
                row = {one.name: {**fields, **key}.get(one.name) for one in self.definition.columns}
                if place not in states or sequence >= states[place][0]:
                    states[place] = (sequence, None if fields.get("op") == "D" else row)
        return {place: row for place, (_, row) in states.items() if row is not None}

    def chunk(self, partition: int, first: int, end: int) -> RecordChunk:
        part = self.logs[partition][first:end]
        keys: list[bytes | None] = [key for key, _, _ in part]
        values = [value for _, value, _ in part]
        times = [timestamp_ms for _, _, timestamp_ms in part]
        return RecordChunk(TOPIC, partition, keys, values, list(range(first, end)), times)

    def records_in(self, chunk: RecordChunk) -> pa.Table:
        decoded = self.decoder.decode(chunk.keys, chunk.values)
        assert not decoded.bad, decoded.bad
        return records_table(
            self.definition, decoded, TOPIC, chunk.partition, chunk.offsets, chunk.timestamps_ms
        )

    def _as_replayed(self, winners: pa.Table, up_to: Seam) -> pa.Table:
        """Winners as whole records, with the values that the replay has of their rows."""
        rows = self.rows(up_to)
        keys = [self._shown(key) for key in winners.column(KEY).to_pylist()]
        texts = [json.dumps(dict(zip(self.definition.key, key, strict=True))).encode() for key in keys]
        values = [json.dumps(rows[key]).encode() if key in rows else None for key in keys]
        decoded = self.decoder.decode(texts, values)
        whole = records_table(self.definition, decoded, TOPIC, 0, [0] * len(keys), [0] * len(keys))
        for name in PROVENANCE:
            whole = whole.set_column(whole.schema.get_field_index(name), name, winners.column(name))
        return whole

    def _shown(self, key: bytes) -> tuple[Any, ...]:
        """A key's values as JSON shows them."""
        named = dict(zip(self.definition.key, decode_one(self.definition, key), strict=True))
        return tuple(json.loads(json_row(named)).values())

    def _delete_old(self, keys: Sequence[bytes]) -> set[str]:
        touched = set()
        for key in keys:
            if key in self.positions:
                path, position = self.positions.pop(key)
                self.deleted.setdefault(path, BitMap()).add(position)
                touched.add(path)
        return touched

    def _write_new(self, rows: pa.Table) -> Iterator[DataFile]:
        numbers = buckets(self.definition, rows.column(self.definition.bucket_column.name))
        for bucket in sorted(set(numbers.tolist())):
            part = rows.filter(pa.array(numbers == bucket))
            path = f"{self.data}/bucket={bucket}-{uuid4().hex}.parquet"
            written = write_data_file(self.io, path, self.definition, part)
            for position, key in enumerate(part.column(KEY).to_pylist()):
                self.positions[key] = (path, position)
            yield DataFile(path, bucket, part.num_rows, written.file_bytes)


PROFILES = replace(profiles.PROFILES, buckets=4)
ORDERED = replace(
    PROFILES, sequence_by=("updated_at",), delete_when=DeleteRule.parse({"path": "op", "values": ["D"]})
)


@pytest.fixture
def client_of() -> Callable[..., Any]:
    """Makes clients of apps without a server. Starlette would rather have another HTTP client than ours."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from starlette.testclient import TestClient  # noqa: PLC0415

    return partial(TestClient, raise_server_exceptions=False)


@pytest.fixture
def seed() -> int:
    """Printed when a test fails."""
    number = random.SystemRandom().randrange(1_000_000)
    print(f"seed {number}")
    return number


@pytest.fixture
def new_world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., World]]:
    """Makes worlds whose row groups are small, so that few rows fill several."""
    monkeypatch.setattr(data_file, "ROW_GROUP_ROWS", 8)
    monkeypatch.setattr(
        cold_folder, "plan_files", lambda table, snapshot_id, _name: table.planned[snapshot_id]
    )

    made: list[World] = []

    def make(definition: LiveTable = PROFILES, **more: Any) -> World:
        made.append(World(tmp_path / f"world-{len(made)}", definition, **more))
        return made[-1]

    yield make
    for world in made:
        world.tier.close()


@pytest.fixture
def served(
    new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., tuple[Any, ServedTable]]]:
    """Makes a world, whose tailer seals as soon as a pin asks, and the table as a server has it."""
    monkeypatch.setattr("thermocline.serving.hot.tier.SEAL_SECONDS_MIN", 0.0)
    stop = threading.Event()
    threads: list[threading.Thread] = []
    tables: list[ServedTable] = []

    def make(*arguments: Any, **more: Any) -> tuple[Any, ServedTable]:
        world = new_world(*arguments, **more)
        world.clock = SystemClock()
        world.commit()
        world.publish()
        world.tail()
        (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true}')
        table = ServedTable(
            world.definition, world.folder, world.published, world.clock, 5.0, open_io=lambda: world.io
        )
        table.refresh()
        tables.append(table)

        def seal() -> None:
            while not stop.wait(0.01):
                with world.lock:
                    world.tier.tend(None)

        threads.append(threading.Thread(target=seal))
        threads[-1].start()
        return world, table

    yield make
    stop.set()
    for thread in threads:
        thread.join()
    for table in tables:
        table.close()

"""The engine of an owner without Spark: what it reads it folds in memory, and its files are objects.

A data file is a tuple of `Stored` rows, sorted by key; a file of deletes is a dict from data files' paths to
the positions that are deleted. Reading, decoding, the fold's rule and the driver's checks are the product's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow as pa

from tests.newest import newest
from tests.simulation.kafka import FakeCluster
from tests.simulation.records import (
    CHANGING,
    DEFINITION,
    DEFINITIONS_MAX,
    ENCODED,
    KEPT,
    LOCATION,
    NAME,
    NULL,
    PARTIAL,
    PLAIN,
    Key,
    More,
    Stored,
    bucket_of,
    value_bytes,
)
from tests.simulation.store import FakeIO
from thermocline.errors import EngineFailed, ThermoclineError
from thermocline.iceberg.data_file import WrittenFile
from thermocline.iceberg.files import DataFile, Deletes
from thermocline.ingest.batch.batch import BatchResult, gather_all
from thermocline.ingest.batch.met_schemas import SchemaMeter
from thermocline.ingest.batch.read_task import (
    REPORT_BUCKET,
    KafkaRanges,
    ReadReport,
    ReadTask,
    count_bad,
    reported,
)
from thermocline.ingest.batch.scan import Scan, Share
from thermocline.kafka.facts import OffsetRange, RecordChunk
from thermocline.rules.decode import Decoded, Decoder, decoder_for, records_table
from thermocline.rules.definition import ABSENT, KEY, PARTITION_TIME, PROVENANCE, TOMBSTONE, Column, LiveTable
from thermocline.rules.fold import fold
from thermocline.rules.partition_time import RunningTimes
from thermocline.rules.routing import Condition
from thermocline.upsert.bucket_task import BucketResult
from thermocline.upsert.tiers import files_to_merge

if TYPE_CHECKING:
    from tests.simulation.upkeep import Beside

QUARANTINE_LOCATION = f"{LOCATION}_quarantine"
_names = count()

BadPlace = tuple[str, str, int, int]
"""Topic id, topic, partition and offset of a bad record: what the quarantine knows it by."""


class Read(msgspec.Struct, frozen=True):
    """A decoded record; ``v`` is None for a tombstone, `KEPT` where it has none."""

    key: Key
    v: int | None
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    partition_time_ms: int
    more: More = ()


class FakeEngine:
    """Runs batches for one process. ``is_arrow``: the fold is the one of columns, else the one of hits.

    ``is_merging``: small files go into the one that a batch writes, as `thermocline.upsert.tiers` says.
    ``beside`` runs what is to run beside batches.
    """

    jvm, tasks = None, 2

    def __init__(
        self,
        cluster: FakeCluster,
        edge: Callable[[str], None],
        is_arrow: bool = False,
        is_merging: bool = False,
        beside: Beside | None = None,
    ) -> None:
        self._beside = beside
        self._cluster = cluster
        self._edge = edge
        self._is_merging = is_merging
        self._fold = _folded_in_arrow if is_arrow else _folded

    def run(self, scan: Scan) -> tuple[BatchResult | ThermoclineError, ...]:
        """Read the ranges once; for each share fold and probe every bucket, write its files."""
        assert isinstance(scan.source, KafkaRanges)
        results: list[tuple[int, int, bytes]] = []
        of_bucket: dict[tuple[int, int], list[Read]] = {}
        tasks = [share.task for share in scan.shares]
        try:
            for some in scan.source.splits:
                for number, report in enumerate(self._read(tasks, some, of_bucket)):
                    results.append((number, REPORT_BUCKET, msgspec.msgpack.encode([report])))
            for (number, bucket), records in of_bucket.items():
                share = scan.shares[number]
                done = self._write(bucket, records, share.files.get(bucket, ()), share)
                results.append((number, bucket, msgspec.msgpack.encode(done)))
        except OSError as error:  # as where a worker is killed: what it wrote stays
            raise EngineFailed(engine="Spark", detail=str(error)) from error
        return gather_all(results, scan)

    def start(self, task: Callable[[], Any]) -> Future[Any]:
        """When a step says so; at once where nothing else runs here."""
        if self._beside is not None:
            return self._beside.start(task)
        future: Future[Any] = Future()
        future.set_result(task())
        return future

    def check(self) -> None:
        """It does not end."""

    def stop(self) -> None:
        """Nothing runs between batches."""

    def _read(
        self,
        tasks: Sequence[ReadTask],
        ranges: Sequence[OffsetRange],
        of_bucket: dict[tuple[int, int], list[Read]],
    ) -> list[ReadReport]:
        reports = [ReadReport([]) for _ in tasks]
        bad: list[list[BadPlace]] = [[] for _ in tasks]
        times = [task.partition_times for task in tasks]
        running = [None if one is None else RunningTimes(one) for one in times]
        try:
            for chunk in self._cluster.read_ranges({}, ranges, NAME):
                for number, task in enumerate(tasks):
                    own = chunk.within(task.within) if task.within else chunk
                    if own is None:
                        continue
                    place, times_ms = (own.topic, own.partition), own.timestamps_ms
                    run = running[number]
                    deciding = times_ms if run is None else run.take(place, times_ms).tolist()
                    self._decode(number, task, own, deciding, reports[number], of_bucket, bad[number])
            for report in reports:
                report.covered = [(r.topic, r.partition, r.first, r.end) for r in ranges]
        except ThermoclineError as error:
            for task, report in zip(tasks, reports, strict=True):
                report.error = reported(task, error)
            return reports
        for task, report, some in zip(tasks, reports, bad, strict=True):
            if some:
                path = f"{task.quarantine_location}/data/{next(_names)}"
                io: Any = task.quarantine_io
                io.ask("quarantine write")
                io.objects[path] = tuple(some)
                report.quarantine_files.append(path)
        return reports

    def _decode(
        self,
        number: int,
        task: ReadTask,
        chunk: RecordChunk,
        deciding: Sequence[int],
        report: ReadReport,
        of_bucket: dict[tuple[int, int], list[Read]],
        bad: list[BadPlace],
    ) -> None:
        definition = task.definition
        decoded = _decoder_of(definition).decode(chunk.keys, chunk.values, topic=chunk.topic)
        report.filtered += len(decoded.filtered)
        absent = decoded.absent or [()] * len(decoded.good)
        report.records += len(chunk.offsets)
        report.read_bytes += sum(len(value) for value in chunk.values if value is not None)
        report.took(chunk)
        columns = zip(*(decoded.columns[name] for name in PLAIN), _more(definition, decoded), strict=True)
        rows = zip(decoded.good, columns, decoded.tombstones, absent, strict=True)
        for index, (u, k, v, more), is_tombstone, is_kept in rows:
            place = (chunk.topic, chunk.partition, chunk.offsets[index])
            times = (chunk.timestamps_ms[index], deciding[index])
            read = Read((u, k), None if is_tombstone else KEPT if is_kept else v, *place, *times, more)
            of_bucket.setdefault((number, bucket_of((u, k))), []).append(read)
        if definition.contract.kinds:
            _meter(definition.columns).take(chunk, decoded.ours_of(len(chunk.values)), report.met)
        count_bad(report, chunk, decoded.bad)
        for record in decoded.bad:
            offset = chunk.offsets[record.index]
            bad.append((task.topic_ids[chunk.topic], chunk.topic, chunk.partition, offset))

    def _write(
        self, bucket: int, records: list[Read], files: Sequence[DataFile], share: Share
    ) -> BucketResult:
        folder, io = f"{share.data_location}/bucket={bucket}", cast(FakeIO, share.task.io)
        winners = self._fold(records)
        found = {file.path: _hits(io, file, winners) for file in files}
        was_live = {key for _, hits in found.values() for key in hits}
        stored_v = {
            key: io.objects[path][at].v for path, (_, hits) in found.items() for key, at in hits.items()
        }
        unchanged = {key for key, winner in winners.items() if winner.v is None and key not in was_live}
        deleted: dict[str, frozenset[int]] = {}
        replaced: dict[str, Deletes] = {}
        for file in files:
            before, hits = found[file.path]
            if hits:
                deleted[file.path] = before | frozenset(hits.values())
                if file.deletes is not None:
                    replaced[file.path] = file.deletes
        rows = [
            Stored(
                key,
                stored_v.get(key, NULL) if won.v == KEPT else won.v,
                won.topic,
                won.partition,
                won.offset,
                won.timestamp_ms,
                won.more,
            )
            for key, won in winners.items()
            if won.v is not None
        ]
        removed: list[DataFile] = []
        carried: list[Stored] = []
        if self._is_merging and (rows or deleted):
            gone = {file.path: deleted.get(file.path, found[file.path][0]) for file in files}
            live = {file.path: file.rows - len(gone[file.path]) for file in files}
            removed = files_to_merge(files, live, len(rows))
            for file in removed:
                deleted.pop(file.path, None)
                stored = enumerate(io.objects[file.path])
                carried += [row for at, row in stored if at not in gone[file.path]]
        carried = [_by_columns(row, share.task.definition) for row in carried]
        written = sorted((*rows, *carried), key=lambda row: ENCODED[row.key])
        return BucketResult(
            bucket=bucket,
            added=(self._data_file(io, folder, tuple(written)),) if written else (),
            deletes=self._deletes(io, folder, deleted),
            replaced=replaced,
            applied=len(winners) - len(unchanged),
            superseded=len(records) - len(winners),
            unchanged=len(unchanged),
            keys_in_several_partitions=_in_several_partitions(records),
            removed=tuple(removed),
            carried=len(carried),
        )

    def _deletes(self, io: FakeIO, folder: str, deleted: dict[str, frozenset[int]]) -> dict[str, Deletes]:
        if not deleted:
            return {}
        self._edge("deletes write")
        path = f"{folder}/{next(_names)}.puffin"
        io.objects[path] = deleted
        return {
            of: Deletes(path, "puffin", 4 + place, 1, len(positions), 100)
            for place, (of, positions) in enumerate(deleted.items())
        }

    def _data_file(self, io: FakeIO, folder: str, rows: tuple[Stored, ...]) -> WrittenFile:
        self._edge("data write")
        path = f"{folder}/{next(_names)}.parquet"
        io.objects[path] = rows
        return WrittenFile(path, 1000, len(rows), {}, {}, {})


def _decoder_of(definition: LiveTable) -> Decoder:
    if len(definition.columns) == len(PLAIN):
        return _plain_decoder(definition.partial_updates, definition.where)
    return _decoder_by(definition.columns, definition.where)


@lru_cache
def _plain_decoder(is_partial: bool, where: tuple[Condition, ...]) -> Decoder:
    return decoder_for(replace(PARTIAL if is_partial else DEFINITION, where=where))


@lru_cache(DEFINITIONS_MAX)
def _decoder_by(columns: tuple[Column, ...], where: tuple[Condition, ...]) -> Decoder:
    return decoder_for(replace(CHANGING, columns=columns, where=where))


@lru_cache(DEFINITIONS_MAX)
def _meter(columns: tuple[Column, ...]) -> SchemaMeter:
    return SchemaMeter(replace(CHANGING, columns=columns), None)


def _more(definition: LiveTable, decoded: Decoded) -> Sequence[More]:
    """What the good records have for other columns than the plain ones."""
    if len(definition.columns) == len(PLAIN):
        return [()] * len(decoded.good)
    others = [one for one in definition.columns if one.name not in PLAIN]
    of_column = {one.field_id: decoded.columns[one.name] for one in others}
    return [
        tuple((number, values[at]) for number, values in sorted(of_column.items()) if values[at] is not None)
        for at in range(len(decoded.good))
    ]


def _by_columns(row: Stored, definition: LiveTable) -> Stored:
    """A stored row as it is written again: without columns that the table has no more."""
    if not row.more:
        return row
    ids = {column.field_id for column in definition.columns}
    return row._replace(more=tuple(one for one in row.more if one[0] in ids))


def _hits(io: FakeIO, file: DataFile, winners: Mapping[Key, Read]) -> tuple[frozenset[int], dict[Key, int]]:
    """What was deleted of a file before, and the positions of the winners' live rows."""
    before = deleted_in(io, file)
    rows = io.objects.get(file.path)
    if rows is None:
        raise FileNotFoundError(file.path)
    positions = enumerate(rows)
    return before, {row.key: at for at, row in positions if row.key in winners and at not in before}


def deleted_in(io: FakeIO, file: DataFile) -> frozenset[int]:
    """The deleted positions of a data file. Raises FileNotFoundError."""
    if file.deletes is None:
        return frozenset()
    found = io.objects.get(file.deletes.path)
    if found is None:
        raise FileNotFoundError(file.deletes.path)
    positions: frozenset[int] = found[file.path]
    return positions


def _in_several_partitions(records: list[Read]) -> int:
    places: dict[Key, set[tuple[str, int]]] = {}
    for one in records:
        places.setdefault(one.key, set()).add((one.topic, one.partition))
    return sum(len(of_key) > 1 for of_key in places.values())


def _folded(records: list[Read]) -> dict[Key, Read]:
    by_key: dict[Key, list[Read]] = {}
    for record in records:
        by_key.setdefault(record.key, []).append(record)
    return {key: some[0] if len(some) == 1 else _won(some) for key, some in by_key.items()}


def _won(records: list[Read]) -> Read:
    """The newest one of a key, with the value that its partition's records came to."""
    winner = newest(records)
    if winner.v != KEPT:
        return winner
    place = (winner.topic, winner.partition)
    before = [one for one in records if (one.topic, one.partition) == place and one.v != KEPT]
    if not before:
        return winner
    last = max(before, key=lambda one: one.offset)
    return msgspec.structs.replace(winner, v=NULL if last.v is None else last.v)


def _folded_in_arrow(records: list[Read]) -> dict[Key, Read]:
    """The same by the fold that real bucket tasks use, from the columns that real read tasks make."""
    parts: list[Any] = []
    for record in records:
        value = None if record.v is None else value_bytes(record.v)
        key = f'{{"u":"{record.key[0]}","k":"{record.key[1]}"}}'.encode()
        decoded = _decoder_of(PARTIAL).decode([key], [value])
        place = (record.topic, record.partition, [record.offset], [record.timestamp_ms])
        times_ms = pa.array([record.partition_time_ms], pa.int64())
        parts.append(records_table(PARTIAL, decoded, *place).append_column(PARTITION_TIME, times_ms))
    winners = fold(pa.concat_tables(parts)).winners
    of_place = {(one.topic, one.partition, one.offset): one for one in records}
    places = zip(*(winners.column(name).to_pylist() for name in PROVENANCE[:3]), strict=True)
    found = [of_place[place] for place in places]
    assert winners.column(KEY).to_pylist() == [ENCODED[one.key] for one in found]
    assert winners.column(TOMBSTONE).to_pylist() == [one.v is None for one in found]
    values = [
        KEPT if absent else NULL if v is None else v
        for v, absent in zip(winners.column("v").to_pylist(), winners.column(ABSENT).to_pylist(), strict=True)
    ]
    return {
        one.key: one if one.v is None else msgspec.structs.replace(one, v=v)
        for one, v in zip(found, values, strict=True)
    }

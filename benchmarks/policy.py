"""Which rewrites are worth it: our planner against fixed thresholds, over a simulated day.

Each has the same budget. Nothing is written: files are numbers of rows, in buckets of which it is known in
which file each key is. Batches merge small files as ingest does, whatever the policy. What reads and rewrites
cost is measured on files of ours, once at the start: savings are counted by that, the planner goes by its
own constants.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyroaring import BitMap

from benchmarks._report import report, say
from thermocline.iceberg.data_file import ROW_GROUP_ROWS, write_data_file
from thermocline.iceberg.deletes import read_deletes, write_deletes
from thermocline.iceberg.files import DataFile, local_path
from thermocline.iceberg.rows import live_rows
from thermocline.maintenance.compact import CompactionTask
from thermocline.maintenance.measure import BucketMeasure, FileMeasure, TableMeasure, files_at_best
from thermocline.maintenance.plan import Budget, Costs, Reads, plan_of
from thermocline.rules.definition import LiveTable
from thermocline.rules.keys import encode_table
from thermocline.upsert.tiers import files_to_merge

BUCKETS: Final = 24
KEYS: Final = 200_000
"""In a bucket, of which eight tenths have a row at the start."""
ROW_BYTES: Final = 1_000
"""So that a bucket is larger than a file, and most of it too large for ingest to merge."""
TARGET_BYTES: Final = 128 << 20
STEPS_PER_HOUR: Final = 6
"""Commits."""
ROWS_PER_HOUR: Final = 100_000
"""Half of all rows in a day."""
LOOKUPS_PER_HOUR: Final = 36_000.0
SCANS_PER_HOUR: Final = 2.0
BUDGET_BYTES_PER_HOUR: Final = 400_000_000
"""Twice the table in a day. What a policy leaves of it, it can spend later, for as long as six hours."""
BUDGET_HOURS: Final = 6
SAMPLED: Final = 64
"""Keys of a bucket whose lookups are counted."""
Keys = np.ndarray[tuple[int], np.dtype[np.int64]]
Pick = tuple[int, list[FileMeasure]]
"""A bucket, and the files of it that shall be rewritten."""
Policy = Callable[["Table", float], Iterable[Pick]]
"""What is to be rewritten, first things first; the hour of the day is given."""


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    costs = calibrated(options.seed)
    say(f"  {costs}")
    figures: dict[str, Any] = {"costs": costs.figures(), "hours": options.hours}
    for name in WORKLOADS:
        figures[name] = _compared(name, costs, options)
    figures["at_least_better"] = min(figures[name]["better"] for name in WORKLOADS)
    report("policy", options.seed, figures)


def _compared(workload: str, costs: Prices, options: argparse.Namespace) -> dict[str, Any]:
    """Each policy on one workload: what readers save, and what is rewritten for that."""
    without = _day(workload, costs, lambda *_: (), options)
    figures: dict[str, Any] = {"read_ms_without": round(without.read_ms)}
    for name, make in POLICIES.items():
        day = _day(workload, costs, make(), options)
        figures[name] = day.figures(without.read_ms, costs)
        say(f"  {workload}, {name}: {figures[name]}")
    ours, others = figures["ours"], [figures[name] for name in POLICIES if name != "ours"]
    figures["better"] = round(ours["saved_ms_per_mb"] / max(one["saved_ms_per_mb"] for one in others), 2)
    figures["best_net_of_others_ms"] = max(one["net_ms"] for one in others)
    return figures


@dataclass(slots=True)
class Day:
    """What a day cost."""

    read_ms: float = 0.0
    rewritten_bytes: int = 0
    rewrites: int = 0

    def figures(self, without_ms: float, costs: Prices) -> dict[str, float]:
        """For the line; the net is what readers save, less what the rewrites take."""
        saved = without_ms - self.read_ms
        return {
            "saved_ms": round(saved),
            "net_ms": round(saved - self.rewritten_bytes * costs.rewrite_byte_ms),
            "saved_share": round(saved / without_ms, 3),
            "rewritten_mb": round(self.rewritten_bytes / 1e6),
            "rewrites": self.rewrites,
            "saved_ms_per_mb": round(saved / max(self.rewritten_bytes / 1e6, 1e-9), 2),
        }


def _day(workload: str, costs: Prices, policy: Policy, options: argparse.Namespace) -> Day:
    table, day = Table.fresh(options.seed), Day()
    changes = WORKLOADS[workload](np.random.default_rng(options.seed))
    budget = 0.0
    for step in range(options.hours * STEPS_PER_HOUR):
        for bucket, keys in next(changes).items():
            table.buckets[bucket].upsert(keys)
        budget += BUDGET_BYTES_PER_HOUR / STEPS_PER_HOUR
        budget = min(budget, BUDGET_BYTES_PER_HOUR * BUDGET_HOURS)
        table.budget_bytes = int(budget)
        for number, files in policy(table, step / STEPS_PER_HOUR):
            size = sum(file.bytes for file in files)
            if size <= budget:
                table.buckets[number].rewrite([file.path for file in files])
                budget -= size
                day.rewritten_bytes += size
                day.rewrites += 1
        day.read_ms += table.read_ms(costs) / STEPS_PER_HOUR
    return day


@dataclass(slots=True)
class Stored:
    """A file: its rows, those that are dead, and its least and greatest key."""

    rows: int
    low: int
    high: int
    dead: int = 0
    rewrite: str = ""


@dataclass(slots=True)
class Bucket:
    """In which file each key has its row, or -1."""

    number: int
    place: np.ndarray[tuple[int], np.dtype[np.int32]]
    files: dict[int, Stored] = field(default_factory=dict)
    next_file: int = 0

    def upsert(self, keys: Keys) -> None:
        """A batch: new rows for these keys, in a file that takes the small ones with it."""
        before, counts = np.unique(self.place[keys], return_counts=True)
        for file, count in zip(before.tolist(), counts.tolist(), strict=True):
            if file >= 0:
                self.files[file].dead += count
        self.place[keys] = self.next_file
        listed = [
            DataFile(str(number), self.number, one.rows, _bytes(one)) for number, one in self.files.items()
        ]
        live = {str(number): one.rows - one.dead for number, one in self.files.items()}
        merged = [int(file.path) for file in files_to_merge(listed, live, len(keys))]
        self._write(merged, self.place_of([*merged, self.next_file]), "")

    def rewrite(self, paths: Iterable[str]) -> None:
        """The live rows of these files in files of the target size."""
        chosen = [int(path) for path in paths]
        keys = self.place_of(chosen)
        count = files_at_best(len(keys) * ROW_BYTES, TARGET_BYTES)
        name = f"rewrite {self.next_file}"
        for part in np.array_split(keys, count) if count else []:
            self._write([], part, name)
        for number in chosen:
            del self.files[number]

    def place_of(self, files: Sequence[int]) -> Keys:
        """The keys whose rows are in these files, ascending."""
        wanted = np.zeros(self.next_file + 2, bool)
        wanted[list(files)] = True
        return np.flatnonzero(wanted[self.place])  # -1 is the last, which is no file

    def _write(self, merged: Sequence[int], keys: Keys, rewrite: str) -> None:
        for number in merged:
            del self.files[number]
        if len(keys):
            self.place[keys] = self.next_file
            self.files[self.next_file] = Stored(len(keys), int(keys[0]), int(keys[-1]), rewrite=rewrite)
        self.next_file += 1

    def measure(self) -> BucketMeasure:
        """What a manifest says of it."""
        return BucketMeasure(
            self.number,
            tuple(
                FileMeasure(
                    str(number), one.rows, _bytes(one), one.dead, (one.low,), (one.high,), one.rewrite
                )
                for number, one in self.files.items()
            ),
        )

    def read_ms(self, costs: Prices, lookups: float, scans: float) -> float:
        """What so many reads cost."""
        lows = np.array([one.low for one in self.files.values()])
        highs = np.array([one.high for one in self.files.values()])
        dead = np.array([one.dead for one in self.files.values()])
        size = sum(_bytes(one) for one in self.files.values())
        keys = np.flatnonzero(self.place >= 0)
        sample = keys[:: max(len(keys) // SAMPLED, 1), None]
        depth = float(((lows <= sample) & (sample <= highs)).sum(axis=1).mean())
        scan = len(lows) * costs.open_ms + size * costs.byte_ms
        scan += np.count_nonzero(dead) * costs.open_deletes_ms + dead.sum() * costs.dead_row_ms
        return float(lookups * depth * costs.lookup_file_ms + scans * scan)


def _bytes(file: Stored) -> int:
    return file.rows * ROW_BYTES


@dataclass(slots=True)
class Table:
    """All buckets, and how often each is read."""

    buckets: list[Bucket]
    lookups: Mapping[int, float]
    scans: Mapping[int, float]
    budget_bytes: int = 0

    @classmethod
    def fresh(cls, seed: int) -> Table:
        """Each bucket as a rewrite leaves it; a few are read far more than the others."""
        rng = np.random.default_rng(seed)
        weights = 1 / np.arange(1, BUCKETS + 1)
        shares = rng.permutation(weights / weights.sum()).tolist()
        buckets = []
        for number in range(BUCKETS):
            bucket = Bucket(number, np.full(KEYS, -1, np.int32))
            bucket.place[: KEYS * 8 // 10] = 0
            bucket.files[0], bucket.next_file = Stored(KEYS * 8 // 10, 0, KEYS * 8 // 10 - 1), 1
            bucket.rewrite(["0"])
            buckets.append(bucket)
        lookups = {number: LOOKUPS_PER_HOUR * share for number, share in enumerate(shares)}
        return cls(
            buckets, lookups, {one: BUCKETS * SCANS_PER_HOUR * share for one, share in enumerate(shares)}
        )

    def read_ms(self, costs: Prices) -> float:
        """In an hour."""
        return sum(
            bucket.read_ms(costs, self.lookups[bucket.number], self.scans[bucket.number])
            for bucket in self.buckets
        )

    def measures(self) -> list[BucketMeasure]:
        """Of all buckets."""
        return [bucket.measure() for bucket in self.buckets]


def _uniform(rng: np.random.Generator) -> Iterator[dict[int, Keys]]:
    """Any row is as likely as any other."""
    while True:
        yield _by_bucket(rng.integers(0, BUCKETS * KEYS * 8 // 10, _ROWS_PER_STEP), KEYS * 8 // 10)


def _zipf(rng: np.random.Generator) -> Iterator[dict[int, Keys]]:
    """A few rows change all the time, and most seldom."""
    keys = BUCKETS * KEYS * 8 // 10
    weights = np.cumsum(1 / np.arange(1, keys + 1))
    of_rank = rng.permutation(keys)
    while True:
        ranks = np.searchsorted(weights, rng.random(_ROWS_PER_STEP) * weights[-1])
        yield _by_bucket(of_rank[ranks.clip(max=keys - 1)], KEYS * 8 // 10)


def _local(rng: np.random.Generator) -> Iterator[dict[int, Keys]]:
    """Keys grow with time: a tenth of the rows are new, the others among the newest twentieth."""
    count = _ROWS_PER_STEP // BUCKETS
    ends = np.full(BUCKETS, KEYS * 8 // 10)
    while True:
        changes = {}
        for bucket in range(BUCKETS):
            end = int(ends[bucket])
            ends[bucket] = min(end + count // 10, KEYS)
            recent = rng.integers(end - KEYS // 20, end, count - count // 10)
            changes[bucket] = np.unique(np.concatenate([recent, np.arange(end, ends[bucket])]))
        yield changes


def _bursty(rng: np.random.Generator) -> Iterator[dict[int, Keys]]:
    """Half of the changes come in one hour of six, to a quarter of the buckets; the others are spread."""
    step = 0
    while True:
        keys = rng.integers(0, BUCKETS * KEYS * 8 // 10, _ROWS_PER_STEP * 6 // 10)
        if step // STEPS_PER_HOUR % 6 == 2:
            width = BUCKETS // 4
            first = step // STEPS_PER_HOUR // 6 % 4 * width
            burst = rng.integers(0, width * KEYS * 8 // 10, _ROWS_PER_STEP * 3)
            keys = np.concatenate([keys, burst + first * KEYS * 8 // 10])
        step += 1
        yield _by_bucket(keys, KEYS * 8 // 10)


_ROWS_PER_STEP: Final = ROWS_PER_HOUR // STEPS_PER_HOUR
WORKLOADS: Final = {"uniform": _uniform, "zipf": _zipf, "local": _local, "bursty": _bursty}


def _by_bucket(keys: Keys, keys_per_bucket: int) -> dict[int, Keys]:
    found = np.unique(keys)
    numbers, starts = np.unique(found // keys_per_bucket, return_index=True)
    parts = np.split(found % keys_per_bucket, starts[1:])
    return dict(zip(numbers.tolist(), parts, strict=True))


def _ours() -> Policy:
    """The planner, as ingest asks it: it knows lookups by bucket, and scans of all buckets together."""
    since: dict[int, float] = {}

    def policy(table: Table, hour: float) -> Iterator[Pick]:
        buckets = {one.bucket: one for one in table.measures()}
        measured = TableMeasure(0, buckets, rows_per_hour=ROWS_PER_HOUR)
        waiting = {bucket: hour - begun for bucket, begun in since.items()}
        reads = Reads(SCANS_PER_HOUR, by_bucket=table.lookups)
        plan = plan_of(measured, TARGET_BYTES, reads, Costs(), Budget(bytes=table.budget_bytes), waiting)
        done = {task.bucket for task in plan.tasks}
        worth = {task.bucket for task in plan.wanted} - done
        for bucket in {*since} - worth:
            del since[bucket]
        for bucket in worth:
            since.setdefault(bucket, hour)
        for task in plan.tasks:
            yield task.bucket, list(task.files)

    return policy


def _iceberg() -> Policy:
    """`rewrite_data_files` with its defaults; the buckets with most files to rewrite first.

    Source: BinPackRewriteFilePlanner and SizeBasedFileRewritePlanner of Iceberg 1.11.
    """
    low, high = 0.75 * TARGET_BYTES, 1.8 * TARGET_BYTES

    def chosen(bucket: BucketMeasure) -> list[FileMeasure]:
        files = [f for f in bucket.files if not low <= f.bytes <= high or _dead_share(f) >= 0.3]
        size = sum(file.bytes for file in files)
        is_enough = len(files) >= 5 or (len(files) > 1 and size > TARGET_BYTES)
        is_enough = is_enough or size > high or any(_dead_share(file) >= 0.3 for file in files)
        return files if is_enough else []

    return _by_size_of(chosen, len)


def _amoro() -> Policy:
    """Amoro: fragments, often; files with deletes and undersized ones that fit together; the costliest first.

    Source: CommonPartitionEvaluator of Apache Amoro.
    """
    fragments_since: dict[int, float] = {}

    def policy(table: Table, hour: float) -> Iterator[Pick]:
        picks: list[Pick] = []
        for bucket in table.measures():
            fragments = [file for file in bucket.files if file.bytes <= TARGET_BYTES / 8]
            segments = [file for file in bucket.files if file.bytes > TARGET_BYTES / 8]
            waited = hour - fragments_since.get(bucket.bucket, 0.0)
            files = fragments if len(fragments) >= 12 or (len(fragments) > 1 and waited >= 1) else []
            if files:
                fragments_since[bucket.bucket] = hour
            major = [file for file in segments if _dead_share(file) > 0.1]
            small = sorted((f for f in segments if f.bytes < 0.75 * TARGET_BYTES), key=lambda f: f.bytes)
            fit = len(small) > 1 and small[0].bytes + small[1].bytes <= TARGET_BYTES
            if fit and sum(file.bytes for file in small) >= TARGET_BYTES:
                major += [file for file in small if file not in major]
            if files or major:
                picks.append((bucket.bucket, files + major))
        yield from sorted(picks, key=lambda pick: -sum(file.bytes for file in pick[1]))

    return policy


def _size_only() -> Policy:
    """More than five files below three quarters of the target, as AWS Glue has it."""

    def chosen(bucket: BucketMeasure) -> list[FileMeasure]:
        small = [file for file in bucket.files if file.bytes < 0.75 * TARGET_BYTES]
        return small if len(small) > 5 else []

    return _by_size_of(chosen, len)


def _autocomp() -> Policy:
    """As LinkedIn's AutoComp: by the files that go against the bytes, both from 0 to 1; no threshold.

    Source: AutoComp, SIGMOD 2025 (arXiv 2504.04186). The weights, 0.7 and 0.3, are ours.
    """

    def policy(table: Table, _: float) -> Iterator[Pick]:
        picks = []
        for bucket in table.measures():
            small = [file for file in bucket.files if file.bytes < 0.75 * TARGET_BYTES]
            if len(small) > 1:
                picks.append((bucket.bucket, small))
        gain = _normal([len(files) for _, files in picks])
        cost = _normal([sum(file.bytes for file in files) for _, files in picks])
        scores = [0.7 * a - 0.3 * b for a, b in zip(gain, cost, strict=True)]
        yield from (picks[index] for index in sorted(range(len(picks)), key=lambda index: -scores[index]))

    return policy


def _normal(values: Sequence[float]) -> list[float]:
    if not values:
        return []
    low, high = min(values), max(values)
    return [(value - low) / (high - low) if high > low else 0.0 for value in values]


def _by_size_of(
    chosen: Callable[[BucketMeasure], list[FileMeasure]], weight: Callable[[list[FileMeasure]], float]
) -> Policy:
    def policy(table: Table, _: float) -> Iterator[Pick]:
        picks = [(bucket.bucket, files) for bucket in table.measures() if (files := chosen(bucket))]
        yield from sorted(picks, key=lambda pick: -weight(pick[1]))

    return policy


def _dead_share(file: FileMeasure) -> float:
    return file.dead_rows / file.rows


POLICIES: Final[Mapping[str, Callable[[], Policy]]] = {
    "ours": _ours,
    "iceberg": _iceberg,
    "amoro": _amoro,
    "size_only": _size_only,
    "autocomp": _autocomp,
}


@dataclass(frozen=True, slots=True)
class Prices:
    """Milliseconds, as measured on files of ours on this machine."""

    open_ms: float
    """To open a file and read its first rows."""
    open_deletes_ms: float
    byte_ms: float
    """To read a byte of rows."""
    dead_row_ms: float
    """What a dead row costs a scan beyond its bytes."""
    lookup_file_ms: float
    """To read the rows around a key, of a file whose footer is in memory."""
    rewrite_byte_ms: float
    """To rewrite a file of which a quarter is dead."""

    def figures(self) -> dict[str, float]:
        """For the line."""
        return {name: float(f"{getattr(self, name):.3g}") for name in self.__slots__}


CALIBRATED: Final = LiveTable.build(
    name="t",
    identifier="app.t",
    topics=["t"],
    key=["id"],
    entity=["id"],
    buckets=2,
    columns={"id": "long", "value": "string"},
)
CALIBRATED_ROWS: Final = 20 * ROW_GROUP_ROWS
ROUNDS: Final = 9


def calibrated(seed: int) -> Prices:
    """Measure scans with and without deletes, of small files and of a large one, and lookups."""
    io, rng = PyArrowFileIO(), np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as folder:
        stem = Path(folder).as_uri()
        rows = _rows(rng, CALIBRATED_ROWS)
        large = write_data_file(io, f"{stem}/large.parquet", CALIBRATED, rows)
        small = write_data_file(io, f"{stem}/small.parquet", CALIBRATED, rows.slice(0, 1))
        dead = BitMap(np.sort(rng.permutation(CALIBRATED_ROWS)[: CALIBRATED_ROWS // 4]).astype(np.uint32))
        deletes = write_deletes(io, f"{stem}/d", 3, {large.path: dead, small.path: BitMap([0])})

        def scan(path: str, with_deletes: bool = False) -> float:
            def read() -> None:
                deleted = read_deletes(io, deletes[path]) if with_deletes else None
                for _ in live_rows(io, CALIBRATED, path, deleted):
                    pass

            return _fastest_ms(read)

        open_ms, whole_ms, with_dead_ms = scan(small.path), scan(large.path), scan(large.path, True)
        open_deletes_ms = _fastest_ms(lambda: read_deletes(io, deletes[small.path]))
        footer = pq.read_metadata(local_path(large.path))

        file = DataFile(large.path, 0, large.rows, large.file_bytes, deletes[large.path])
        task = CompactionTask(io, CALIBRATED, stem, stem, 0, (file,), TARGET_BYTES)

        def lookup() -> None:
            group = int(rng.integers(footer.num_row_groups))
            pq.ParquetFile(local_path(large.path), metadata=footer).read_row_group(group, use_threads=False)

        return Prices(
            open_ms,
            open_deletes_ms,
            (whole_ms - open_ms) / (CALIBRATED_ROWS * ROW_BYTES),
            max(with_dead_ms - whole_ms - open_deletes_ms, 0.0) / len(dead),
            _fastest_ms(lookup),
            _fastest_ms(task.run) / (CALIBRATED_ROWS * ROW_BYTES),
        )


def _rows(rng: np.random.Generator, count: int) -> pa.Table:
    """Rows of about `ROW_BYTES`, which hardly can be packed."""
    digits = rng.integers(32, 127, count * ROW_BYTES, np.uint8).tobytes().decode()
    values = [digits[place : place + ROW_BYTES] for place in range(0, len(digits), ROW_BYTES)]
    names = CALIBRATED.records_schema.names
    columns: dict[str, Any] = {
        "id": pa.array(np.arange(count)),
        "value": pa.array(values),
        "_kafka_topic": pa.array(["t"] * count),
        "_kafka_partition": pa.array(np.zeros(count, np.int32)),
        "_kafka_offset": pa.array(np.arange(count)),
        "_kafka_timestamp": pa.array(np.arange(count), pa.timestamp("us", "UTC")),
        "_tombstone": pa.array(np.zeros(count, bool)),
    }
    columns["_key"] = encode_table(CALIBRATED, pa.table({"id": columns["id"]}))
    return pa.table({name: columns[name] for name in names}).cast(CALIBRATED.records_schema)


def _fastest_ms(run: Callable[[], object]) -> float:
    """Of this process alone, in the fastest of some rounds: others on the machine should not count."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        run()
        times.append(time.process_time() - began)
    return 1000 * min(times)


if __name__ == "__main__":
    main()

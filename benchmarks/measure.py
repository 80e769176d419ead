"""A table of very many files, which exist in its metadata alone: what looking at all of them takes."""

from __future__ import annotations

import argparse
import random
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from uuid import UUID

from benchmarks._report import report, say
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.iceberg.data_file import WrittenFile
from thermocline.iceberg.file_buckets import FileBucket
from thermocline.iceberg.files import Deletes, plan_files
from thermocline.ingest.claim.ownership import Claim, Owned
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Landed
from thermocline.ingest.commit.java import JavaCatalog, small_jvm
from thermocline.ingest.table.create import create_java_table
from thermocline.maintenance.manifests import GROUPS_MAX
from thermocline.maintenance.measure import Measurer
from thermocline.maintenance.plan import Costs, Reads, plan_of
from thermocline.process.clock import SystemClock
from thermocline.rules.seam import Seam
from thermocline.settings import Settings, load_settings
from thermocline.upsert.bucket_task import BucketResult

NAME: Final = "profiles"
CONFIG: Final = """
[kafka]
bootstrap_servers = "127.0.0.1:1" # nothing here asks it

[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"

[tables.profiles]
identifier = "app.profiles"
topics = ["profiles"]
key = ["app_id", "user_id", "key"]
entity = ["app_id", "user_id"]
buckets = {buckets}

[tables.profiles.columns]
app_id = "int"
user_id = "string"
key = "string"
value = "string"
updated_at = "timestamptz"
"""
FILE_ROWS: Final = 1_000_000
FILE_BYTES: Final = 100 << 20
# In one commit: its description passes to Java as one document.
FILES_AT_ONCE: Final = 5_000


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--buckets", type=int, default=256)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "thermocline.toml"
        config.write_text(CONFIG.format(buckets=options.buckets))
        settings = load_settings(config)
        with small_jvm(settings.catalog) as jvm:
            table = Listed(settings, jvm, random.Random(options.seed), options.buckets)
            try:
                table.fill(options.files)
                figures = _figures(table)
            finally:
                table.owned.release()
    report("measure", options.seed, {"files": options.files, "buckets": options.buckets, **figures})


class Listed:
    """A table whose manifests list files that are nowhere, half of them with deletes."""

    def __init__(self, settings: Settings, jvm: Any, chance: random.Random, buckets: int) -> None:
        self.settings = settings
        self.definition = settings.table(NAME).definition(NAME)
        self._chance, self._buckets = chance, buckets
        open_catalog(settings.catalog, may_create=True).create_namespace_if_not_exists("app")
        first = TableChange(Seam({(NAME, 0): 0}), "cluster", {NAME: "topic"}, watermark_ms=-1, drained_ms=0)
        create_java_table(JavaCatalog(jvm, settings.catalog), self.definition, first)
        claim = Claim.of(settings, NAME, SystemClock())
        claim.wait_until_free()
        self.owned: Owned = claim.take(jvm)
        self.snapshot_id = self.owned.state.snapshot_id

    def fill(self, files: int) -> None:
        """So many files, evenly in all buckets."""
        for start in range(0, files, FILES_AT_ONCE):
            some = range(start, min(start + FILES_AT_ONCE, files))
            by_bucket: dict[int, list[WrittenFile]] = {}
            for number in some:
                by_bucket.setdefault(number % self._buckets, []).append(self._file(number % self._buckets))
            self.commit([self._part(bucket, added) for bucket, added in by_bucket.items()])
            say(f"  {some.stop:,} files")

    def batch(self) -> float:
        """A commit of one file to each bucket; how many seconds it took."""
        began = time.perf_counter()
        self.commit([self._part(bucket, [self._file(bucket)]) for bucket in range(self._buckets)])
        return time.perf_counter() - began

    def order_manifests(self) -> float:
        """Put those of a bucket together, as maintenance does; how many seconds it took."""
        began = time.perf_counter()
        together = -(-self._buckets // GROUPS_MAX)
        self.commit((), kind="manifests", buckets_together={"data": together, "deletes": together})
        return time.perf_counter() - began

    def commit(self, parts: Sequence[BucketResult], **more: Any) -> None:
        """As the owner."""
        change = replace(TableChange.carrying_on(self.owned.state), files=parts, **more)
        done = self.owned.committer.commit(self.snapshot_id, self.owned.state.seam, change)
        assert isinstance(done, Landed), done
        self.snapshot_id = done.snapshot_id

    def _part(self, bucket: int, added: Sequence[WrittenFile]) -> BucketResult:
        path = self._path(bucket, "puffin")
        deletes = {
            file.path: Deletes(path, "puffin", 4 + 1_000 * place, 1_000, 500, 1_000 * len(added))
            for place, file in enumerate(added)
            if place % 2 == 0
        }
        return BucketResult(bucket, tuple(added), deletes, parts={file.path: file.part for file in added})

    def _file(self, bucket: int) -> WrittenFile:
        fields = self.definition.iceberg_schema().fields
        user = self._chance.randrange(10**6)
        bounds = {
            1: (b"\x01\0\0\0", b"\x01\0\0\0"),
            2: (f"user-{user:09}".encode(), f"user-{user + 1_000:09}".encode()),
            3: (b"first key", b"last key"),
        }
        lower = {field_id: low for field_id, (low, _) in bounds.items()}
        upper = {field_id: high for field_id, (_, high) in bounds.items()}
        nulls = {field.field_id: 0 for field in fields}
        part = FileBucket(bucket, self._buckets)
        return WrittenFile(self._path(bucket, "parquet"), FILE_BYTES, FILE_ROWS, nulls, lower, upper, part)

    def _path(self, bucket: int, ending: str) -> str:
        name = UUID(int=self._chance.getrandbits(128))
        return f"{self.owned.table.location()}/data/bucket={bucket}/{name}.{ending}"


def _figures(table: Listed) -> dict[str, float]:
    def loaded() -> Any:
        return load_table(open_catalog(table.settings.catalog), NAME, "app.profiles")

    def measured(measurer: Measurer) -> tuple[float, float, Any]:
        """Seconds, CPU seconds, and what was found."""
        snapshot = loaded()
        began, cpu_began = time.perf_counter(), time.process_time()
        found = measurer.measure(snapshot, SystemClock().now_ms())
        return time.perf_counter() - began, time.process_time() - cpu_began, found

    measurer = Measurer(table.definition)
    cold_seconds, cold_cpu_seconds, _ = measured(measurer)
    commit_seconds = table.batch()
    again_seconds, again_cpu_seconds, found = measured(measurer)
    began = time.perf_counter()
    plan_of(found, FILE_BYTES, Reads(), Costs())
    plan_seconds = time.perf_counter() - began
    began = time.perf_counter()
    plan_files(loaded(), table.snapshot_id)
    list_seconds = time.perf_counter() - began
    del measurer, found
    order_seconds = table.order_manifests()
    return {
        "measure_cold_seconds": round(cold_seconds, 3),
        "measure_cold_cpu_seconds": round(cold_cpu_seconds, 3),
        "measure_again_cpu_seconds": round(again_cpu_seconds, 3),
        "measure_again_seconds": round(again_seconds, 3),
        "plan_seconds": round(plan_seconds, 3),
        "list_files_seconds": round(list_seconds, 3),
        "commit_seconds": round(commit_seconds, 3),
        "order_manifests_seconds": round(order_seconds, 3),
        **_memory(table.definition, loaded()),
    }


def _memory(definition: Any, snapshot: Any) -> dict[str, float]:
    """By Python's own account, which takes several times as long as the measuring alone."""
    measurer = Measurer(definition)
    tracemalloc.start()
    found = measurer.measure(snapshot, SystemClock().now_ms())
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return {
        "metadata_mb": round(found.metadata_bytes / 1e6, 1),
        "manifests": found.manifests,
        "held_mb": round(held / 1e6, 1),
        "peak_mb": round(peak / 1e6, 1),
    }


if __name__ == "__main__":
    main()

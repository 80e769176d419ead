"""Ingest without Spark: the owner as it is, on a small JVM, with its tasks run in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ingest.create
import ingest.owner
import ingest.ownership
from ingest.batch import BatchResult, _packed, _writer, gather
from ingest.files_by_bucket import FilesByBucket
from ingest.java import small_jvm
from ingest.read_task import PACKED_SCHEMA, ReadTask, run_read_task
from thermocline.kafka.log import OffsetRange
from thermocline.settings import CatalogSettings


@dataclass(slots=True)
class LocalEngine:
    """Runs the tasks of a batch one after the other, in place of `ingest.engine.SparkEngine`."""

    session: Any
    task: ReadTask

    @property
    def tasks(self) -> int:
        return 2

    def run(
        self, tasks: Sequence[Sequence[OffsetRange]], files: FilesByBucket, data_location: str
    ) -> BatchResult:
        read = [batch for ranges in tasks for batch in run_read_task(self.task, ranges)]
        packed = pa.Table.from_batches(read, schema=PACKED_SCHEMA)
        write = _writer(self.task, data_location, _packed(files))
        results = []
        for bucket in packed.column("bucket").unique():
            done = write((bucket,), packed.filter(pc.equal(packed.column("bucket"), bucket)))
            results.append((bucket.as_py(), done.column("result")[0].as_py()))
        return gather(results, [planned for ranges in tasks for planned in ranges], self.task.io)

    def stop(self) -> None:
        pass


@contextmanager
def without_spark(settings: CatalogSettings) -> Iterator[Any]:
    """Within the block, owners and commands share one small JVM, which it gives."""
    with small_jvm(settings) as jvm, in_place_of_spark(jvm):
        yield jvm


@contextmanager
def in_place_of_spark(jvm: Any) -> Iterator[None]:
    """Within the block, owners and commands share this small JVM."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ingest.owner, "start_spark", lambda _settings, _name: None)
        patch.setattr(ingest.owner, "stop_spark", lambda _session: None)
        patch.setattr(ingest.owner, "java_view", lambda _session: jvm)
        patch.setattr(ingest.owner, "SparkEngine", LocalEngine)
        for room in (ingest.ownership, ingest.create):
            patch.setattr(room, "small_jvm", lambda _settings: nullcontext(jvm))
        yield

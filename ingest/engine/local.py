"""The engine that runs the tasks of a batch in this process, one after the other: for small tables."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from thermocline.errors import EngineFailed, ThermoclineError
from thermocline.ingest import activity
from thermocline.ingest.batch.batch import BatchResult, encoded_files, gather, writer
from thermocline.ingest.batch.read_task import PACKED_SCHEMA, REPORT_BUCKET, ReadTask, run_read_task
from thermocline.ingest.commit.java import JAVA_ERRORS, first_line, small_jvm
from thermocline.ingest.engine.background import BackgroundProcess

if TYPE_CHECKING:
    from thermocline.ingest.batch.source import Source
    from thermocline.settings import CatalogSettings
    from thermocline.upsert.files_by_bucket import FilesByBucket

T = TypeVar("T")


class LocalEngine:
    """No Spark: a small JVM commits. A batch is in memory whole, within the bounds of a batch."""

    tasks = 1

    def __init__(self, settings: CatalogSettings) -> None:
        self._until_stopped = ExitStack()
        self.jvm: Any = self._until_stopped.enter_context(small_jvm(settings))
        self._background = BackgroundProcess()
        self._until_stopped.callback(self._background.stop)

    def run(
        self,
        task: ReadTask,
        source: Source,
        files: FilesByBucket,
        data_location: str,
    ) -> BatchResult:
        """See `ingest.engine.engine.Engine`."""
        activity.step("read", source.records)
        try:
            read = [batch for part in range(source.parts) for batch in run_read_task(task, source, part)]
            packed = pa.Table.from_batches(read, schema=PACKED_SCHEMA)
            encoded = encoded_files(files)
            write = writer(task, data_location, lambda: encoded)
            results: list[tuple[int, bytes]] = []
            of_buckets = packed.column("bucket").unique()
            activity.step("probe and write", len(of_buckets) - 1)  # the report has one of its own
            for bucket in of_buckets:
                done = write((bucket,), packed.filter(pc.equal(packed.column("bucket"), bucket)))
                # Not by the bucket that was asked for: what failed is told as a report.
                results += zip(*(column.to_pylist() for column in done.columns), strict=True)
                activity.advance(bucket.as_py() != REPORT_BUCKET)
        except ThermoclineError:
            raise
        except Exception as error:  # whatever a store, Parquet or Kafka's client raises: as on Spark
            raise EngineFailed(
                engine="the local engine", detail=f"{type(error).__name__}: {error}"
            ) from error
        return gather(results, source, task.io, task.quarantine_io)

    def start(self, task: Callable[[], T]) -> Future[T]:
        """See `ingest.engine.engine.Engine`."""
        return self._background.start(task)

    def check(self) -> None:
        """See `ingest.engine.engine.Engine`."""
        try:
            self.jvm.java.lang.System.nanoTime()
        except JAVA_ERRORS as error:
            raise EngineFailed(engine="the local engine", detail=first_line(error)) from error

    def stop(self) -> None:
        """End the JVM, unless others in this process use it."""
        self._until_stopped.close()

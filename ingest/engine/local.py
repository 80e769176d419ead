"""The engine that runs the tasks of a scan in this process, one after the other: for small tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from thermocline.errors import EngineFailed, ThermoclineError
from thermocline.ingest import activity
from thermocline.ingest.batch.batch import BatchResult, WriteShare, encoded_files, gather_all, writer
from thermocline.ingest.batch.read_task import REPORT_BUCKET, run_read_task
from thermocline.ingest.commit.java import JAVA_ERRORS, first_line, small_jvm
from thermocline.ingest.engine.background import BackgroundProcess

if TYPE_CHECKING:
    from thermocline.ingest.batch.scan import Scan
    from thermocline.settings import CatalogSettings

T = TypeVar("T")


class LocalEngine:
    """No Spark: a small JVM commits. A batch is in memory whole, within the bounds of a batch."""

    tasks = 1

    def __init__(self, settings: CatalogSettings) -> None:
        self._until_stopped = ExitStack()
        self.jvm: Any = self._until_stopped.enter_context(small_jvm(settings))
        self._background = BackgroundProcess()
        self._until_stopped.callback(self._background.stop)

    def run(self, scan: Scan) -> tuple[BatchResult | ThermoclineError, ...]:
        """See `ingest.engine.engine.Engine`."""
        source, tasks = scan.source, [share.task for share in scan.shares]
        activity.step("read", source.records)
        try:
            read = (batch for part in range(source.parts) for batch in run_read_task(tasks, source, part))
            groups = _by_bucket(read)
            shares = [
                WriteShare(one.task, one.data_location, encoded_files(one.files)) for one in scan.shares
            ]
            write = writer(shares.__getitem__)
            results: list[tuple[int, int, bytes]] = []
            activity.step("probe and write", len(groups) - len(shares))  # the reports have one of their own
            for (share, bucket), rows in groups.items():
                group = pa.scalar(share, pa.int32()), pa.scalar(bucket, pa.int32())
                done = write(group, pa.Table.from_batches(rows))
                # Not by the bucket that was asked for: what failed is told as a report.
                results += zip(*(column.to_pylist() for column in done.columns), strict=True)
                activity.advance(bucket != REPORT_BUCKET)
        except ThermoclineError:
            raise
        except Exception as error:  # whatever a store, Parquet or Kafka's client raises: as on Spark
            raise EngineFailed(
                engine="the local engine", detail=f"{type(error).__name__}: {error}"
            ) from error
        return gather_all(results, scan)

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


def _by_bucket(read: Iterable[pa.RecordBatch]) -> dict[tuple[int, int], list[pa.RecordBatch]]:
    """By share and bucket, the rows of packed batches; they are slices, not copies."""
    found: dict[tuple[int, int], list[pa.RecordBatch]] = {}
    for batch in read:
        places = zip(batch.column("share").to_pylist(), batch.column("bucket").to_pylist(), strict=True)
        for at, place in enumerate(places):
            found.setdefault(place, []).append(batch.slice(at, 1))
    return found

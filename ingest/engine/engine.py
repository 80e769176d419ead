"""The engine's protocol: it runs a batch's tasks, and reaches Iceberg's Java library, which commits it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from thermocline.ingest import activity
from thermocline.ingest.engine.local import LocalEngine
from thermocline.ingest.engine.spark import SparkEngine, start_spark

if TYPE_CHECKING:
    from thermocline.ingest.batch.batch import BatchResult
    from thermocline.ingest.batch.read_task import ReadTask
    from thermocline.ingest.batch.source import Source
    from thermocline.settings import Settings
    from thermocline.upsert.files_by_bucket import FilesByBucket

T = TypeVar("T")


class Engine(Protocol):
    """Reads sources of rows and writes the files of their buckets. It commits nothing."""

    @property
    def jvm(self) -> Any:
        """A py4j view of a JVM that has Iceberg's library."""
        ...

    @property
    def tasks(self) -> int:
        """How many read tasks a batch is split into. Raises `EngineFailed`."""
        ...

    def run(
        self,
        task: ReadTask,
        source: Source,
        files: FilesByBucket,
        data_location: str,
    ) -> BatchResult:
        """Read the source, fold and probe every bucket, write its files.

        Args:
            task: what each task needs to know of the table.
            source: what is read; each of its parts by a task.
            files: the live data files of the snapshot that the batch was planned on, by bucket.
            data_location: a URI; the files go below it.

        Raises:
            RangeIncomplete: what the tasks say they covered is not what was planned.
            EngineFailed: the engine or one of its tasks failed. An error of ours in a read task is raised as
                itself.
        """
        ...

    def start(self, task: Callable[[], T]) -> Future[T]:
        """Run a function beside the batches, on a worker; function and result have to be picklable.

        The future raises what the function raises, and `EngineFailed`.
        """
        ...

    def check(self) -> None:
        """Raises `EngineFailed` where it has ended by itself: no later batch could run or commit."""
        ...

    def stop(self) -> None:
        """End it; nothing runs on it afterwards."""
        ...


def start_engine(settings: Settings, name: str) -> Engine:
    """The engine that ``ingest.engine`` names, started for a table.

    Raises:
        EngineFailed: it did not come up.
        DependencyMissing: no fitting Java, or the jars could not be fetched.
    """
    if settings.ingest.engine == "local":
        activity.doing("starting the local engine")
        return LocalEngine(settings.catalog)
    activity.doing("starting Spark")
    return SparkEngine(start_spark(settings, name))

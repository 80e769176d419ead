"""What runs the tasks of a batch: Spark, or whatever a test puts in its place."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ingest.batch import BatchResult, parallelism, run_batch
from ingest.spark import stop_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ingest.files_by_bucket import FilesByBucket
    from ingest.read_task import ReadTask
    from thermocline.kafka.log import OffsetRange


class Engine(Protocol):
    """Reads planned ranges and writes the files of their buckets. It commits nothing."""

    @property
    def tasks(self) -> int:
        """How many tasks run at once. Raises `EngineFailed`."""
        ...

    def run(
        self, tasks: Sequence[Sequence[OffsetRange]], files: FilesByBucket, data_location: str
    ) -> BatchResult:
        """What came of one batch: see `ingest.batch.run_batch`, and what it raises.

        Its files go below ``data_location``, a URI.
        """
        ...

    def stop(self) -> None:
        """End it; nothing runs on it afterwards."""
        ...


@dataclass(slots=True)
class SparkEngine:
    """A Spark session, and what its tasks need to know of the table."""

    session: SparkSession
    task: ReadTask

    @property
    def tasks(self) -> int:
        """As many as the session has cores."""
        return parallelism(self.session)

    def run(
        self, tasks: Sequence[Sequence[OffsetRange]], files: FilesByBucket, data_location: str
    ) -> BatchResult:
        """One Spark job."""
        return run_batch(self.session, self.task, data_location, tasks, files)

    def stop(self) -> None:
        """End the session."""
        stop_spark(self.session)

"""The engine's protocol: it runs a scan's tasks, and reaches Iceberg's Java library, which commits."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from thermocline.ingest import activity
from thermocline.ingest.engine.local import LocalEngine
from thermocline.ingest.engine.spark import SparkEngine, start_spark

if TYPE_CHECKING:
    from thermocline.errors import ThermoclineError
    from thermocline.ingest.batch.batch import BatchResult
    from thermocline.ingest.batch.scan import Scan
    from thermocline.settings import Settings

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

    def run(self, scan: Scan) -> tuple[BatchResult | ThermoclineError, ...]:
        """Read the scan's source once; for each share fold and probe every bucket, and write its files.

        Gives what each share came to, in their order: where the tasks of one failed, the error, which is
        `RangeIncomplete` where what they say they covered is not what was planned.

        Raises:
            EngineFailed: the engine failed, and nothing is known of any share.
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

"""Spark as the engine: its session, and a scan as one job."""

from __future__ import annotations

import logging
import os
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import Broadcast, SparkConf, SparkContext, SparkFiles, cloudpickle
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from thermocline.errors import EngineFailed
from thermocline.iceberg.catalog_properties import java_properties
from thermocline.ingest import activity
from thermocline.ingest.batch.batch import (
    BatchResult,
    WriteShare,
    encoded_files,
    gather_all,
    reader,
    writer,
)
from thermocline.ingest.commit.java import JAVA_ERRORS, catalog_jars, first_line
from thermocline.ingest.engine.background import BackgroundProcess
from thermocline.ingest.engine.shipping import pack
from thermocline.jvm.java import find_java
from thermocline.process import safe_path
from thermocline.process.child_environment import settings_kept_back
from thermocline.process.logs import fields
from thermocline.process.private_folder import process_folder, temporary_folder

if TYPE_CHECKING:
    from thermocline.errors import ThermoclineError
    from thermocline.ingest.batch.read_task import ReadTask
    from thermocline.ingest.batch.scan import Scan
    from thermocline.settings import Settings

# The JVM only schedules and shuffles packed batches: a batch of two million records passes through it as some
# 200 MB of Arrow streams. The work is done by Python workers beside it.
_DRIVER_MEMORY = "1g"
# What runs the tasks, unless it is set.
_PYTHON = os.environ.get("PYSPARK_PYTHON", sys.executable)
_LOG_SETTINGS = resources.files("thermocline.ingest") / "log4j2.properties"

# How PySpark takes more arguments of `spark-submit`, and what it gives by default.
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_SHELL = "pyspark-shell"

_PACKED_COLUMNS = "share int, bucket int, stream binary"
_RESULT_COLUMNS = "share int, bucket int, result binary"
# Twice as many groups of buckets as cores evens out buckets of different sizes.
_GROUPS_PER_CORE = 2
# What the stages of a batch's job do.
_STEPS = ("read, tasks", "probe and write, tasks")
# Enough of a failed job's words to hold its innermost cause.
_DETAIL_CHARACTERS = 2_000

T = TypeVar("T")

_logger = logging.getLogger(__name__)


def start_spark(settings: Settings, name: str) -> SparkSession:
    """A session on ``spark.master`` with our catalog under its own name; ``spark.conf`` has the last word.

    On a cluster it takes our packages along; what they need has to be installed there. What Ctrl-C does stays
    as it was: Spark would cancel the job under way.

    Raises:
        EngineFailed: the session did not come up.
        DependencyMissing: no fitting Java, or the jars could not be fetched.
    """
    os.environ["JAVA_HOME"] = str(find_java().home)
    # What `spark-submit` alone does with the setting.
    os.environ["PYSPARK_PYTHON"] = settings.spark.conf.get("spark.pyspark.python", _PYTHON)
    conf = {
        "spark.master": settings.spark.master,
        "spark.app.name": f"thermocline ingest {name}",
        **_defaults(settings),
        **_network_conf(settings.spark.master),
        **_catalog_conf(settings),
        **settings.spark.conf,
    }
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        _start_jvm(conf, activity.jvm_log())
        return _with_our_packages(SparkSession.builder.config(map=dict(conf)).getOrCreate())
    except Exception as error:  # PySpark raises whatever its launcher met
        raise EngineFailed(engine="Spark", detail=first_line(error)) from error
    finally:
        is_main = threading.current_thread() is threading.main_thread()  # in others Spark leaves it alone
        if is_main and on_interrupt is not None:
            signal.signal(signal.SIGINT, on_interrupt)


def _start_jvm(conf: Mapping[str, str], log_path: Path | None) -> None:
    """The context of the next session, with a JVM of its own, which PySpark keeps for all later ones.

    Its settings are in a file that nobody else can read: PySpark would put them, with the keys of stores and
    catalogs, on the command line, which every user of the machine can. The JVM, and Python workers, write
    their own words into a file, where one is named.
    """
    if SparkContext._gateway is not None:  # noqa: SLF001  it says so nowhere else
        return
    with ExitStack() as until_started:
        output: dict[str, Any] = {}
        if log_path is not None:
            _logger.info("Spark's own words go into a file", extra=fields(path=log_path))
            log = until_started.enter_context(log_path.open("ab"))
            output = {"stdout": log, "stderr": log}
        until_started.enter_context(_submitted_with(conf))
        until_started.enter_context(settings_kept_back())
        gateway = launch_gateway(popen_kwargs=output)  # type: ignore[no-untyped-call]  # safety: spark-command-line
        SparkContext(conf=SparkConf().setAll(list(conf.items())), gateway=gateway)


@contextmanager
def _submitted_with(conf: Mapping[str, str]) -> Iterator[None]:
    """Within the block, a JVM that PySpark starts reads these settings from a file, after its defaults."""
    before = os.environ.get(_SUBMIT_ARGUMENTS)
    with temporary_folder("thermocline-spark-") as folder:
        path = folder / "spark.properties"
        path.write_text("".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in conf.items()))
        ours = shlex.join(["--properties-file", str(path), "--load-spark-defaults"])
        os.environ[_SUBMIT_ARGUMENTS] = f"{ours} {before or _SHELL}"
        try:
            yield
        finally:
            del os.environ[_SUBMIT_ARGUMENTS]
            if before is not None:
                os.environ[_SUBMIT_ARGUMENTS] = before


def _escaped(text: str) -> str:
    """A name or a value in a file of Java's properties, whatever it has."""
    units = text.encode("utf-16-be")
    pairs = zip(units[::2], units[1::2], strict=True)
    return "".join(_escaped_unit(high << 8 | low) for high, low in pairs)


def _escaped_unit(unit: int) -> str:
    is_plain = unit < 128 and (chr(unit).isalnum() or chr(unit) in "._-/")
    return chr(unit) if is_plain else f"\\u{unit:04x}"


def _with_our_packages(session: SparkSession) -> SparkSession:
    """The session, whose tasks find them whatever their machine has."""
    if not _is_local(session.sparkContext.master):
        folder = Path(SparkFiles.getRootDirectory()).parent  # Spark's own temporary one, which ends with it
        session.sparkContext.addPyFile(str(pack(folder)))
    return session


@dataclass(slots=True)
class SparkEngine:
    """A Spark session; see `ingest.engine.engine.Engine`."""

    session: SparkSession
    _background: BackgroundProcess = field(default_factory=BackgroundProcess)

    @property
    def jvm(self) -> Any:
        """The session's JVM, which has Iceberg's library."""
        return self.session.sparkContext._jvm  # noqa: SLF001  PySpark's own documentation goes this way to Java

    @property
    def tasks(self) -> int:
        """As many as the session has cores."""
        with _engine_errors():
            return self.session.sparkContext.defaultParallelism

    def run(self, scan: Scan) -> tuple[BatchResult | ThermoclineError, ...]:
        """One Spark job, also for many tables."""
        source, locations = scan.source, [share.data_location for share in scan.shares]
        with _engine_errors(), ExitStack() as until_done:
            # In a function of more than a megabyte PySpark would put a broadcast of its own, which stays on
            # the disk for as long as the session lives.
            tasks = until_done.enter_context(self._shared([_pickled(one.task) for one in scan.shares]))
            files = until_done.enter_context(self._shared([encoded_files(one.files) for one in scan.shares]))

            def share_of(number: int) -> WriteShare:
                return WriteShare(_task(tasks.value[number]), locations[number], files.value[number])

            ids = self.session.range(0, source.parts, 1, source.parts)
            packed = ids.mapInArrow(
                reader(lambda: [_task(one) for one in tasks.value], source), _PACKED_COLUMNS
            )
            parts = _GROUPS_PER_CORE * self.tasks
            groups = packed.repartition(parts, "share", "bucket").groupBy("share", "bucket")
            with activity.asked(self._stage):
                rows = groups.applyInArrow(writer(share_of), _RESULT_COLUMNS).collect()
        return gather_all(((row.share, row.bucket, row.result) for row in rows), scan)

    @contextmanager
    def _shared(self, value: T) -> Iterator[Broadcast[T]]:
        """The value on all workers, within the block."""
        shared = self.session.sparkContext.broadcast(value)
        try:
            yield shared
        finally:
            shared.destroy()

    def _stage(self) -> tuple[str, int, int] | None:
        """The step of the batch under way, and how many of its tasks are done; None between two."""
        try:
            tracker = self.session.sparkContext.statusTracker()
            for job_id in tracker.getActiveJobsIds():
                job = tracker.getJobInfo(job_id)
                stages = sorted(job.stageIds) if job is not None else []
                for stage_id in tracker.getActiveStageIds():
                    stage = tracker.getStageInfo(stage_id)
                    if stage is not None and stage_id in stages:
                        name = _STEPS[min(stages.index(stage_id), len(_STEPS) - 1)]
                        return name, stage.numCompletedTasks, stage.numTasks
        except JAVA_ERRORS:  # whoever waits for the batch hears of it
            return None
        return None

    def start(self, task: Callable[[], T]) -> Future[T]:
        """A job of one task; on one machine a process of its own, which leaves the cores to batches."""
        if _is_local(self.session.sparkContext.master):
            return self._background.start(task)

        def run() -> None:
            done: Any
            try:
                with _engine_errors():
                    ((done, error),) = self.session.sparkContext.parallelize([task], 1).map(_called).collect()
            except Exception as failure:  # noqa: BLE001  whatever it is, it is raised by the future
                done, error = None, failure
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(done)

        future: Future[T] = Future()
        threading.Thread(target=run, name="background", daemon=True).start()
        return future

    def check(self) -> None:
        """Asks the session's JVM."""
        with _engine_errors():
            self.jvm.java.lang.System.nanoTime()

    def stop(self) -> None:
        """End the session; only a warning where its JVM has died."""
        self._background.stop()
        try:
            with warnings.catch_warnings(action="ignore"):  # PySpark's own words for that
                self.session.stop()
        except JAVA_ERRORS as error:
            _logger.warning("Spark had ended before it was stopped", extra=fields(detail=first_line(error)))


def _pickled(task: ReadTask) -> bytes:
    """As PySpark would, in a function."""
    pickled: bytes = cloudpickle.dumps(task)  # type: ignore[no-untyped-call]
    return pickled


def _task(pickled: bytes) -> ReadTask:
    """In a worker: the task of a share."""
    task: ReadTask = cloudpickle.loads(pickled)
    return task


def _called(task: Callable[[], T]) -> tuple[T | None, Exception | None]:
    """In a worker: what the task gives or raises. Spark would run a task that raises three times more."""
    try:
        return task(), None
    except Exception as error:  # noqa: BLE001  whatever it is, it is raised by the future
        return None, error


@contextmanager
def _engine_errors() -> Iterator[None]:
    try:
        yield
    except JAVA_ERRORS as error:
        raise EngineFailed(engine="Spark", detail=str(error)[:_DETAIL_CHARACTERS]) from error


def _defaults(settings: Settings) -> dict[str, str]:
    jars = ":".join(str(path) for path in catalog_jars(settings.catalog))
    return {
        "spark.driver.memory": _DRIVER_MEMORY,
        # Not the executors': Iceberg's Java library only commits, which the driver does.
        "spark.driver.extraClassPath": jars,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        **{f"spark.executorEnv.{name}": value for name, value in safe_path.variables().items()},
        # Packed buckets are few: adaptive execution takes them for little data and merges them.
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.extraJavaOptions": shlex.join(
            [f"-Dlog4j2.configurationFile={_LOG_SETTINGS}", f"-Djava.io.tmpdir={process_folder()}"]
        ),
        # Shuffled records, on this machine; elsewhere the cluster says where.
        **({"spark.local.dir": str(process_folder())} if _is_local(settings.spark.master) else {}),
        # Spark's own words for secrets, and what catalogs call theirs.
        "spark.redaction.regex": "(?i)secret|password|token|access[.]?key|credential|account[.-]?key|sas",
    }


def _network_conf(master: str) -> dict[str, str]:
    """On one machine nothing of Spark's listens to others, and its host name need not resolve."""
    if not _is_local(master):
        return {}
    return {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}


def _is_local(master: str | None) -> bool:
    """Whether tasks run on this machine, in workers of the driver."""
    return master is None or master == "local" or master.startswith("local[")


def _catalog_conf(settings: Settings) -> dict[str, str]:
    prefix = f"spark.sql.catalog.{settings.catalog.name}"
    properties = java_properties(settings.catalog).values
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.cache-enabled": "false",
        **{f"{prefix}.{key}": value for key, value in properties.items()},
    }

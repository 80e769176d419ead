"""Ingest on a real Spark cluster: what its machines do to a batch changes nothing of what lands.

Method: a standalone master and its workers, each at an address of its own, so that Spark takes them for
machines. Their Python has what Thermocline needs and no Thermocline: that comes with the session. The Python
workers look into a file of failpoints, which holds a task where a test wants it.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import venv
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import unquote, urlsplit

import psutil
import pytest

from tests.behaviour.armed import has_fired
from tests.behaviour.live import wait_for
from tests.behaviour.test_kills import check_table
from tests.behaviour.topic import APP, Topic
from tests.failpoints.arming import arm, disarm, fired
from tests.failpoints.firing import environment
from thermocline.dev.spark_cluster import LocalSparkCluster, SparkWorker
from thermocline.dev.stack import TABLE, TOPIC, Stack
from thermocline.errors import EngineFailed
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.ingest.owner.owner import Owner
from thermocline.process.clock import SystemClock
from thermocline.settings import PassThrough, Settings

pytestmark = pytest.mark.full

BUCKETS = 4
USERS = 40
ROOT = Path(__file__).parents[2]
# A task is held for longer than any kill takes to be noticed.
HELD_SECONDS = 20
# Attempts at a task beside one that takes long: at once, and whatever the others took.
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "100ms",
}


@pytest.fixture(scope="module", autouse=True)
def own_environment() -> Iterator[None]:
    """A session leaves its workers' Python in the environment, where later tests' commands would find it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        yield


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with our dependencies: an editable installation is a ``.pth`` file, which is not followed."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, with_pip=False, symlinks=True)
    (own,) = folder.glob("lib/python*/site-packages")
    (own / "dependencies.pth").write_text(
        "\n".join(path for path in sys.path if path.endswith("site-packages"))
    )
    found = folder / "bin" / "python"
    look = "import pyarrow, importlib.util as u; print(u.find_spec('thermocline'))"
    said = subprocess.run(
        [found, "-c", look], cwd=folder, env={}, capture_output=True, text=True, check=True
    ).stdout
    assert said == "None\n"
    return found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The failpoints of the Python workers, and of drivers that have `environment` of it."""
    return tmp_path_factory.mktemp("failpoints") / "file"


@pytest.fixture(autouse=True)
def nothing_armed(file: Path) -> Iterator[None]:
    yield
    disarm(file)


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, python: Path, file: Path
) -> Iterator[LocalSparkCluster]:
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "path").mkdir()
    (folder / "path" / "tests").symlink_to(ROOT / "tests")
    armed = {**environment(file=file), "PYTHONPATH": str(folder / "path")}
    with LocalSparkCluster(folder / "spark", python=python, environment=armed) as running:
        yield running


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack], cluster: LocalSparkCluster) -> Stack:
    return new_stack(
        "cluster", partitions=2, buckets=BUCKETS, commit_interval_seconds=1.0, engine="spark", cluster=cluster
    )


@pytest.fixture(scope="module")
def topic(stack: Stack) -> Topic:
    return Topic(stack.settings.kafka, TOPIC)


@contextmanager
def owning(stack: Stack, conf: Mapping[str, str] | None = None) -> Iterator[Owner]:
    """An owner on a session of its own, with two executors up."""
    owner = Owner.open(with_conf(stack.settings, conf or {}), TABLE, SystemClock())
    try:
        wait_for(lambda: executors_of(owner) == 2)
        yield owner
    finally:
        owner.close()


def with_conf(settings: Settings, conf: Mapping[str, str]) -> Settings:
    spark = settings.spark.model_copy(update={"conf": PassThrough({**settings.spark.conf, **conf})})
    return settings.model_copy(update={"spark": spark})


def executors_of(owner: Owner) -> int:
    """How many the session has; Spark lists its driver beside them."""
    context = owner.engine.session.sparkContext  # type: ignore[attr-defined]
    return int(context._jsc.sc().getExecutorMemoryStatus().size()) - 1


def write(topic: Topic) -> None:
    """Inserts, updates and deletes in every bucket."""
    number = len(topic.oracle)
    for user in range(USERS):
        value = None if (number + user) % 5 == 0 else f"{number}"
        topic.send((APP, f"u{user}", f"k{(number + user) % 3}"), value, user % 2)
    topic.flush()


def land(owner: Owner) -> None:
    owner.catch_up(threading.Event())


def executor_of(pid: int) -> psutil.Process:
    """The executor that a Python worker belongs to."""
    above = psutil.Process(pid).parents()
    return next(process for process in above if _runs(process, "CoarseGrainedExecutorBackend"))


def _runs(process: psutil.Process, program: str) -> bool:
    """Whether it runs a class of Java or a module of Python with this name, in whatever package."""
    try:
        return any(argument.rpartition(".")[2] == program for argument in process.cmdline())
    except psutil.NoSuchProcess:
        return False


def committed_files(stack: Stack) -> set[Path]:
    """The data files of all snapshots."""
    table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")
    paths = table.inspect.all_data_files()["file_path"].to_pylist()
    return {Path(unquote(urlsplit(path).path)) for path in paths}


def written_files(stack: Stack) -> set[Path]:
    return set((stack.folder / "data").rglob("data/bucket=*/*.parquet"))


def test_batches_equal_the_oracle_with_the_code_that_the_session_brings(stack: Stack, topic: Topic) -> None:
    with owning(stack) as owner:
        for _ in range(3):
            write(topic)
            land(owner)
            check_table(stack, topic)
        origin = owner.engine.start(
            partial(eval, "__import__('thermocline.maintenance').maintenance.__file__")
        ).result()
        assert ".zip/" in origin
        failing = owner.engine.start(partial(int, "not a number"))
        with pytest.raises(ValueError, match="not a number"):
            failing.result()
    assert committed_files(stack) == written_files(stack)


def test_an_executor_killed_in_a_batch_costs_nothing(stack: Stack, topic: Topic, file: Path) -> None:
    with owning(stack) as owner, ThreadPoolExecutor(1) as beside:
        write(topic)
        entry = f"bucket-task.done=sleep:{HELD_SECONDS}@1"
        arm(file, entry)
        landing = beside.submit(land, owner)
        wait_for(lambda: has_fired(file, entry))
        (held,) = fired(file)
        executor = executor_of(held.pid)
        executor.kill()
        landing.result()
        assert not executor.is_running()
        check_table(stack, topic)
        wait_for(lambda: executors_of(owner) == 2)  # the worker has started another one
        write(topic)
        land(owner)
    check_table(stack, topic)
    assert committed_files(stack) < written_files(stack), "the killed attempt had written its file"


def test_the_next_driver_goes_on_where_one_was_killed(
    stack: Stack, topic: Topic, file: Path, cluster: LocalSparkCluster
) -> None:
    write(topic)
    entry = f"bucket-task.done=sleep:{HELD_SECONDS}@1"
    arm(file, entry)
    killed = stack.command("killed", "ingest", "run", TABLE)
    stack.wait_for(lambda: has_fired(file, entry), "a task of the driver", killed)
    (abandoned,) = cluster.applications()
    assert killed.kill() < 0
    with owning(stack) as owner:
        land(owner)
        check_table(stack, topic)
        wait_for(lambda: abandoned not in cluster.applications())
        assert len(cluster.applications()) == 1
    check_table(stack, topic)


def test_attempts_beside_each_other_write_nothing_twice(stack: Stack, topic: Topic, file: Path) -> None:
    with owning(stack, SPECULATION) as owner:
        write(topic)
        land(owner)  # what a Python worker takes to start is no slow task
        before, on_disk = committed_files(stack), written_files(stack)
        write(topic)
        entry = f"bucket-task.done=sleep:{HELD_SECONDS}@1"
        arm(file, entry)
        land(owner)
        assert has_fired(file, entry)
        check_table(stack, topic)
        added, written = committed_files(stack) - before, written_files(stack) - on_disk
        assert len(added) == BUCKETS
        assert len(written) == BUCKETS + 1, "both attempts wrote a file"
        write(topic)
        land(owner)
    check_table(stack, topic)


def test_a_worker_that_joins_takes_its_part(stack: Stack, topic: Topic, cluster: LocalSparkCluster) -> None:
    with owning(stack) as owner:
        write(topic)
        land(owner)
        assert owner.engine.tasks == 2
        joined = cluster.add_worker()
        wait_for(lambda: owner.engine.tasks == 3)
        assert cluster.alive_workers() == 3
        while not has_run_python(joined):
            write(topic)
            land(owner)
    check_table(stack, topic)


def has_run_python(worker: SparkWorker) -> bool:
    assert worker.pid is not None
    started = psutil.Process(worker.pid).children(recursive=True)
    return any(_runs(process, "daemon") for process in started)


def test_code_that_a_machine_has_no_module_for_is_told(stack: Stack, tmp_path: Path) -> None:
    """A Python without our dependencies: an error that names the module, and a table as it was."""
    venv.create(tmp_path, with_pip=False, symlinks=True)
    conf = {"spark.pyspark.python": str(tmp_path / "bin" / "python")}
    owner = Owner.open(with_conf(stack.settings, conf), TABLE, SystemClock())
    try:
        with pytest.raises(EngineFailed) as failed:
            owner.engine.start(partial(int, "1")).result()
        assert "No module named" in failed.value.detail
    finally:
        owner.close()

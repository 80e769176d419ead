"""Real parts: brokers, a JVM for all owners of a process, and Spark where a test wants it.

With pytest's ``--lake`` every table is in a store under a REST catalog, and all ingest on the local engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.brokers import Brokers
from thermocline.dev.rest_catalog import LocalRestCatalog
from thermocline.dev.s3 import LocalS3
from thermocline.dev.stack import TABLE, Stack, StackOptions
from thermocline.ingest.engine.engine import Engine, start_engine
from thermocline.ingest.engine.spark import start_spark
from thermocline.ingest.owner.owner import Owner
from thermocline.ingest.table.create import create_table
from thermocline.process.clock import SystemClock


@pytest.fixture(scope="session")
def lake_store(
    tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config
) -> Iterator[LocalS3 | None]:
    """The store of all tables; None without ``--lake``."""
    if not pytestconfig.getoption("--lake"):
        yield None
        return
    with LocalS3(tmp_path_factory.mktemp("lake") / "s3") as store:
        yield store


@pytest.fixture(scope="session")
def new_lake(lake_store: LocalS3 | None) -> Iterator[Callable[[str], LocalRestCatalog] | None]:
    """Makes a catalog on a place of its own in the store; None without ``--lake``."""
    if lake_store is None:
        yield None
        return
    with ExitStack() as undo:

        def start(name: str) -> LocalRestCatalog:
            folder = lake_store.folder.with_name(name)
            return undo.enter_context(LocalRestCatalog(folder, lake_store, warehouse=name))

        yield start


@pytest.fixture(scope="module")
def new_stack(
    tmp_path_factory: pytest.TempPathFactory,
    jvm: Any,
    brokers: Brokers,
    new_lake: Callable[[str], LocalRestCatalog] | None,
) -> Iterator[Callable[..., Stack]]:
    """Makes a started stack: its own catalog and table, and a broker that nobody else has until it stops.

    All stop with the module. A stack of which the broker is to be broken or changed has one of its own. It
    ingests on the local engine, unless another one is asked for. The catalog has the stack's name: a Spark
    session keeps the first catalog that it met by a name.
    """
    with ExitStack() as undo:

        def start(name: str, *, has_own_broker: bool = False, **options: object) -> Stack:
            folder = tmp_path_factory.mktemp(name)
            options = {"engine": "local", **options}
            if new_lake is not None:
                options |= {"engine": "local", "rest": new_lake(folder.name)}
            if not has_own_broker:
                options["kafka"] = undo.enter_context(brokers.lent())
            stack = undo.enter_context(Stack(folder, StackOptions(catalog=name, **options)))  # type: ignore[arg-type]
            stack.start_broker()
            create_table(stack.settings, TABLE)
            return stack

        yield start


@pytest.fixture(scope="module")
def new_owner() -> Iterator[Callable[[Stack], Owner]]:
    """Takes ownership of a stack's table in this process; all owners of a stack share one engine.

    An owner before goes on without a lease, as one that was frozen for longer than it.
    """
    owners: list[Owner] = []
    stacks: list[Stack] = []
    engines: dict[Path, Engine] = {}

    def take(stack: Stack) -> Owner:
        for owner, of in zip(owners, stacks, strict=True):
            if of is stack:
                owner.lease.release()
        if stack.folder not in engines:
            engines[stack.folder] = start_engine(stack.settings, TABLE)
        owners.append(Owner.open(stack.settings, TABLE, SystemClock(), engine=engines[stack.folder]))
        stacks.append(stack)
        return owners[-1]

    yield take
    for owner in owners:
        owner.close()
    for engine in engines.values():
        engine.stop()


@pytest.fixture(scope="module")
def new_spark() -> Iterator[Callable[[Stack], SparkSession]]:
    """Spark on a stack's catalog, as another reader and writer of its tables; it ends with the module."""
    sessions: list[SparkSession] = []

    def start(stack: Stack) -> SparkSession:
        sessions.append(start_spark(stack.settings, "tests"))
        return sessions[-1]

    yield start
    if sessions:
        sessions[-1].stop()

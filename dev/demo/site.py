"""The demo's surroundings: its options, its processes, and the ways to write and to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from thermocline.dev.demo.figures import Served, served_in
from thermocline.dev.demo.key import asking_with, key_in, key_path
from thermocline.dev.demo.lookups import LookupConnection
from thermocline.dev.demo.reporter import Reporter, Task
from thermocline.dev.demo.views import ANALYST, MARGIN_MORE_SECONDS, View, Views
from thermocline.dev.demo.writer import Writer
from thermocline.dev.interrupts import undisturbed
from thermocline.dev.oracle import Oracle
from thermocline.dev.rest_catalog import LocalRestCatalog
from thermocline.dev.s3 import LocalS3
from thermocline.dev.spark_cluster import LocalSparkCluster
from thermocline.dev.stack import TABLE, TOPIC, Stack, StackOptions
from thermocline.dev.trino import WITH_KAFKA
from thermocline.dev.workload import Event, produce
from thermocline.errors import NotReady, ServerUnreachable, TrinoRefused, TrinoUnreachable
from thermocline.jvm.trino_java import find_trino_java
from thermocline.process.clock import Clock

ROWS_PER_USER: Final = 10
PARTITIONS: Final = 4
# Short, so that several commits land within a minute.
COMMIT_INTERVAL_SECONDS: Final = 10.0
REPLICAS: Final = 2
"""Servers of the same table, with a lake."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How much of everything; ``rate`` is messages a second, ``seconds`` how long they are written.

    The traffic lasts longer than ``seconds`` when the story needs that. Without ``users``, there is one for
    ten rows.
    """

    rows: int
    rate: int
    seconds: int
    users: int | None
    seed: int
    trino: bool
    lake: bool
    keep: bool
    as_json: bool

    @property
    def user_count(self) -> int:
        """Users in the table; no more than it has rows."""
        return min(self.users or max(self.rows // ROWS_PER_USER, 1), self.rows)

    @property
    def keys_per_user(self) -> int:
        """Rows of each user; rounded, so that the table has about as many rows as were asked for."""
        return max(round(self.rows / self.user_count), 1)


@dataclass(frozen=True, slots=True)
class Site:
    """A running stack, and the oracle of all that is written to it."""

    options: DemoOptions
    stack: Stack
    clock: Clock
    oracle: Oracle = field(default_factory=Oracle)

    @property
    def client_config(self) -> Mapping[str, Any]:
        """For producers. The client's own remarks would tear the screen; what matters comes as an error."""
        return {**self.stack.settings.kafka.client_config(), "log_level": 0}

    @property
    def ingest_log(self) -> Path:
        """The log of ``ingest run``."""
        return self.stack.folder / "ingest.log"

    @property
    def table_in_trino(self) -> str:
        """The table's full name there; the views' names begin with it."""
        return f"{self.stack.settings.views.lake}.{self.stack.settings.table(TABLE).identifier}"

    def connection(self, url: str) -> LookupConnection:
        """A new connection to a server."""
        return LookupConnection(url, self.clock, self.stack.key)

    def writer(self) -> Writer:
        """A new producer of single records."""
        return Writer(self.client_config, TOPIC, self.oracle, self.clock)

    def views(self) -> Views:
        """Asks Trino as an analyst."""
        # Their client is an optional package.
        from trino.dbapi import connect  # noqa: PLC0415

        from thermocline.views.trino_client import Trino  # noqa: PLC0415

        def connected(**arguments: Any) -> Any:
            # On a busy machine a query may take longer than publishing a view may.
            return connect(**arguments | {"session_properties": {}})

        settings = self.stack.settings.views.model_copy(update={"user": ANALYST})
        return Views(Trino(settings, connected).rows, self.table_in_trino, self.clock)

    def served(self) -> Sequence[Served]:
        """What each server says of the table; nothing while it is not ready."""
        return [self._served_by(url) for url in self.stack.urls]

    def await_served(self) -> None:
        """Returns when every server answers with all that was written. Raises `EngineFailed` too late."""
        end = self.oracle.end
        self.stack.wait_for(
            lambda: all(served.end.at_least(end) for served in self.served()),
            "the server reads the log's end",
        )

    def await_margin(self) -> None:
        """Returns when the full view has all that was written: it leaves out the last moments."""
        self.clock.sleep(self.stack.settings.views.margin_seconds + MARGIN_MORE_SECONDS)

    def open(self, reporter: Reporter, events: Sequence[Event]) -> None:
        """Returns when the server has the events' rows from the table; with Trino, its views have them, too.

        Raises:
            EngineFailed: a process ended, or was not ready in time.
        """
        stack, trino, views = self.stack, self.stack.trino, {}
        if trino:
            # It starts beside everything else.
            stack.start_trino()
            views = {
                title: reporter.begin(title) for title in ("Trino: one server", "the live views in Trino")
            }
        table = reporter.begin("Iceberg: a table for it")
        stack.create_table()
        settings = stack.settings.table(TABLE)
        reporter.end(table, f"{settings.identifier}, format {settings.format_version}, merge-on-read")
        loading = reporter.begin(f"{len(events):,} rows")
        produce(self.client_config, TOPIC, events, self.oracle)
        per_second = len(events) / (self.clock.monotonic() - loading.began_at)
        reporter.end(loading, f"written to Kafka, {per_second:,.0f} a second")
        replicas = range(len(stack.urls))
        for replica in replicas:
            stack.serve(replica)
        stack.ingest()
        serving, ingesting = (reporter.begin(f"thermocline {name}") for name in ("serve", "ingest run"))
        self._await(
            lambda: all(stack.get("/readyz", replica)[0] == HTTPStatus.OK for replica in replicas), serving
        )
        reporter.end(serving, f"a tailer and an API at {' and at '.join(stack.urls)}")
        # The first batch comes with the JVM's and the Python workers' start, which is not to be measured.
        self._await(lambda: all(served.seam.at_least(self.oracle.end) for served in self.served()), ingesting)
        reporter.end(ingesting, "owns the table, and has committed the rows")
        if trino:
            starting, publishing = views.values()
            trino.wait()
            reporter.end(starting, f"Iceberg and Kafka connectors, at {trino.url}")
            # Trino's first queries take longer, which is not to be measured, either.
            self._await(partial(self._is_published, self.views(), len(events)), publishing)
            reporter.end(publishing, f"published by ingest; user {ANALYST} counts {len(events):,} rows")

    def _await(self, condition: Callable[[], bool], task: Task) -> None:
        def is_met() -> bool:
            self.stack.check()
            return condition()

        self.stack.wait_for(is_met, task.title)

    def _served_by(self, url: str) -> Served:
        with suppress(NotReady, ServerUnreachable):
            return served_in(self.connection(url).get("/status"), Served())
        return Served()

    def _is_published(self, views: Views, rows: int) -> bool:
        with suppress(TrinoRefused, TrinoUnreachable):
            return all(len(views.all_rows(view)) == rows for view in View)
        return False


@contextmanager
def opened(folder: Path, options: DemoOptions, reporter: Reporter, clock: Clock) -> Iterator[Site]:
    """A site whose broker runs; at the end, however that comes, all of its processes are stopped."""
    if options.trino:
        task = reporter.begin("Trino: its files, once")
        java = find_trino_java(WITH_KAFKA.java_versions, report=partial(setattr, task, "note"))
        WITH_KAFKA.tree(java=java, report=partial(setattr, task, "note"))
        reporter.end(task)
    with ExitStack() as running:
        rest, cluster = _lake(folder, running, reporter) if options.lake else (None, None)
        task = reporter.begin("Kafka: a broker, a topic")
        stack = Stack(
            folder,
            StackOptions(
                partitions=PARTITIONS,
                commit_interval_seconds=COMMIT_INTERVAL_SECONDS,
                trino_gb=int(options.trino),
                rest=rest,
                cluster=cluster,
                replicas=REPLICAS if options.lake else 1,
                key=key_in(folder),
                report=partial(setattr, task, "note"),
            ),
        )
        running.callback(_stop, stack, reporter)
        running.enter_context(asking_with(key_path(folder)))
        stack.start_broker()
        reporter.end(task, f"{PARTITIONS} partitions at {stack.kafka.bootstrap_servers}")
        yield Site(options, stack, clock)


def _stop(stack: Stack, reporter: Reporter) -> None:
    with undisturbed():
        reporter.drop()
        task = reporter.begin("stopping all processes")
        stack.stop()
        reporter.end(task)


def _lake(folder: Path, running: ExitStack, reporter: Reporter) -> tuple[LocalRestCatalog, LocalSparkCluster]:
    """A store with a catalog, and a cluster; they run until the end."""
    task = reporter.begin("S3: a store, and a REST catalog on it")
    note = partial(setattr, task, "note")
    store = running.enter_context(LocalS3(folder / "s3", report=note))
    catalog = running.enter_context(LocalRestCatalog(folder / "rest", store, report=note))
    reporter.end(task, f"tables below {store.location('warehouse')}, catalog at {catalog.url}")
    task = reporter.begin("Spark: a master and its workers")
    cluster = running.enter_context(LocalSparkCluster(folder / "spark"))
    reporter.end(task, f"{len(cluster.workers)} workers at {cluster.url}")
    return catalog, cluster

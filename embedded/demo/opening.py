"""Builds the site: broker, table, rows, server and ingest, what can overlap overlapping."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from embedded.demo.background import Background
from embedded.demo.commits import Commits
from embedded.demo.opening_trino import await_views, fetch_trino, trino_starting
from embedded.demo.site import Site
from embedded.demo.stage import Stage, Task
from embedded.demo.view_door import Connect
from embedded.demo.waiting import Pending, await_all
from embedded.interrupts import undisturbed
from embedded.stack import Stack
from embedded.workload import Event, produce
from thermocline.process.clock import Clock
from thermocline.rules.seam import Seam

PARTITIONS: Final = 4
# Short, so that several commits land within a minute.
COMMIT_INTERVAL_SECONDS: Final = 10.0


@contextmanager
def running_stack(folder: Path, stage: Stage, with_trino: bool) -> Iterator[Stack]:
    """A stack whose broker runs; at the end, however that comes, all of its processes are stopped."""
    if with_trino:
        fetch_trino(stage)
    task = stage.begin("Kafka: a broker, a topic")

    def report(text: str) -> None:
        task.note = text

    stack = Stack(
        folder,
        partitions=PARTITIONS,
        commit_interval_seconds=COMMIT_INTERVAL_SECONDS,
        trino_gb=int(with_trino),
        report=report,
    )
    try:
        stack.start_broker()
        stage.end(task, f"{PARTITIONS} partitions at {stack.kafka.bootstrap_servers}")
        yield stack
    finally:
        with undisturbed():
            stage.drop()
            stopping = stage.begin("stopping all processes")
            stack.stop()
            stage.end(stopping)


def open_site(
    stack: Stack, stage: Stage, events: Sequence[Event], clock: Clock, connect: Connect | None
) -> Site:
    """The site, with the events in the log, when the server answers and ingest has committed them.

    With Trino, its views have them, too.

    Raises:
        EngineFailed: a process ended, or was not ready in time.
        TrinoUnreachable: Trino was not.
    """
    site = Site(stack, clock, connect)
    with trino_starting(site, stage) as trino:
        _make_table(site, stage, events)
        _start_processes(site, stage, trino)
    await_views(site, stage, len(events))
    return site


def _make_table(site: Site, stage: Stage, events: Sequence[Event]) -> None:
    stack, clock = site.stack, stage.clock
    table = stage.begin("Iceberg: a table for it")
    with Background("table", lambda _: stack.create_table()) as creation:
        loading = stage.begin(f"{len(events):,} rows")
        produce(site.client_config, site.topic, events, site.oracle)
        per_second = len(events) / (clock.monotonic() - loading.began_at)
        stage.end(loading, f"written to Kafka, {per_second:,.0f} a second")
        creation.finish()
    settings = stack.settings.table(site.table)
    stage.end(table, f"{settings.identifier}, format {settings.format_version}, merge-on-read")


def _start_processes(site: Site, stage: Stage, beside: Pending) -> None:
    """Returns when the server answers and has the rows from the table, and what starts beside is there.

    The first batch comes with the JVM's and the Python workers' start, which is not to be measured.
    """
    stack = site.stack
    stack.serve()
    stack.ingest()
    commits = Commits(stack.settings, site.table, site.ingest_log)

    def is_served(task: Task) -> bool:
        task.note = f"a tailer and an API at {stack.url}"
        return stack.get("/readyz")[0] == HTTPStatus.OK

    def is_committed(task: Task) -> bool:
        commits.look()
        task.note = f"owns the table, epoch {commits.epoch}" if commits.epoch else "Spark starts"
        return _served_seam(stack.get("/status")[1], site.table).at_least(site.oracle.end)

    conditions = {"thermocline serve": is_served, "thermocline ingest run": is_committed}
    ours = {title: (stage.begin(title), met) for title, met in conditions.items()}
    await_all(stack, stage, {**beside, **ours})


def _served_seam(status: Mapping[str, Any], table: str) -> Seam:
    """Of the snapshot that the server answers from; empty while it is not ready."""
    point = status.get("tables", {}).get(table, {}).get("read_point")
    return Seam.from_dict(point["seam"]) if point else Seam()

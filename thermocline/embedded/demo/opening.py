"""Builds the site: broker, table, rows, server and ingest, what can overlap overlapping."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

from thermocline.clock import Clock
from thermocline.embedded.demo.background import Background
from thermocline.embedded.demo.commits import Commits
from thermocline.embedded.demo.interrupts import undisturbed
from thermocline.embedded.demo.site import Site
from thermocline.embedded.demo.stage import Stage, Task
from thermocline.embedded.stack import READY_TIMEOUT_SECONDS, Stack
from thermocline.embedded.workload import Event, produce
from thermocline.errors import EngineFailed
from thermocline.seam import Seam

PARTITIONS: Final = 4
# Short, so that several commits land within a minute.
COMMIT_INTERVAL_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.2

Condition = Callable[[Task], bool]
"""Whether a task is done; notes in it how far it is."""


@contextmanager
def running_stack(folder: Path, stage: Stage) -> Iterator[Stack]:
    """A stack whose broker runs; at the end, however that comes, all of its processes are stopped."""
    task = stage.begin("Kafka: a broker, a topic")

    def report(text: str) -> None:
        task.note = text

    stack = Stack(
        folder, partitions=PARTITIONS, commit_interval_seconds=COMMIT_INTERVAL_SECONDS, report=report
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


def open_site(stack: Stack, stage: Stage, events: Sequence[Event], clock: Clock) -> Site:
    """The site, with the events in the log, when the server answers and ingest has committed them.

    Raises:
        EngineFailed: a process ended, or was not ready in time.
    """
    site = Site(stack, clock)
    table = stage.begin("Iceberg: a table for it")
    with Background("table", lambda _: stack.create_table()) as creation:
        loading = stage.begin(f"{len(events):,} rows")
        produce(site.client_config, site.topic, events, site.oracle)
        per_second = len(events) / (clock.monotonic() - loading.began_at)
        stage.end(loading, f"written to Kafka, {per_second:,.0f} a second")
        creation.finish()
    identifier = stack.settings.table(site.table).identifier
    stage.end(table, f"{identifier}, format 3, merge-on-read")
    _start_processes(site, stage)
    return site


def _start_processes(site: Site, stage: Stage) -> None:
    """Returns when the server answers and has the rows from the table.

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
    _await(stack, stage, {title: (stage.begin(title), met) for title, met in conditions.items()})


def _served_seam(status: Mapping[str, Any], table: str) -> Seam:
    """Of the snapshot that the server answers from; empty while it is not ready."""
    point = status.get("tables", {}).get(table, {}).get("read_point")
    return Seam.from_dict(point["seam"]) if point else Seam()


def _await(stack: Stack, stage: Stage, pending: Mapping[str, tuple[Task, Condition]]) -> None:
    deadline = stage.clock.monotonic() + READY_TIMEOUT_SECONDS
    while pending:
        stack.check()
        for task, is_met in pending.values():
            if is_met(task):
                stage.end(task)
        pending = {title: waiting for title, waiting in pending.items() if waiting[0].seconds is None}
        if pending and stage.clock.monotonic() > deadline:
            detail = f"not ready within {READY_TIMEOUT_SECONDS:.0f} s; its log is in {stack.folder}"
            raise EngineFailed(engine=f"`{' and '.join(pending)}`", detail=detail)
        stage.clock.sleep(POLL_SECONDS)

"""Trino's part of the opening: it starts beside everything else, and waits for the views."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from embedded.demo.background import Background
from embedded.demo.site import Site
from embedded.demo.stage import Stage, Task
from embedded.demo.story import ADA
from embedded.demo.view_door import ANALYST, View, count_sql, rows_sql
from embedded.demo.waiting import Pending, await_all
from embedded.trino import START_TIMEOUT_SECONDS, WITH_KAFKA
from thermocline.errors import TrinoRefused, TrinoUnreachable
from thermocline.jvm.trino_java import find_trino_java

FETCH_TITLE: Final = "Trino: its files, once"
TITLE: Final = "Trino: one server"
VIEWS_TITLE: Final = "the live view in Trino"
# How long a Ctrl-C waits at most for the thread.
LOOK_SECONDS: Final = 0.5


def fetch_trino(stage: Stage) -> None:
    """Brings Trino and a Java for it, shown as a task of its own where they are not there.

    Raises:
        DependencyMissing: they could not be had.
    """
    fetching: list[Task] = []

    def report(text: str) -> None:
        if not fetching:
            fetching.append(stage.begin(FETCH_TITLE))
        fetching[0].note = text

    java = find_trino_java(WITH_KAFKA.java_versions, report=report)
    WITH_KAFKA.tree(java=java, report=report)
    for task in fetching:
        stage.end(task)


@contextmanager
def trino_starting(site: Site, stage: Stage) -> Iterator[Pending]:
    """Starts Trino in a thread, and gives what to wait for; without Trino, nothing."""
    trino = site.stack.trino
    if trino is None:
        yield {}
        return

    def start(stop: threading.Event) -> None:
        site.stack.start_trino()
        deadline = site.clock.monotonic() + START_TIMEOUT_SECONDS
        while not stop.is_set():
            try:
                trino.wait(LOOK_SECONDS)
            except TrinoUnreachable:
                trino.check()  # one that has ended never answers
                if site.clock.monotonic() > deadline:
                    raise
            else:
                return

    task = stage.begin(TITLE)
    with Background("trino", start) as starting:

        def is_up(task: Task) -> bool:
            task.note = f"Iceberg and Kafka connectors, at {trino.url}"
            starting.check()
            return not starting.is_running

        yield {TITLE: (task, is_up)}


def await_views(site: Site, stage: Stage, rows: int) -> None:
    """Returns when ingest has published the views, and an analyst counts all rows in the full one.

    The one by key is asked, too: Trino's first queries take longer, which is not to be measured.

    Raises:
        EngineFailed: they did not come in time, or a process ended.
    """
    if site.stack.trino is None:
        return
    ask = site.ask()
    count_all = count_sql(f"{site.table_in_trino}_{View.LIVE}")
    by_key = rows_sql(f"{site.table_in_trino}_{View.BY_KEY}", [ADA])

    def is_published(task: Task) -> bool:
        try:
            ask(by_key)
            count = ask(count_all)[0][0]
        except (TrinoRefused, TrinoUnreachable):
            task.note = "published by ingest"
            return False
        task.note = f"user {ANALYST} counts {count:,} rows"
        return bool(count == rows)

    await_all(site.stack, stage, {VIEWS_TITLE: (stage.begin(VIEWS_TITLE), is_published)})

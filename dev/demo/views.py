"""Asks the live views in Trino as an analyst does, and measures how fresh they are."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from itertools import count
from typing import Any, Final

from thermocline.dev.demo.figures import Summary, Timings, ViewFigures
from thermocline.dev.demo.lookups import Entity
from thermocline.dev.demo.writer import Writer
from thermocline.dev.oracle import Row, RowKey, named
from thermocline.errors import TrinoRefused, TrinoUnreachable, VerdictBad
from thermocline.process.clock import Clock
from thermocline.text.shown import json_text

ANALYST: Final = "ana"
"""Who asks: a user that may read views, and nothing else."""
COLUMNS: Final = ("app_id", "user_id", "key", "value", "updated_at")
RETRY_SECONDS: Final = 0.2
# Each query reads the hot window from Kafka: a few in a second leave a small machine to ingest and serving.
PAUSE_SECONDS: Final = (0.2, 0.6)
LIVE_EVERY: Final = 3
"""Of so many changes one is awaited in the full view, too: its margin takes as long as some by key."""
MARGIN_MORE_SECONDS: Final = 0.01
"""Trino's Kafka connector leaves out the millisecond that the full view ends at, too."""
PROBE: Final = (7, "view_probe")
PROBE_ROWS: Final = 16
"""More than partitions, so that each of those is written to."""

Ask = Callable[[str], list[tuple[Any, ...]]]
"""The rows that a query gives. Raises `TrinoUnreachable` and `TrinoRefused`."""


class View(StrEnum):
    """The live views of a table; what follows its name in theirs."""

    LIVE = "live"
    BY_KEY = "live_by_key"


class Views:
    """The live views of one table. A query that Trino refuses is counted. For one thread, but its figures."""

    def __init__(self, ask: Ask, table: str, clock: Clock) -> None:
        """``table`` is the table's name in Trino, with catalog and schema."""
        self.timings = {view: Timings() for view in View}
        self.refused = 0
        self._ask = ask
        self._table = table
        self._clock = clock

    def check(self, view: View, row: RowKey, value: str | None) -> float | None:
        """The seconds that a view took to say that the row has this value, which must be the last written.

        None where Trino did not answer. Raises `VerdictBad` where the view says something else.
        """
        began = self._clock.monotonic()
        try:
            said = value_in(self._rows(view, [row[:2]]), row)
        except (TrinoRefused, TrinoUnreachable):
            self.refused += 1
            self._clock.sleep(RETRY_SECONDS)
            return None
        if said != value:
            says = f"{named(row)} is {json_text(said)} in {view}"
            raise VerdictBad(detail=f"{says}, but {json_text(value)} was written last")
        seconds = self._clock.monotonic() - began
        self.timings[view].add(seconds)
        return seconds

    def all_rows(self, ending: str) -> list[Row]:
        """All rows of the view TABLE_``ending``. Raises as `Ask`."""
        return self._rows(ending)

    def _rows(self, ending: str, entities: Sequence[Entity] = ()) -> list[Row]:
        found = self._ask(rows_sql(f"{self._table}_{ending}", entities))
        return [dict(zip(COLUMNS, row, strict=True)) for row in found]


class ViewProbe:
    """Changes rows of its own, one after the other, and times when each change is seen through Trino."""

    def __init__(self, writer: Writer, views: Views, margin_seconds: float, seed: int, clock: Clock) -> None:
        self._writer = writer
        self._views = views
        self._margin_seconds = margin_seconds + MARGIN_MORE_SECONDS
        self._random = random.Random(seed)  # pauses that fall into step with nothing
        self._clock = clock
        self._timings = {view: Timings() for view in View}

    def run(self, stop: threading.Event) -> None:
        """Until told to stop. Raises `VerdictBad` and `KafkaUnreachable`."""
        rest_seconds = 0.0
        for number in count():
            # At least as long as the last query took: a small machine has time for others then.
            if stop.wait(max(self._random.uniform(*PAUSE_SECONDS), rest_seconds)):
                return
            row, value = (*PROBE, f"probe_{number % PROBE_ROWS:02d}"), f"written as number {number}"
            acknowledged_at = self._writer.write(row, value).acknowledged_at
            for view in (View.BY_KEY, View.LIVE)[: 1 if number % LIVE_EVERY else 2]:
                if view is View.LIVE:  # it leaves out the last moments before a query
                    passed = self._clock.monotonic() - acknowledged_at
                    self._clock.sleep(max(self._margin_seconds - passed, 0.0))
                while (seconds := self._views.check(view, row, value)) is None and not stop.is_set():
                    pass
                if seconds is not None:
                    rest_seconds = seconds
                    self._timings[view].add(self._clock.monotonic() - acknowledged_at)

    def figures(self, *others: Views) -> ViewFigures:
        """As of now; with the queries of others."""
        asked = (self._views, *others)
        queries = {view: Timings(*(views.timings[view] for views in asked)) for view in View}
        return ViewFigures(
            freshness_ms=_summaries(self._timings),
            query_ms=_summaries(queries),
            answers=sum(map(len, queries.values())),
            refused=sum(views.refused for views in asked),
        )


def _summaries(timings: Mapping[View, Timings]) -> dict[str, Summary]:
    return {view.value: timings[view].summary() for view in (View.BY_KEY, View.LIVE)}


def value_in(rows: Iterable[Mapping[str, Any]], row: RowKey) -> str | None:
    """The row's value in an answer for its entity; None where it has no such row."""
    return next((found["value"] for found in rows if found["key"] == row[2]), None)


def rows_sql(view: str, entities: Sequence[Entity] = ()) -> str:
    """A query for the rows of some entities, or for all of them."""
    select = f"SELECT {', '.join(COLUMNS)} FROM {view}"  # noqa: S608  names of ours, quoted values
    quoted = ((app_id, user_id.replace("'", "''")) for app_id, user_id in entities)
    which = " OR ".join(f"(app_id = {app_id} AND user_id = '{user_id}')" for app_id, user_id in quoted)
    return f"{select} WHERE {which}" if entities else select

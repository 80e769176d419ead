"""Asks the views in Trino, and keeps each answer with what was in the log before and after it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from embedded.demo.lookups import Entity
from embedded.demo.timings import Timings
from embedded.oracle import Oracle, Row
from thermocline.errors import TrinoRefused, TrinoUnreachable
from thermocline.process.clock import Clock
from thermocline.rules.seam import Seam

ANALYST: Final = "ana"
"""Who asks: a user that may read views, and nothing else."""
COLUMNS: Final = ("app_id", "user_id", "key", "value", "updated_at")
# The last ones, where the demo runs for hours: some kB each, and a few in a second.
KEPT_MAX: Final = 10_000
RETRY_SECONDS: Final = 0.2

Ask = Callable[[str], list[tuple[Any, ...]]]
"""The rows that a query gives. Raises `TrinoUnreachable` and `TrinoRefused`."""
Connect = Callable[[str], Ask]
"""Opens a session, for one thread, with the Trino at this address."""


class View(StrEnum):
    """The live views of a table; what follows its name in theirs."""

    LIVE = "live"
    BY_KEY = "live_by_key"


@dataclass(frozen=True, slots=True)
class Seen:
    """An answer of a view: all rows of some entities, or, without any, how many rows there are.

    ``acknowledged`` is how far Kafka had acknowledged, and ``asked_ms`` what the clock said, when it was
    asked; ``answered_ms`` is what the clock said when all of the answer was there.
    """

    view: View
    entities: tuple[Entity, ...]
    rows: tuple[Row, ...]
    count: int
    acknowledged: Seam
    asked_ms: int
    answered_ms: int


class ViewDoor:
    """One session with Trino, for one thread. An answer that Trino refuses is counted."""

    def __init__(self, ask: Ask, table: str, oracle: Oracle, clock: Clock) -> None:
        """``table`` is the table's name in Trino, with catalog and schema."""
        self.kept: deque[Seen] = deque(maxlen=KEPT_MAX)
        self.answers = 0
        self.refused = 0
        self.timings = {view: Timings() for view in View}
        self._last_seconds = 0.0
        self._ask = ask
        self._table = table
        self._oracle = oracle
        self._clock = clock

    def rest_seconds(self, least: float) -> float:
        """How long to leave Trino alone before more is asked: at least as long as the last query took.

        So those who ask again and again leave a small machine time for others.
        """
        return max(least, self._last_seconds)

    def rows_of(self, view: View, entities: Sequence[Entity]) -> tuple[Row, ...] | None:
        """All rows of these entities; None where Trino did not answer."""
        seen = self._seen(view, tuple(entities), rows_sql(self._named(view), entities))
        return None if seen is None else seen.rows

    def count(self, view: View) -> int | None:
        """How many rows the view has; None where Trino did not answer."""
        seen = self._seen(view, (), count_sql(self._named(view)))
        return None if seen is None else seen.count

    def all_rows(self, ending: str) -> list[Row]:
        """All rows of the view TABLE_``ending``. Raises as `Ask`."""
        return [row_of_tuple(found) for found in self._ask(rows_sql(self._named(ending)))]

    def _named(self, ending: str) -> str:
        return f"{self._table}_{ending}"

    def _seen(self, view: View, entities: tuple[Entity, ...], sql: str) -> Seen | None:
        acknowledged, asked_ms = self._oracle.end, self._clock.now_ms()
        began = self._clock.monotonic()
        try:
            found = self._ask(sql)
        except (TrinoRefused, TrinoUnreachable):
            self.refused += 1
            self._last_seconds = self._clock.monotonic() - began
            self._clock.sleep(RETRY_SECONDS)
            return None
        self._last_seconds = self._clock.monotonic() - began
        self.timings[view].add(self._last_seconds)
        rows = tuple(map(row_of_tuple, found)) if entities else ()
        count = len(rows) if entities else int(found[0][0])
        seen = Seen(view, entities, rows, count, acknowledged, asked_ms, self._clock.now_ms())
        self.kept.append(seen)
        self.answers += 1
        return seen


def rows_sql(view: str, entities: Sequence[Entity] = ()) -> str:
    """A query for the rows of some entities, or for all of them."""
    select = f"SELECT {', '.join(COLUMNS)} FROM {view}"  # noqa: S608  names of ours, quoted values
    if not entities:
        return select
    return f"{select} WHERE {' OR '.join(map(_condition, entities))}"


def count_sql(view: str) -> str:
    """A query for the number of rows."""
    return f"SELECT count(*) FROM {view}"  # noqa: S608  a name of ours


def row_of_tuple(found: tuple[Any, ...]) -> Row:
    """A row of an answer in the oracle's form."""
    return dict(zip(COLUMNS, found, strict=True))


def _condition(entity: Entity) -> str:
    app_id, user_id = entity
    quoted = user_id.replace("'", "''")
    return f"(app_id = {app_id} AND user_id = '{quoted}')"

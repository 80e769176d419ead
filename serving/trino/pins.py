"""One state of the hot tier for all scans of a query.

Trino makes one literal of ``current_timestamp`` in each query, so all scans of a query bring the same token.
The first one takes a state, the others find it. A query whose state is let go is refused: it is never given
another one, since what its scans have read so far would not fit. Nor is one whose state an earlier process
may have held.

That this holds between processes needs no equal clocks: a token is only taken if it is at most
`AHEAD_MICROSECONDS` beyond this machine's time, so any that an earlier process took is older than this
process's start and as much.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

from thermocline.errors import LiveViewRefused

if TYPE_CHECKING:
    from thermocline.process.clock import Clock
    from thermocline.serving.hot.view import HotView

__all__ = ["PinnedState", "Pins"]

AHEAD_MICROSECONDS: Final = 1_000_000
"""How far Trino's clock may be ahead: clocks that are kept in time differ by milliseconds."""
SHARED_SECONDS: Final = 0.05
"""Queries that begin within this share a state: it bounds their number, and is what a record takes anyway."""
STATES_MAX: Final = 64
"""Each takes a reader's slot in up to nine generations, of 1,024 that all processes share."""
IDLE_SECONDS: Final = 60.0
"""Trino asks for the next rows within seconds, however long it works on them: it reads ahead."""
PRESSED_SECONDS: Final = 5.0
"""The same where others need a state: of a query with a LIMIT nobody says that it is over."""
READ_SECONDS: Final = 2.0
"""After all scans are read to their end: a query that names the view twice may begin with the second."""
ENDED_MAX: Final = 10_000
"""Of queries whose state is let go; beyond it, the oldest stand for all that are older."""


_numbers = count(1)


@dataclass(slots=True)
class PinnedState:
    """A view of the hot tier, open until no query needs it.

    ``number`` is its alone. ``lock`` is for whoever reads it.
    """

    number: int
    view: HotView
    taken_at: float
    queries: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def close(self) -> None:
        """Lets go of the hot tier."""
        with self.lock:
            self.view.__exit__(None, None, None)


@dataclass(slots=True)
class _Query:
    state: PinnedState
    used_at: float
    splits: int = 0
    scans: int = 0
    is_read: bool = False


class Pins:
    """The states of one table, by token. For any threads."""

    def __init__(self, table: str, take: Callable[[], HotView], clock: Clock) -> None:
        """``take`` gives an open view that fits the table, or raises why there is none."""
        self._table = table
        self._take = take
        self._clock = clock
        self._lock = threading.Lock()
        self._floor = clock.now_ms() * 1000 + AHEAD_MICROSECONDS
        self._queries: dict[int, _Query] = {}
        self._ended: set[int] = set()
        self._newest: PinnedState | None = None

    def begin(self, token: int, scans: int, splits: int) -> PinnedState:
        """The state of the query, whose scan has so many splits; its first scan takes one.

        Raises:
            LiveViewRefused: the query may have had another state, or too many are held.
            ThermoclineError: as ``take``.
        """
        with self._lock:
            self._let_go()
            query = self._queries.get(token)
            if query is None:
                query = self._queries[token] = _Query(self._state_for(token), self._clock.monotonic())
                query.state.queries += 1
            query.used_at = self._clock.monotonic()
            query.scans += 1
            query.splits += splits
            query.is_read = query.splits == 0 and query.scans >= scans
            return query.state

    def use(self, token: int) -> PinnedState:
        """The state of a query that has one. Raises `LiveViewRefused`."""
        with self._lock:
            query = self._queries.get(token)
            if query is None:
                raise self._refused("the state that it began to read is let go")
            query.used_at = self._clock.monotonic()
            return query.state

    def split_read(self, token: int, scans: int) -> None:
        """Notes that one of the query's splits was read to its end."""
        with self._lock:
            query = self._queries.get(token)
            if query is not None:
                query.splits -= 1
                query.is_read = query.splits <= 0 and query.scans >= scans

    def tend(self) -> None:
        """Lets go of what no query needs any more; to be called about once a second."""
        with self._lock:
            self._let_go()

    def close(self) -> None:
        """Lets go of all."""
        with self._lock:
            for token in list(self._queries):
                self._end(token)
            self._drop_newest()

    def _state_for(self, token: int) -> PinnedState:
        if token <= self._floor:  # safety: trino-token-of-this-process
            raise self._refused("it began before this server did, or long ago")
        if token in self._ended:  # safety: trino-never-again
            raise self._refused("the state that it began to read is let go")
        if token > self._clock.now_ms() * 1000 + AHEAD_MICROSECONDS:  # safety: trino-token-ahead
            raise self._refused("it is of a time to come: Trino's clock and this server's differ by a second")
        newest, now = self._newest, self._clock.monotonic()
        if newest is not None and now - newest.taken_at <= SHARED_SECONDS:
            return newest
        if self._states() >= STATES_MAX:
            self._let_go(PRESSED_SECONDS)
        if self._states() >= STATES_MAX:
            raise self._refused(f"{STATES_MAX} states are held for others")
        taken = PinnedState(next(_numbers), self._take(), now)
        self._drop_newest()
        self._newest = taken
        return taken

    def _states(self) -> int:
        return len({query.state.number for query in self._queries.values()})

    def _let_go(self, idle_seconds: float = IDLE_SECONDS) -> None:
        now = self._clock.monotonic()
        for token, query in list(self._queries.items()):
            if now - query.used_at > (READ_SECONDS if query.is_read else idle_seconds):
                self._end(token)
        if self._newest is not None and now - self._newest.taken_at > SHARED_SECONDS:
            self._drop_newest()

    def _end(self, token: int) -> None:
        state = self._queries.pop(token).state
        self._ended.add(token)
        while len(self._ended) > ENDED_MAX:
            oldest = min(self._ended)
            self._ended.remove(oldest)
            self._floor = max(self._floor, oldest)
        state.queries -= 1
        if state.queries == 0 and state is not self._newest:
            state.close()

    def _drop_newest(self) -> None:
        newest, self._newest = self._newest, None
        if newest is not None and newest.queries == 0:
            newest.close()

    def _refused(self, detail: str) -> LiveViewRefused:
        return LiveViewRefused(table=self._table, detail=detail)

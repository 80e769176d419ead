"""Live views of a server that is killed, paused and rebuilt, and whose table is altered: right, or refused.

A variable says how many times something happens to them; `make test-all` takes 14:

    export VIEWS_TEST_FAULTS=100
    .venv/bin/python -m pytest --full tests/views/stacked/test_server_failures_in_trino.py
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import cycle

import pytest
from trino.exceptions import TrinoQueryError

from tests.behaviour.topic import APP
from tests.views.stacked.hot_server import (
    COLUMNS,
    PARTITIONS,
    USERS,
    Follower,
    Rows,
    Server,
    Typed,
    as_rows,
    of_partition,
    read_from_server,
    serving,
)
from tests.views.stacked.viewed import ask
from thermocline.dev.stack import Stack

ROUNDS = int(os.environ.get("VIEWS_TEST_FAULTS", "14"))
ROUND_SECONDS_MAX = 200  # a server starts within 180, or the round fails
pytestmark = [pytest.mark.trino, pytest.mark.full, pytest.mark.timeout(ROUND_SECONDS_MAX * ROUNDS)]

TABLE = "hot_broken"
STALE_AFTER_SECONDS = 3.0
REFUSALS = ("[not-ready]", "Failed to load table")
"""The last one: nobody answers, or the connection ended."""
LISTED = ", ".join(f'"{name}"' for name in COLUMNS)


class Analyst:
    """Asks without a rest, and holds each answer against what was written."""

    def __init__(self, live: Typed, seed: int) -> None:
        self._live = live
        self._random = random.Random(seed)
        self._followers = [Follower(live.sent[partition]) for partition in range(PARTITIONS)]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.answered_at = 0.0
        """When the last query that was answered had begun."""
        self.outcomes: Counter[str] = Counter()
        self.refusal = ""
        """What the last query that was refused was told."""
        self.wrong: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def check(self) -> None:
        """Raises what was wrong with an answer."""
        if self.wrong is not None:
            raise self.wrong

    def _run(self) -> None:
        questions = cycle((self._whole, self._both, self._of_user))
        try:
            while not self._stop.is_set():
                began_at = time.monotonic()
                try:
                    next(questions)()
                except TrinoQueryError as error:
                    message = str(error.message)
                    assert any(one in message for one in REFUSALS), message
                    self.outcomes["refused"] += 1
                    self.refusal = message
                    continue
                self.outcomes["answered"] += 1
                self.answered_at = began_at
        except BaseException as error:  # noqa: BLE001  the test raises it
            self.wrong = error

    def _whole(self) -> None:
        self._follow(self._live.shown("live"))

    def _both(self) -> None:
        """Two views in one query: one state."""
        sides = " UNION ALL ".join(
            f"SELECT {LISTED}, '{view}' FROM lake.app.{TABLE}_{view}" for view in ("live", "live_by_key")
        )
        found = ask(self._live.stack, sides)
        live, by_key = (
            as_rows([row[:-1] for row in found if row[-1] == view]) for view in ("live", "live_by_key")
        )
        assert live == by_key
        self._follow(live)

    def _of_user(self) -> None:
        """A part of a state does not say which state it is of: the last one of the whole, or a later one."""
        user = self._random.randrange(USERS)
        rows = self._live.shown("live_by_key", f"app_id = {APP} AND user_id = 'u{user}'")
        assert {key[1] for key in rows} <= {f"u{user}"}
        self._followers[user % PARTITIONS].would_meet(rows, f"u{user}")

    def _follow(self, rows: Rows) -> None:
        for partition, follower in enumerate(self._followers):
            follower.follow(of_partition(rows, partition))


class Faults:
    """What happens to the server and its table."""

    def __init__(self, live: Typed, server: Server) -> None:
        self._live, self._server = live, server
        self._added = 0

    def maker_killed(self) -> None:
        self._server.child("live").kill()

    def maker_paused(self) -> None:
        maker = self._server.child("live")
        maker.suspend()
        time.sleep(2.0)
        maker.resume()

    def tailer_paused(self) -> None:
        tailer = self._server.child("tailer")
        tailer.suspend()
        time.sleep(2 * STALE_AFTER_SECONDS)
        tailer.resume()

    def server_killed(self) -> None:
        self._server.kill()
        self._server.start()

    def committed(self) -> None:
        self._live.ingest()
        self._server.publish()

    def rebuilt(self) -> None:
        """The server has lost its state: it reads the log again."""
        self._server.rebuild()
        self._server.publish()

    def altered(self) -> None:
        """A column more: the hot rows are read again by another definition."""
        self._added += 1
        text = self._live.config_path.read_text()
        self._live.config_path.write_text(f'{text}added_{self._added} = "string"\n')
        assert self._live.run("table", "alter", TABLE, "--yes") == 0
        self._server.publish()


@contextmanager
def asking(live: Typed) -> Iterator[list[Analyst]]:
    analysts = [Analyst(live, seed) for seed in range(2)]
    for analyst in analysts:
        analyst.start()
    try:
        yield analysts
    finally:
        for analyst in analysts:
            analyst.stop()
            print(f"in the end: {dict(analyst.outcomes)}, last refused with: {analyst.refusal}")
    for analyst in analysts:
        analyst.check()


def test_answers_are_right_or_refused_whatever_becomes_of_the_server(stack: Stack) -> None:
    """Goal: no answer is wrong, and answers come again, whatever is done to server and table meanwhile.

    Method: two analysts ask one query after the other while records come. Each answer must be the state after
    so many records of each partition, no fewer than of the answer before it; two views in one query must
    agree. A round does one thing, and ends when both have an answer to a question that they asked after it.
    """
    live = Typed(stack, TABLE)
    for user in range(USERS):
        live.put(user, user)
    live.topic.flush()
    live.ingest()
    read_from_server(live, STALE_AFTER_SECONDS)
    with serving(live) as server, live.traffic(), asking(live) as analysts:
        faults = Faults(live, server)
        kinds: list[Callable[[], None]] = [
            faults.maker_killed,
            faults.maker_paused,
            faults.committed,
            faults.server_killed,
            faults.tailer_paused,
            faults.rebuilt,
            faults.altered,
        ]
        for number in range(ROUNDS):
            fault = kinds[number % len(kinds)]
            fault()
            over_at = time.monotonic()

            def is_answered(over_at: float = over_at) -> bool:
                for one in analysts:
                    one.check()
                return all(one.answered_at > over_at for one in analysts)

            stack.wait_for(is_answered, f"both are answered after {fault.__name__}")
            print(f"round {number}, {fault.__name__}: {[dict(one.outcomes) for one in analysts]}")
    outcomes = analysts[0].outcomes + analysts[1].outcomes
    assert outcomes["answered"] >= 2 * ROUNDS
    assert outcomes["refused"] > 0

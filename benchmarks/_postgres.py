"""PostgreSQL with the rows of the benchmarked table, to compare lookups with."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import psutil
import psycopg

from benchmarks._load import ask_postgres, with_server_cpu
from benchmarks._report import say
from tests.ingest.postgres import HOST, local_postgres
from thermocline.dev.workload import Event

TABLE: Final = """
CREATE TABLE profiles (
    app_id int, user_id text, key text, value text, updated_at timestamptz, PRIMARY KEY (app_id, user_id, key)
)
"""
LOOKUP: Final = "SELECT * FROM profiles WHERE app_id = $1 AND user_id = $2 ORDER BY key"
START_ATTEMPTS_MAX: Final = 300  # half a minute
# All of five million rows, as Thermocline's workers and the page cache have them.
OPTIONS: Final = {"shared_buffers": "2GB"}


class Postgres:
    """A server that holds the rows."""

    def __init__(self, port: int) -> None:
        self._port, self._address = port, f"{HOST}:{port}"
        (self._process,) = (one for one in psutil.Process().children() if f"{port}" in one.cmdline())

    def load_of(
        self, users: Sequence[tuple[int, str]], connections: int, seconds: float, prepares: bool = True
    ) -> dict[str, float]:
        """Lookups of these users over so many connections, each of which has a process of the server's.

        Each ``prepares`` its statement once, or sends it with each lookup.
        """
        entities = [f"{app_id}\t{user_id}" for app_id, user_id in users]
        return with_server_cpu(
            lambda: ask_postgres(self._address, LOOKUP, entities, connections, seconds, prepares),
            self._cpu_seconds,
        )

    def copied(self) -> int:
        """The bytes of all rows as text, which are thrown away."""
        with (
            _connected(self._port) as connection,
            connection.cursor() as cursor,
            cursor.copy("COPY profiles TO STDOUT") as copy,
        ):
            return sum(map(len, copy))

    def _cpu_seconds(self) -> float:
        """Of the processes of connections that have ended, which all soon have."""
        while any(map(_is_of_connection, self._process.children())):
            time.sleep(0.05)
        times = self._process.cpu_times()
        return times.children_user + times.children_system


@contextmanager
def postgres_with(events: Iterable[Event]) -> Iterator[Postgres]:
    """A server whose table has a row for each event."""
    with local_postgres(OPTIONS) as port:
        with _connected(port) as connection:
            connection.execute(TABLE)
            with connection.cursor().copy("COPY profiles FROM STDIN") as copy:
                for event in events:
                    assert event.value is not None
                    fields = json.loads(event.value)
                    copy.write_row((*event.row, fields["value"], fields["updated_at"]))
            connection.execute("VACUUM ANALYZE profiles")
        say("  PostgreSQL has the rows")
        yield Postgres(port)


def _is_of_connection(process: psutil.Process) -> bool:
    try:
        return f" {HOST}(" in " ".join(process.cmdline())
    except psutil.ZombieProcess:
        return True
    except psutil.NoSuchProcess:
        return False


def _connected(port: int) -> psycopg.Connection:
    """As soon as the server has started up."""
    for _ in range(START_ATTEMPTS_MAX):
        with suppress(psycopg.OperationalError):
            return psycopg.connect(f"host={HOST} port={port} user=postgres", autocommit=True)
        time.sleep(0.1)
    raise AssertionError("PostgreSQL did not start")

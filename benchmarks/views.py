"""Queries of the live views, hot rows from Kafka and from the server: how long they take, how fresh they are.

By hot window, without ingest beside them; with ``--rate``, at the end also how fresh they are beside traffic
and commits. The demo measures that of views from Kafka (`benchmarks.freshness --trino`).
All views are asked by turns, so that what else the machine does slows down all of them: `cold` is what Trino
takes for the table alone. With ``--clients``, also many at once, and lookups beside them.

Records and bytes are those that Trino's scans of Kafka took in. What the broker sent for them is counted on
the loopback interface, which nothing else should use meanwhile: it holds what was thrown away, too.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import Any, Final

import psutil
import trino.dbapi

from benchmarks._beside import with_lookups
from benchmarks._report import percentiles_ms, report, say
from benchmarks._table import KEYS_PER_USER, Forgetful, filled, write
from benchmarks.lookup import lag
from thermocline.dev.demo.writer import Writer
from thermocline.dev.stack import TABLE, TOPIC, TRINO_ADMIN, Command, Stack
from thermocline.dev.workload import Workload, produce
from thermocline.iceberg.catalog import open_table
from thermocline.process.clock import SystemClock
from thermocline.views.limits import LIVE_TAG
from thermocline.views.publication import Publication

HOT_FROM: Final = ("kafka", "server")
BY_KEY_VIEWS: Final = ("cold", "live_by_key", "live")
WHOLE_VIEWS: Final = ("cold", "live")
"""A view by key would hold every row in memory for an answer of all of them."""
BY_KEY: Final = (
    "SELECT key, value, updated_at FROM lake.app.{table}_{view} WHERE app_id = {app} AND user_id = '{user}'"
)
EVERYTHING: Final = "SELECT count(*), count(value), max(updated_at) FROM lake.app.{table}_{view}"
WARM_UPS: Final = (
    50  # of each view; Java compiles for long: a Trino that has run for a while is what people ask
)
PROBE: Final = "probe"
ANALYSTS: Final = tuple(f"analyst_{number}" for number in range(5))
"""As Trino is configured, four queries of each run at once, and ten of all."""
SCANNING: Final = ("TableScanOperator", "ScanFilterAndProjectOperator")


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--hot", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--hot-from", nargs="+", choices=HOT_FROM, default=HOT_FROM)
    parser.add_argument("--queries", type=int, default=30, help="by key, of each view and hot window")
    parser.add_argument("--scans", type=int, default=5, help="of everything, of each view and hot window")
    parser.add_argument("--changes", type=int, default=100, help="awaited in each live view and hot window")
    parser.add_argument("--seconds-max", type=float, default=60.0, help="of each of these, and of a warm-up")
    parser.add_argument("--clients", type=int, nargs="*", default=[], help="at once, such as 1 8 20")
    parser.add_argument("--clients-seconds", type=float, default=20.0, help="of each number of clients")
    parser.add_argument("--rate", type=float, help="at the end, freshness beside so many records a second")
    parser.add_argument("--commit-seconds", type=float, default=60.0, help="between commits, with --rate")
    parser.add_argument("--trino-gb", type=int, default=4, help="of Trino's heap")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    figures: dict[str, Any] = {"rows": options.rows}
    with tempfile.TemporaryDirectory() as folder:
        stack = filled(
            Path(folder),
            options.rows,
            options.seed,
            trino_gb=options.trino_gb,
            views_hot="server",
            engine="local",
            commit_interval_seconds=options.commit_seconds,
        )
        with stack:
            server = stack.serve()
            stack.wait_until_ready(server)
            users = options.rows // KEYS_PER_USER
            analyst = _Analyst(stack, users, options)
            changes, written = iter(Workload(options.seed, users, KEYS_PER_USER)), 0
            for hot in sorted(options.hot):
                write(stack, islice(changes, hot - written))
                written = hot
                stack.wait_for(lambda: lag(stack) == 0, "the tailer has read all", server)
                for hot_from in options.hot_from:
                    analyst.publish(hot_from)
                    of_window = analyst.measure(server)
                    figures.setdefault(f"hot_{hot}", {})[hot_from] = of_window
                    for clients in options.clients:
                        of_window[f"clients_{clients}"] = analyst.load(server, clients)
                    say(f"  {hot:,} hot, from {hot_from}: {json.dumps(of_window)}")
            if options.rate is not None:
                analyst.publish("server")
                figures["busy"] = analyst.busy(options.rate)
    report("views", options.seed, figures)


@dataclass(frozen=True, slots=True)
class Asked:
    """One query: how long it took, of which Trino's CPU, and what its scans took in from Kafka."""

    seconds: float
    cpu_seconds: float
    records: int
    bytes: int


class _Analyst:
    """Asks the views for random users, and for everything."""

    def __init__(self, stack: Stack, users: int, options: argparse.Namespace) -> None:
        assert stack.trino is not None
        self._stack, self._trino, self._options = stack, stack.trino, options
        self._margin_seconds = 0.0
        self._writer = Writer(stack.settings.kafka.client_config(), TOPIC, Forgetful(), SystemClock())
        load = Workload(options.seed, users, KEYS_PER_USER).load()
        self._users = [event.row[:2] for event in islice(load, 0, None, KEYS_PER_USER)]
        random.Random(options.seed).shuffle(self._users)

    def publish(self, hot_from: str) -> None:
        """Make the views those that read hot rows from there."""
        own = self._stack.settings
        views = own.views.model_copy(update={"hot": hot_from})
        done = Publication(own.model_copy(update={"views": views}), TABLE, SystemClock())()
        assert done.stop is None, done.stop
        # The full view of Kafka's records leaves out what has just come.
        self._margin_seconds = own.views.margin_seconds if hot_from == "kafka" else 0.0
        time.sleep(self._margin_seconds)

    def measure(self, server: Command) -> dict[str, Any]:
        """One query after the other: by key, and of everything; then single changes."""
        with self._connected(ANALYSTS[0]) as connection:
            users = self._wanted(0)

            def by_key(view: str) -> Asked:
                return self._ask(connection, self._by_key(view, next(users)))

            def everything(view: str) -> Asked:
                return self._ask(connection, EVERYTHING.format(table=TABLE, view=view))

            self._by_turns(BY_KEY_VIEWS, WARM_UPS, by_key)
            cpu = _cpu_seconds(server)
            keyed = self._by_turns(BY_KEY_VIEWS, self._options.queries, by_key)
            cpu = _cpu_seconds(server) - cpu
            self._by_turns(WHOLE_VIEWS, 1, everything)
            before = _loopback_bytes()
            whole = self._by_turns(WHOLE_VIEWS, self._options.scans, everything)
            received = _loopback_bytes() - before
        return {
            "by_key_server_cpu_seconds": round(cpu, 3),
            "by_key": {view: _summary(asked) for view, asked in keyed.items()},
            "everything": {view: _summary(asked) for view, asked in whole.items()},
            "everything_loopback_bytes": received // len(whole["live"]),
            "freshness": {view: self._freshness(view) for view in BY_KEY_VIEWS if view != "cold"},
        }

    def _by_turns(
        self, views: Sequence[str], rounds: int, ask: Callable[[str], Asked]
    ) -> dict[str, list[Asked]]:
        """So many rounds, of which each asks every view once; fewer, but one, where they take too long."""
        end = time.monotonic() + self._options.seconds_max
        asked: dict[str, list[Asked]] = {view: [] for view in views}
        for done in range(rounds):
            if done and time.monotonic() > end:
                break
            for view in views:
                asked[view].append(ask(view))
        return asked

    def _freshness(self, view: str) -> dict[str, Any]:
        """Single changes of one row: from Kafka's acknowledgement to the first answer that has it.

        The full view of Kafka's records leaves out its margin, so that nobody asks it earlier.
        """
        app, user = self._users[0]
        margin = self._margin_seconds if view == "live" else 0.0
        seconds: list[float] = []
        end = time.monotonic() + self._options.seconds_max
        with self._connected(ANALYSTS[0]) as connection, closing(connection.cursor()) as cursor:
            for number in count():
                value = f"change {number} for {view} at {end}"
                written = self._writer.write((app, user, PROBE), value)
                time.sleep(margin)
                rows: list[Any] = []
                while [PROBE, value] not in [row[:2] for row in rows]:
                    cursor.execute(self._by_key(view, (app, user)))
                    rows = cursor.fetchall()
                seconds.append(time.monotonic() - written.acknowledged_at)
                if len(seconds) == self._options.changes or time.monotonic() > end:
                    break
        return {**percentiles_ms(seconds), "changes": len(seconds)}

    def busy(self, rate: float) -> dict[str, Any]:
        """Single changes beside traffic at that rate, and ingest that commits it."""
        stack, stop = self._stack, threading.Event()
        workload = Workload(self._options.seed + 1, len(self._users), KEYS_PER_USER)
        traffic = threading.Thread(
            target=produce,
            args=(stack.settings.kafka.client_config(), TOPIC, workload, Forgetful()),
            kwargs={"rate": rate, "stop": stop},
        )
        ingest = stack.ingest()
        traffic.start()
        commits = self._commits()
        try:
            stack.wait_for(lambda: self._commits() > commits, "ingest has committed", ingest)
            commits, began_at = self._commits(), time.monotonic()
            found = {view: self._freshness(view) for view in BY_KEY_VIEWS if view != "cold"}
            seconds = time.monotonic() - began_at
        finally:
            stop.set()
            traffic.join()
            ingest.stop()
        return {"rate": rate, "seconds": round(seconds), "commits": self._commits() - commits, **found}

    def _commits(self) -> int:
        return len(open_table(self._stack.settings, TABLE).metadata.snapshots)

    def load(self, server: Command, clients: int) -> dict[str, Any]:
        """So many at once for some seconds, by key: of the cold view, and of the live one."""
        lookups = [f"/v1/tables/{TABLE}/rows?app_id={app}&user_id={user}" for app, user in self._users]
        found: dict[str, Any] = {}
        for view in ("cold", "live_by_key"):
            before = _loopback_bytes()
            asked, beside = with_lookups(
                self._stack.url,
                lookups,
                server,
                lambda view=view: self._at_once(view, clients),  # type: ignore[misc]
            )
            seconds = self._options.clients_seconds
            found[view] = {
                **_summary(asked),
                **beside,
                "queries_per_second": round(len(asked) / seconds, 2),
                "kafka_records_per_second": round(sum(one.records for one in asked) / seconds),
                "loopback_bytes_per_second": round((_loopback_bytes() - before) / seconds),
            }
        return found

    def _at_once(self, view: str, clients: int) -> list[Asked]:
        asked: list[Asked] = []
        end = time.monotonic() + self._options.clients_seconds

        def client(number: int) -> None:
            with self._connected(ANALYSTS[number % len(ANALYSTS)]) as connection:
                wanted = self._wanted(number + 1)
                while time.monotonic() < end:
                    asked.append(self._ask(connection, self._by_key(view, next(wanted))))

        threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return asked

    def _connected(self, user: str) -> Any:
        host, port = self._trino.host, self._trino.port
        return closing(trino.dbapi.connect(host=host, port=port, user=user, client_tags=[LIVE_TAG]))

    def _wanted(self, number: int) -> Iterator[tuple[int, str]]:
        return iter(self._users[number * 1000 % len(self._users) :])

    def _by_key(self, view: str, user: tuple[int, str]) -> str:
        return BY_KEY.format(table=TABLE, view=view, app=user[0], user=user[1].replace("'", "''"))

    def _ask(self, connection: Any, sql: str) -> Asked:
        with closing(connection.cursor()) as cursor:
            began_at = time.monotonic()
            cursor.execute(sql)
            rows = cursor.fetchall()
            seconds = time.monotonic() - began_at
            assert rows
            info = self._query_info(cursor.query_id)
            return Asked(seconds, _seconds(info["queryStats"]["totalCpuTime"]), *_from_kafka(info))

    def _query_info(self, query_id: str) -> Mapping[str, Any]:
        request = urllib.request.Request(
            f"{self._trino.url}/v1/query/{query_id}", headers={"X-Trino-User": TRINO_ADMIN}
        )
        with urllib.request.urlopen(request) as answer:
            document: dict[str, Any] = json.load(answer)
        return document


def _summary(asked: Sequence[Asked]) -> dict[str, Any]:
    seconds = [one.seconds for one in asked]
    return {
        "least_ms": round(min(seconds) * 1000, 3),
        **percentiles_ms(seconds),
        "trino_cpu_ms": round(1000 * median(one.cpu_seconds for one in asked), 3),
        "queries": len(asked),
        "kafka_records_max": max(one.records for one in asked),
        "kafka_bytes_max": max(one.bytes for one in asked),
    }


def _from_kafka(query: Mapping[str, Any]) -> tuple[int, int]:
    """The records and bytes that a query's scans of Kafka took in."""
    stages = {one["fragmentId"] for one in query["inputs"] if one["connectorName"] == "kafka"}
    operators: Sequence[Mapping[str, Any]] = [
        one
        for one in query["queryStats"]["operatorSummaries"]
        if str(one["stageId"]) in stages and one["operatorType"] in SCANNING
    ]
    return (
        sum(one["physicalInputPositions"] for one in operators),
        sum(_bytes(one["physicalInputDataSize"]) for one in operators),
    )


def _seconds(duration: str) -> float:
    """As Trino writes one, such as 1.50ms."""
    number, unit = re.fullmatch(r"([0-9.]+)([a-z]+)", duration).groups()  # type: ignore[union-attr]
    return float(number) * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}[unit]


def _cpu_seconds(server: Command) -> float:
    """What the processes of the server have used."""
    top = psutil.Process(server.process.pid)
    return sum(sum(one.cpu_times()[:2]) for one in (top, *top.children(recursive=True)))


def _bytes(size: str) -> int:
    return int(size.removesuffix("B"))


def _loopback_bytes() -> int:
    return int(psutil.net_io_counters(pernic=True)["lo"].bytes_recv)


if __name__ == "__main__":
    main()

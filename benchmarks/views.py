"""Queries of the live views: how long they take, how fresh they are, and what each takes from the brokers.

By hot window, without ingest beside them: for freshness under traffic see `benchmarks.freshness --trino`.

Records and bytes are those that Trino's scans of Kafka took in. What the broker sent for them is counted on
the loopback interface, which nothing else should use meanwhile: it holds what was thrown away, too.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final

import psutil
import trino.dbapi

from benchmarks._report import percentiles_ms, report, say
from benchmarks._table import KEYS_PER_USER, Forgetful, filled, write
from embedded.demo.writer import Writer
from embedded.stack import TABLE, TOPIC, TRINO_ADMIN, Stack
from embedded.workload import Workload
from thermocline.process.clock import SystemClock

VIEWS: Final = {"cold": True, "live_by_key": False, "live": True}
"""Whether it is asked for everything: a view by key would hold every row in memory for that."""
BY_KEY: Final = (
    "SELECT key, value, updated_at FROM lake.app.{table}_{view} WHERE app_id = {app} AND user_id = '{user}'"
)
EVERYTHING: Final = "SELECT count(*), count(value), max(updated_at) FROM lake.app.{table}_{view}"
WARM_UPS: Final = 150  # Java compiles for long: a Trino that has run for a while is what people ask
WARM_UP_SECONDS: Final = 60.0
BY_KEY_SECONDS: Final = 60.0  # of each view and hot window, at most
SCANS: Final = 3
CHANGES: Final = 20  # that are awaited in each view
PROBE: Final = "probe"
ANALYST: Final = "analyst"
SCANNING: Final = ("TableScanOperator", "ScanFilterAndProjectOperator")


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--hot", type=int, nargs="+", default=[0, 10_000, 100_000, 1_000_000])
    parser.add_argument("--queries", type=int, default=30, help="by key, of each view and hot window")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 4, 8])
    parser.add_argument("--seconds", type=float, default=10.0, help="of each number of clients")
    parser.add_argument("--trino-gb", type=int, default=4, help="of Trino's heap")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    figures: dict[str, Any] = {"rows": options.rows}
    with tempfile.TemporaryDirectory() as folder:
        stack = filled(Path(folder), options.rows, options.seed, trino_gb=options.trino_gb)
        with stack:
            stack.run("views-publish", "views", "publish", TABLE)
            users = options.rows // KEYS_PER_USER
            analyst = _Analyst(stack, users, options.seed)
            changes, written = iter(Workload(options.seed, users, KEYS_PER_USER)), 0
            for hot in sorted(options.hot):
                write(stack, islice(changes, hot - written))
                written = hot
                # `live` leaves out what has just come.
                time.sleep(2 * stack.settings.views.margin_seconds)
                figures[f"hot_{hot}"] = {
                    **{view: analyst.measure(view, options.queries, whole) for view, whole in VIEWS.items()},
                    "freshness": {view: analyst.freshness(view) for view in ("live_by_key", "live")},
                    "by_clients": {
                        clients: analyst.load("live_by_key", clients, options.seconds)
                        for clients in options.clients
                    },
                }
                say(f"  {hot:,} hot: {figures[f'hot_{hot}']}")
    report("views", options.seed, figures)


@dataclass(frozen=True, slots=True)
class Asked:
    """One query: how long it took, and what its scans took in from Kafka."""

    seconds: float
    records: int
    bytes: int


class _Analyst:
    """Asks the views for random users, and for everything."""

    def __init__(self, stack: Stack, users: int, seed: int) -> None:
        assert stack.trino is not None
        self._trino = stack.trino
        self._margin_seconds = stack.settings.views.margin_seconds
        client_config = stack.settings.kafka.client_config()
        self._writer = Writer(client_config, TOPIC, Forgetful(), SystemClock())
        load = Workload(seed, users, KEYS_PER_USER).load()
        self._users = [event.row[:2] for event in islice(load, 0, None, KEYS_PER_USER)]
        random.Random(seed).shuffle(self._users)

    def measure(self, view: str, queries: int, whole: bool) -> dict[str, Any]:
        """One query after the other: by key, and of everything."""
        figures: dict[str, Any] = {}
        with self._connected() as connection:
            wanted, scan = self._wanted(0), EVERYTHING.format(table=TABLE, view=view)

            def by_key_for(seconds: float, queries: int) -> list[Asked]:
                end = time.monotonic() + seconds
                asked = [self._ask(connection, self._by_key(view, next(wanted)))]
                while len(asked) < queries and time.monotonic() < end:
                    asked.append(self._ask(connection, self._by_key(view, next(wanted))))
                return asked

            by_key_for(WARM_UP_SECONDS, WARM_UPS)
            by_key = by_key_for(BY_KEY_SECONDS, queries)
            figures["by_key"] = percentiles_ms([one.seconds for one in by_key])
            figures["by_key_queries"] = len(by_key)
            figures["by_key_kafka_records"] = max(one.records for one in by_key)
            if whole:
                self._ask(connection, scan)
                before = _loopback_bytes()
                everything = [self._ask(connection, scan) for _ in range(SCANS)]
                figures["everything_seconds"] = round(min(one.seconds for one in everything), 2)
                figures["everything_kafka_records"] = everything[0].records
                figures["everything_kafka_bytes"] = everything[0].bytes
                figures["everything_loopback_bytes"] = (_loopback_bytes() - before) // SCANS
        return figures

    def freshness(self, view: str) -> dict[str, Any]:
        """Single changes of one row: from Kafka's acknowledgement to the first answer that has it.

        The full view leaves out its margin, so that nobody asks it earlier.
        """
        app, user = self._users[0]
        margin = self._margin_seconds if view == "live" else 0.0
        seconds = []
        with self._connected() as connection, closing(connection.cursor()) as cursor:
            for number in range(CHANGES):
                value = f"change {number} for {view}"
                written = self._writer.write((app, user, PROBE), value)
                time.sleep(margin)
                rows: list[Any] = []
                while [PROBE, value] not in [row[:2] for row in rows]:
                    cursor.execute(self._by_key(view, (app, user)))
                    rows = cursor.fetchall()
                seconds.append(time.monotonic() - written.acknowledged_at)
        return percentiles_ms(seconds)

    def load(self, view: str, clients: int, seconds: float) -> dict[str, Any]:
        """Clients that ask by key, each one query after the other, for some seconds."""
        asked: list[Asked] = []
        end = time.monotonic() + seconds

        def client(number: int) -> None:
            with self._connected() as connection:
                wanted = self._wanted(number)
                while time.monotonic() < end:
                    asked.append(self._ask(connection, self._by_key(view, next(wanted))))

        threads = [threading.Thread(target=client, args=(number,)) for number in range(1, clients + 1)]
        before, began_at = _loopback_bytes(), time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.monotonic() - began_at
        return {
            **percentiles_ms([one.seconds for one in asked]),
            "queries_per_second": round(len(asked) / took, 2),
            "kafka_records_per_second": round(sum(one.records for one in asked) / took),
            "loopback_bytes_per_second": round((_loopback_bytes() - before) / took),
        }

    def _connected(self) -> Any:
        return closing(trino.dbapi.connect(host=self._trino.host, port=self._trino.port, user=ANALYST))

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
            return Asked(seconds, *_from_kafka(self._query_info(cursor.query_id)))

    def _query_info(self, query_id: str) -> Mapping[str, Any]:
        request = urllib.request.Request(
            f"{self._trino.url}/v1/query/{query_id}", headers={"X-Trino-User": TRINO_ADMIN}
        )
        with urllib.request.urlopen(request) as answer:
            document: dict[str, Any] = json.load(answer)
        return document


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


def _bytes(size: str) -> int:
    return int(size.removesuffix("B"))


def _loopback_bytes() -> int:
    return int(psutil.net_io_counters(pernic=True)["lo"].bytes_recv)


if __name__ == "__main__":
    main()

"""A server of small tables that are well, empty or in trouble, for tests that look at its pages."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import uvicorn

from tests.thermocline.profiles import PROFILES
from thermocline.serving.http.app import create_app
from thermocline.serving.http.guard import OPEN, Guard
from thermocline.serving.read.tables import ServedTable, Tables
from thermocline.serving.tail.table_facts import (
    Bar,
    CommitFact,
    LeaseFact,
    OwnerFact,
    RewriteFact,
    SchemaCauseFact,
    SchemaChangeFact,
    StandbyFact,
    TableFacts,
    VersionFact,
    ViewFact,
)
from thermocline.settings import ServingSettings

NOW_MS = 1_800_000_000_000
QUARTER_MS = 900_000
HOSTILE = "<script>alert(1)</script>"
OWNER = OwnerFact(
    host="ingest-1",
    pid=4711,
    epoch=7,
    since="2026-01-01T00:00:00+00:00",
    renewed="2026-01-01T00:00:30+00:00",
    lease_seconds=60.0,
    ended="",
    stopped_by="",
    stopped_because="",
    is_gone=False,
)


STANDBY = StandbyFact("ingest-2", 815, "2026-01-01T00:00:10+00:00", "2026-01-01T00:00:30+00:00")
BROKEN = {
    "caught_up_to_start_ends": True,
    "problem": {
        "code": "kafka-unreachable",
        "what": "Kafka does not answer: broker:9092: connection refused",
        "next": "start the broker, or correct kafka.bootstrap_servers",
    },
}
"""What a tailer says whose broker is gone."""


def facts_of(now_ms: int, **more: Any) -> TableFacts:
    """Those of a table that commits once a minute; its newest batch took four seconds."""
    first = now_ms // QUARTER_MS * QUARTER_MS
    bars = tuple(
        Bar(
            first - place * QUARTER_MS,
            commits=15,
            records=1_000 + 37 * (place * 7 % 20),
            deleted_rows=120 + place % 9 * 20,
            rewrites=1,
            seconds_max=2.0 + place % 13 * 0.3,
        )
        for place in range(90, -1, -1)
    )
    recent = (CommitFact("4712", now_ms - 12_000, "commit", 310, 40, 0, 4.0),)
    made = TableFacts(
        "uuid",
        now_ms,
        60.0,
        1,
        3,
        240,
        bars=bars,
        recent=recent,
        last_commit_ms=now_ms - 12_000,
        last_commit_seconds=4.0,
        drained_ms=now_ms - 16_000,
        rewritten_ms=now_ms - 3_600_000,
        totals={"read": 90_000, "quarantined": 3},
        rewrites=(RewriteFact(50_000_000, 2.0), RewriteFact(150_000_000, 6.0)),
        versions=(
            VersionFact(1, now_ms - 90_000_000, "17"),
            VersionFact(
                2,
                now_ms - 7_200_000,
                "4231",
                ("score: new column, double", "topic late feeds the table, too"),
            ),
        ),
        schema_change=SchemaChangeFact(
            2,
            now_ms - 7_200_000,
            ("score: new column, double",),
            (SchemaCauseFact(("score",), "orders/1@117", "value", "7", "version 2 of orders-value"),),
        ),
        owner=OWNER,
        owner_at_ms=now_ms,
        standby_at_ms=now_ms,
        views=(
            ViewFact("shop.orders_live", "live", "4712", now_ms + 3_600_000, 2, ""),
            ViewFact(
                "shop.orders_live_by_key", "live_by_key", None, None, 2, "[offsets-gone] the log was cut"
            ),
            ViewFact("shop.orders_cold", "cold", "4711", None, 2, ""),
        ),
        views_at_ms=now_ms - 9_000,
        leases=(LeaseFact("leases", "extract of orders, process 12 on host-a", {"4712": now_ms + 600_000}),),
        expired_ms=now_ms - 1_800_000,
        waiting_snapshots=15,
        waiting_bytes=52_000_000,
        closely_at_ms=now_ms,
    )
    return msgspec.structs.replace(made, **more)


def tailer_of(now_ms: int, **more: Any) -> dict[str, Any]:
    """What the tailer of a table says that was fresh all hour."""
    ages = [0.02 + minute % 7 * 0.01 for minute in range(60)]
    recent = {"ends_ms": now_ms, "seconds": ages}
    said = {"state": "running", "paused": False, "caught_up_to_start_ends": True, "hot_records": 6}
    return {**said, "hot_bytes": 81_920, "bad": {}, "recent_ages": recent, **more}


class Site:
    """Tables in a folder, and a server of them."""

    def __init__(self, served: Callable[..., tuple[Any, ServedTable]], folder: Path) -> None:
        self.folder = folder
        self._served = served
        self.tables: list[ServedTable] = []
        self.worlds: dict[str, Any] = {}
        folder.mkdir()

    def add(
        self, name: str, rows: int = 30, tailer: dict[str, Any] | None = None, worn: int = 0, **facts: Any
    ) -> ServedTable:
        """A table with rows, the last not committed yet; ``tailer`` and facts beside the usual ones."""
        definition = replace(PROFILES, name=name)
        world, table = self._served(definition)
        for number in range(rows):
            world.produce(
                {"app_id": 7, "user_id": f"u{number}", "key": "a"},
                {"value": "red", "updated_at": "2026-01-02T03:04:05Z"},
                partition=number % 3,
            )
        if rows:
            world.commit()
            for _ in range(worn):  # the rows of one bucket, again and again
                for number in range(0, rows, 2):
                    world.produce({"app_id": 7, "user_id": "worn", "key": f"{number}"}, {"value": "red"})
                world.commit()
            world.publish()
            world.produce({"app_id": 7, "user_id": "u0", "key": "a"}, None)
        world.tail()
        now_ms = world.clock.now_ms()
        (world.folder / "tailer.json").write_bytes(msgspec.json.encode(tailer_of(now_ms, **(tailer or {}))))
        (world.folder / "table.json").write_bytes(msgspec.json.encode(facts_of(now_ms, **facts)))
        table.refresh()
        self.tables.append(table)
        self.worlds[name] = world
        return table

    def app(self, guard: Guard = OPEN) -> Any:
        """The app of these tables."""
        settings = ServingSettings(state_dir=self.folder, stale_after_seconds=5.0)
        return create_app(Tables(self.tables), settings, guard=guard)


@contextmanager
def listening(app: Any) -> Iterator[str]:
    """The URL of a server of the app, in a thread."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, loop="asyncio", ws="none", log_config=None, access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.02)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


def keep_fresh(worlds: Sequence[Any], stop: threading.Event) -> threading.Thread:
    """Tails the worlds again and again, so that their tables stay fresh."""

    def tail() -> None:
        for world in worlds:
            world.tail()

    def keep() -> None:
        while not stop.wait(0.5):
            tail()

    tail()
    thread = threading.Thread(target=keep)
    thread.start()
    return thread

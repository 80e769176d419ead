"""The tables of a process: those of a route that other processes made, and one that is taken and not owned.

Method: what opens and owns tables is replaced; what is left is which tables are taken, in which order.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from thermocline.errors import ExitCode, KafkaUnreachable
from thermocline.iceberg.catalog import ROUTED_PROPERTY
from thermocline.ingest.owner.observers import Observers
from thermocline.ingest.owner.routing import Routing
from thermocline.ingest.run import Ended, Hooks, run
from thermocline.rules.routes.directory import Directory
from thermocline.settings import CatalogSettings, KafkaSettings, Settings

ROUTE = {
    "topics": ["events"],
    "by": {"field": "type"},
    "table": "app.events_{}",
    "denied": ["debug"],
    "key": ["id"],
    "columns": {"id": "int"},
}
SETTINGS = Settings.model_validate(
    {
        "kafka": KafkaSettings(bootstrap_servers="broker:9092"),
        "catalog": CatalogSettings(uri="sqlite:///none.db", warehouse="none"),
        "routes": {"events": ROUTE},
    }
).with_directories()
MADE_BY_ANOTHER = Directory({"order": "order", "debug": "debug"})
ROUNDS_MAX = 3


@dataclass
class Owned:
    """Stands for `Owner`: each is asked for a batch, for which the log has nothing. Ends the process."""

    stop: threading.Event = field(default_factory=threading.Event)
    taken: list[str] = field(default_factory=list)
    closed: list[tuple[str, object]] = field(default_factory=list)
    rounds: int = 0

    def take(self, opening: Any, *_: object) -> Any:
        name = opening.claim.name
        self.taken.append(name)
        if name == "events_order":
            self.stop.set()
        routing = Routing("events", SETTINGS.routes["events"], cast("Any", None), MADE_BY_ANOTHER)
        return SimpleNamespace(
            routing=routing if name == "events" else None,
            close=lambda error=None: self.closed.append((name, error)),
            prepare=self.prepare,
            topics=SimpleNamespace(look=lambda _: None),
            definition=SimpleNamespace(name=name, topics=(), merging=SimpleNamespace(is_keyed=True)),
            engine=None,
            log=None,
            lag_records=0,
            must_reload=False,
            maintain=lambda: None,
            upkeep=SimpleNamespace(slowdown=1.0),
            settings=SimpleNamespace(commit_interval_seconds=0.01),
        )

    def prepare(self) -> None:
        self.rounds += 1
        if self.rounds >= ROUNDS_MAX:
            self.stop.set()


def opening(_: Settings, name: str, *__: object) -> Any:
    lease = SimpleNamespace(is_free=lambda: True)
    return SimpleNamespace(claim=SimpleNamespace(name=name, lease=lease, wait_until_free=lambda _: None))


@pytest.fixture
def owned(monkeypatch: pytest.MonkeyPatch) -> Owned:
    owned = Owned()
    engine = SimpleNamespace(check=lambda: None, stop=lambda: None)
    for name, one in {
        "Opening": SimpleNamespace(of=opening),
        "Owner": owned,
        "Log": lambda _: object(),
        "observers_of": lambda *_: Observers(),
        "start_engine": lambda *_: engine,
        "catch_up": lambda owners, _: [(owner, ExitCode.DONE) for owner in owners],
        "is_up_to_date": lambda *_: False,
    }.items():
        monkeypatch.setattr(f"thermocline.ingest.run.{name}", one)
    return owned


def test_who_takes_a_directory_over_ingests_the_tables_that_its_owners_before_made(owned: Owned) -> None:
    ended = run(SETTINGS, ("events",), once=False, stop=owned.stop, standby=True)
    assert owned.taken == ["events", "events_order"]
    assert ended == (Ended("events", ExitCode.DONE), Ended("events_order", ExitCode.DONE))
    assert sorted(owned.closed) == [("events", None), ("events_order", None)]


def test_once_is_for_the_tables_that_were_made_meanwhile_too(owned: Owned) -> None:
    ended = run(SETTINGS, ("events",), once=True, stop=threading.Event())
    assert ended == (Ended("events", ExitCode.DONE), Ended("events_order", ExitCode.DONE))
    known = SETTINGS.with_routed("events", ["order"])
    assert [one.table for one in run(known, ("events",), once=True, stop=threading.Event())] == ["events"]


def test_nor_does_a_directory_without_new_records_keep_its_tables_from_that(
    owned: Owned, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = SimpleNamespace(properties={ROUTED_PROPERTY: MADE_BY_ANOTHER.to_json()})
    monkeypatch.setattr("thermocline.ingest.run.is_up_to_date", lambda _, name, __: name == "events")
    monkeypatch.setattr("thermocline.ingest.run.open_table", lambda *_: directory)
    ended = run(SETTINGS, ("events",), once=True, stop=threading.Event())
    assert ended == (Ended("events", ExitCode.NOTHING_TO_DO), Ended("events_order", ExitCode.DONE))
    assert owned.taken == ["events_order"]


def test_a_table_that_was_taken_is_freed_when_what_comes_next_fails(
    owned: Owned, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = KafkaUnreachable(bootstrap_servers="broker:9092", detail="away")

    def failing(*_: object) -> Any:
        raise error

    hooks = Hooks(upkeep=failing)
    (ended,) = run(SETTINGS, ("events_order",), once=False, stop=owned.stop, hooks=hooks)
    assert (ended.error, owned.closed) == (error, [("events_order", error)])
    monkeypatch.setattr("thermocline.ingest.run.observers_of", failing)
    (ended,) = run(SETTINGS, ("events_order",), once=True, stop=threading.Event())
    assert (ended.error, owned.closed[1:]) == (error, [("events_order", error)])

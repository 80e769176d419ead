"""Which tables a server serves: those that it can, as they come and go."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.serving.small_lake import (
    create_table,
    get,
    lake_settings,
    read_pickled,
    table_settings,
    until,
)
from thermocline.errors import ForeignSnapshot, TableMissing
from thermocline.iceberg import catalog as catalogs
from thermocline.process.clock import SystemClock
from thermocline.serving.hot import disk_room
from thermocline.serving.http.app import create_app
from thermocline.serving.process.children import Child, Children, listening_file
from thermocline.serving.process.server import dealt, load_definitions, serve
from thermocline.serving.read.tables import ServedTable, Tables
from thermocline.settings import ServingSettings, Settings

MISSING = b'{"catalog_problem": {"code": "table-missing", "what": "there is none", "next": ""}}'
UNREACHABLE = b'{"catalog_problem": {"code": "catalog-unreachable", "what": "it is unavailable", "next": ""}}'
BROKEN = b'{"catalog_problem": {"code": "foreign-snapshot", "what": "it is not ours", "next": ""}}'


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Three tables: of one there is a table, one is missing, and one is not ours."""
    settings = lake_settings(tmp_path, "good", "late", "foreign")
    for name in ("good", "foreign"):
        create_table(settings, name)
    _set_definition(settings, None)
    return settings


def _set_definition(settings: Settings, text: str | None) -> None:
    table = catalogs.open_catalog(settings.catalog).load_table("app.foreign")
    with table.transaction() as change:
        if text is None:
            change.remove_properties(catalogs.DEFINITION_PROPERTY)
        else:
            change.set_properties({catalogs.DEFINITION_PROPERTY: text})


@pytest.fixture
def running(settings: Settings, tmp_path: Path) -> Iterator[tuple[Any, Path]]:
    """The server in a process of its own, and the file that it reads again."""
    file = tmp_path / "settings"
    file.write_bytes(pickle.dumps(settings))
    more = {"read_again": partial(read_pickled, file)}
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(settings,), kwargs=more)
    process.start()
    until(lambda: get(settings, "/livez")[0] == 200)
    yield process, file
    process.kill()
    process.join()


def test_tables_come_and_go_while_a_server_runs(running: tuple[Any, Path], settings: Settings) -> None:
    """Goal: a missing or broken table keeps no other one from being served, and is served once it is mended.

    Method: a table without a snapshot that is indexed has none in /status; the broker is down, so none gets
    ready. Then the configuration loses one table and gains another.
    """
    process, file = running
    until(lambda: _snapshots(settings) == {"good"})
    until(lambda: get(settings, "/v1/tables/late")[0] == 404)
    status, missing = get(settings, "/v1/tables/late/rows?id=1")
    assert (status, missing["code"], missing["next"]) == (
        404,
        "table-missing",
        "thermocline table create late",
    )
    until(lambda: get(settings, "/v1/tables/foreign")[0] == 503)
    broken = get(settings, "/v1/tables/foreign")[1]
    assert broken["code"] == "not-ready"
    assert "[foreign-snapshot] " in broken["detail"]

    create_table(settings, "late")
    _set_definition(settings, settings.tables["foreign"].definition("foreign").to_json())
    until(lambda: _snapshots(settings) == {"good", "late", "foreign"})

    status, unknown = get(settings, "/v1/tables/added")
    assert (status, unknown["code"]) == (404, "unknown-table")
    began = unknown["detail"].partition(", the tables of this server are ")
    assert began[0].startswith('no table "added" is configured. Since its start at 20')
    assert began[2] == "good, late, foreign."

    file.write_bytes(b"")
    os.kill(process.pid, signal.SIGHUP)  # a file that can't be read changes nothing
    tables = {name: settings.tables[name] for name in ("good", "foreign")} | {
        "added": table_settings("added")
    }
    changed = settings.model_copy(update={"tables": tables})
    create_table(changed, "added")
    time.sleep(1)
    assert get(settings, "/v1/tables") == (200, {"tables": ["good", "late", "foreign"]})
    file.write_bytes(pickle.dumps(changed))
    os.kill(process.pid, signal.SIGHUP)
    answers: set[int] = set()

    def has_changed() -> bool:
        answers.add(get(settings, "/livez")[0])
        return _snapshots(settings) == {"good", "foreign", "added"}

    until(has_changed)
    assert answers == {200}, "the workers before end only once those after them listen"
    # A worker that is about to end may still be asked.
    until(lambda: ". Since its reload at 20" in get(settings, "/v1/tables/late")[1].get("detail", ""))
    assert process.is_alive()


def _snapshots(settings: Settings) -> set[str]:
    """The tables of which a tailer knows a snapshot."""
    tables = (get(settings, "/status")[1] or {}).get("tables", {})
    return {name for name, one in tables.items() if one["tailer"].get("snapshot_id")}


def test_a_server_that_can_serve_none_of_its_tables_says_why_of_the_first(tmp_path: Path) -> None:
    settings = lake_settings(tmp_path, "one", "two")
    catalogs.open_catalog(settings.catalog, may_create=True)
    with pytest.raises(TableMissing, match="table one does not exist"):
        serve(settings)


def test_what_is_wrong_with_a_table_is_logged_with_a_command(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    definitions = load_definitions(settings)
    assert list(definitions) == ["good", "late", "foreign"]
    said = [vars(record)["fields"] for record in caplog.records]
    assert [(one["table"], one["code"]) for one in said] == [
        ("late", TableMissing.code),
        ("foreign", ForeignSnapshot.code),
    ]
    assert said[0]["next"] == "thermocline table create late"


@pytest.mark.parametrize(
    ("says", "status", "not_served"),
    [
        (MISSING, 200, {"other": "[table-missing] there is none"}),
        (BROKEN, 200, {"other": "[foreign-snapshot] it is not ours"}),
        (b"{}", 503, None),  # it is just getting ready: another server may be
        (b'{"catalog_problem": null}', 503, None),
    ],
)
def test_a_table_that_no_server_could_serve_takes_none_out_of_a_load_balancer(
    new_world: Callable[..., Any],
    client_of: Callable[..., Any],
    says: bytes,
    status: int,
    not_served: dict[str, str] | None,
) -> None:
    world, other = new_world(), _Named(new_world(), "other")
    world.commit()
    world.publish()
    world.tail()
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true, "catalog_problem": null}')
    (other.world.folder / "tailer.json").write_bytes(says)
    ready = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    ready.refresh()
    with client_of(
        create_app(Tables([ready, other.table]), ServingSettings(state_dir=world.folder))
    ) as client:
        answer = client.get("/readyz")
        assert answer.status_code == status
        assert answer.json().get("not_served") == not_served


@pytest.mark.parametrize("says", [MISSING, UNREACHABLE])
def test_a_server_without_any_table_that_it_can_read_is_not_ready(
    new_world: Callable[..., Any], client_of: Callable[..., Any], says: bytes
) -> None:
    alone = _Named(new_world(), "alone")
    (alone.world.folder / "tailer.json").write_bytes(says)
    alone.table.refresh()
    with client_of(create_app(Tables([alone.table]), ServingSettings())) as client:
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")


class _Named:
    """A world's table under another name."""

    def __init__(self, world: Any, name: str) -> None:
        self.world = world
        self.table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
        self.table.name = name


def _hang_up(child: Child) -> None:
    """As whoever asks for a reload, once the child runs."""
    until(lambda: child.process is not None)
    os.kill(os.getpid(), signal.SIGHUP)


def _runs(_: object) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pause()


def test_a_process_that_does_the_same_goes_on_and_one_that_listens_ends_last(tmp_path: Path) -> None:
    """Method: the successor of the one that listens does so only once we say it, and until then both run."""

    def child(name: str, serves: str, is_api: bool = False) -> Child:
        is_listening = (lambda pid: listening_file(tmp_path, pid).exists()) if is_api else None
        return Child(name, _runs, (serves,), serves=serves, is_listening=is_listening)

    before = [child("tailer a", "a"), child("tailer b", "b"), child("api", "a, b", is_api=True)]
    after = [child("tailer a", "a"), child("tailer c", "c"), child("api", "a, c", is_api=True)]
    children = Children(before, SystemClock())

    def listen() -> None:
        until(lambda: after[2].process is not None)
        seen.append(before[2].process.has_ended())  # type: ignore[union-attr]
        listening_file(tmp_path, after[2].process.pid).touch()  # type: ignore[union-attr]
        until(before[2].process.has_ended)  # type: ignore[union-attr]
        os.kill(os.getpid(), signal.SIGTERM)

    def reload() -> list[Child]:
        thread.start()
        return after

    seen: list[bool] = []
    thread = threading.Thread(target=listen)
    threading.Thread(target=_hang_up, args=(before[2],)).start()
    children.watch("http://127.0.0.1:9", reload)
    thread.join()
    tailers = [before[0].process, before[1].process, after[0].process, after[1].process]
    assert seen == [False]
    assert [one is not None and not one.has_ended() for one in tailers] == [True, False, False, True]
    children.stop()


def test_a_server_says_what_disk_it_has_and_needs(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two tables of at most 8 GB of hot records and 1 GB of rows each, by default."""
    caplog.set_level("INFO")
    free = {"bytes": 600_000_000}
    monkeypatch.setattr(disk_room, "free_bytes", lambda _: free["bytes"])
    disk_room.log_disk_room(settings.serving, 2)
    free["bytes"] = 500_000_000
    disk_room.log_disk_room(settings.serving, 2)
    enough, short = caplog.records
    assert (enough.levelname, short.levelname) == ("INFO", "WARNING")
    assert vars(enough)["fields"] == {
        "path": str(settings.serving.state_dir),
        "free_bytes": 600_000_000,
        "kept_bytes": 536_870_912,
        "used_bytes_max": 18_000_000_000,
    }


def test_each_table_has_a_process_while_there_are_enough() -> None:
    assert dealt({"a": ["t"], "b": ["t"], "c": ["u"]}, 4) == [("a",), ("b",), ("c",)]


def test_tables_of_the_same_topics_share_a_process_and_those_of_many_are_spread() -> None:
    topics = {f"t{topic}_{number}": [f"t{topic}", "all"] for number in range(3) for topic in range(4)}
    assert dealt(topics, 4) == [tuple(f"t{topic}_{number}" for number in range(3)) for topic in range(4)]
    one = {f"n{number}": ["t"] for number in range(9)}
    assert dealt(one, 4) == [("n0", "n4", "n8"), ("n1", "n5"), ("n2", "n6"), ("n3", "n7")]
    more = dealt({**one, "n9": ["t"]}, 4)
    assert [names for names in more if "n9" not in names] == [("n0", "n4", "n8"), ("n2", "n6"), ("n3", "n7")]


def test_no_process_has_more_than_twice_its_share_of_the_tables(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(200):
        count, processes = chance.randint(1, 60), chance.randint(1, 8)
        topics = {f"n{number}": [f"t{chance.randrange(chance.randint(1, 20))}"] for number in range(count)}
        found = dealt(topics, processes)
        assert sorted(name for names in found for name in names) == sorted(topics)
        assert len(found) <= processes
        assert max(map(len, found)) <= 2 * -(-count // processes)

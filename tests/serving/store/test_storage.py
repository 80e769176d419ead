"""Disks and stores that fail under a reader: each read path says so by name, and answers when asked again."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmdb
import msgspec
import pytest

from tests.behaviour.armed import armed_by, has_fired
from tests.failpoints.arming import arm, disarm
from tests.serving.http.test_app import served
from tests.serving.read.test_private import private_world
from tests.serving.wire import AppTransport
from thermocline.cli.server_answers import Client
from thermocline.client import Retries
from thermocline.errors import NotReady, StorageFailed
from thermocline.serving.hot.view import HotReader
from thermocline.serving.read import private
from thermocline.serving.read.tables import ServedTable
from thermocline.serving.store.storage import storage_failed

__all__ = ["private_world", "served"]

OK = 200
USER = {"app_id": 7, "user_id": "u1"}


def look_up(client: Any) -> Any:
    return client.get("/v1/tables/profiles/rows", params=USER)


def look_up_several(client: Any) -> Any:
    return client.post("/v1/tables/profiles/rows:batch", json={"entities": [USER]})


def extract(client: Any) -> Any:
    return client.post("/v1/tables/profiles/extract")


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    with armed_by(tmp_path / "armed") as path:
        yield path


@pytest.mark.parametrize(
    ("ask", "point"),
    [
        (look_up, "cold.read"),
        (look_up_several, "cold.read"),
        (extract, "reader.lease"),
        (extract, "pin.name"),
        (extract, "extract.begin"),
        (extract, "extract.bucket"),
    ],
)
def test_a_disk_that_fails_is_named_and_may_be_asked_again(
    served: SimpleNamespace,
    file: Path,
    caplog: pytest.LogCaptureFixture,
    ask: Callable[[Any], Any],
    point: str,
) -> None:
    answer = _asked_with_a_fault(served, file, caplog, ask, point)
    assert (answer.status_code, answer.json()["code"]) == (503, "storage-failed")
    assert answer.json()["retryable"] is True
    assert answer.headers["Retry-After"]
    (record,) = caplog.records
    assert point in record.__dict__["fields"]["cause"], "the log has what the system said"
    assert point not in answer.text, "which is nobody else's business"
    assert ask(served.client).status_code == 200


def _asked_with_a_fault(
    served: SimpleNamespace,
    file: Path,
    caplog: pytest.LogCaptureFixture,
    ask: Callable[[Any], Any],
    point: str,
) -> Any:
    """Asked again where the heartbeat of a lease that an earlier test left met the point first."""
    for _ in range(5):
        arm(file, f"{point}=error@1")
        with caplog.at_level(logging.ERROR, "thermocline.serving.http.problems"):
            answer = ask(served.client)
        assert has_fired(file, f"{point}=error@1")
        if answer.status_code != OK:
            return answer
    raise AssertionError("others always met the point first")


@pytest.mark.parametrize("error", [lmdb.DiskError("/a/path"), lmdb.MapFullError("/a/path"), OSError(5, "/a")])
def test_a_hot_tier_that_cannot_be_read_is_named(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fail(_: object, __: object) -> None:
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(HotReader, "begin", fail)
        for ask in (look_up, look_up_several, extract, lambda client: client.get("/readyz")):
            answer = ask(served.client)
            assert (answer.status_code, answer.json()["code"]) == (503, "storage-failed")
            assert "/a" not in answer.text.replace("/a table", "")
        status = served.client.get("/status")
        assert (status.status_code, status.json()["tables"]["profiles"]["ready"]) == (200, False)
        assert served.client.get("/metrics").status_code == 200
    assert look_up(served.client).status_code == 200


def test_the_client_raises_the_failure_that_the_server_named(served: SimpleNamespace, file: Path) -> None:
    client = Client("http://server", AppTransport(served.client), Retries(attempts_max=1))
    arm(file, "cold.read=error@1")
    with pytest.raises(StorageFailed, match="Input/output error"):
        client.lookup("profiles", {"app_id": "7", "user_id": "u1"})


@pytest.mark.parametrize(
    "point",
    ["hot.append", "hot.publish", "cold.index-file", "cold.publish", "reader.lease", "pin.name", "cold.read"],
)
def test_a_command_without_a_server_names_it_too(
    private_world: SimpleNamespace, file: Path, point: str
) -> None:
    _produce(private_world)
    _refused_with_a_fault(
        lambda: private.lookup(private_world.settings, "profiles", {"app_id": "7", "user_id": "u0"}),
        file,
        point,
    )
    assert private.lookup(private_world.settings, "profiles", {"app_id": "7", "user_id": "u0"})["rows"]


@pytest.mark.parametrize("point", ["hot.roll", "extract.begin", "extract.bucket"])
def test_an_extract_without_a_server_names_it_too(
    private_world: SimpleNamespace, file: Path, point: str
) -> None:
    _produce(private_world)
    _refused_with_a_fault(lambda: _extract(private_world, io.BytesIO()), file, point)
    _extract(private_world, io.BytesIO())


def _refused_with_a_fault(read: Callable[[], object], file: Path, point: str) -> None:
    """Read again where the heartbeat of a lease that an earlier test left met the point first."""
    for _ in range(5):
        arm(file, f"{point}=error@1")
        try:
            read()
        except StorageFailed:
            return
        assert has_fired(file, f"{point}=error@1")
    raise AssertionError("others always met the point first")


def test_a_sink_that_fails_is_not_taken_for_the_tables_disk(private_world: SimpleNamespace) -> None:
    class Broken(io.BytesIO):
        def write(self, _: object) -> int:
            raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        _extract(private_world, Broken())


def test_a_lease_that_could_not_be_written_is_written_as_soon_as_it_can_be(
    new_world: Callable[..., Any], file: Path
) -> None:
    """Goal: the tailer learns which snapshot a worker serves, or it would drop what the worker needs."""
    world = new_world()
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    for _ in ("the first one", "one that is replaced"):
        world.produce({**USER, "key": "e"}, {"value": "v"})
        world.tail()
        world.commit()
        world.publish()
        arm(file, "reader.lease=error")
        with pytest.raises(OSError, match=r"reader\.lease"):
            table.refresh()
        assert table.reader.cold.index.snapshot_id == world.newest
        disarm(file)
        table.refresh()
        (lease,) = (world.hot_folder / "leases").glob("*.json")
        assert msgspec.json.decode(lease.read_bytes())["snapshot_id"] == world.newest
    table.close()


def test_a_status_of_the_tailer_that_cannot_be_read_is_none(served: SimpleNamespace) -> None:
    status = served.world.folder / "tailer.json"
    status.unlink()
    status.mkdir()
    assert served.table.tailer() == {}


def test_what_is_not_ready_is_still_called_that(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object, __: object) -> None:
        raise NotReady(table="profiles", detail="d")

    monkeypatch.setattr(HotReader, "begin", fail)
    assert look_up(served.client).json()["code"] == "not-ready"


def test_the_words_are_those_of_the_system_and_no_path() -> None:
    assert storage_failed("t", OSError(28, "x", "/a")).detail == "No space left on device"
    assert storage_failed("t", lmdb.MapFullError("/a")).detail == "MapFullError"


def _produce(world: SimpleNamespace) -> None:
    world.world.produce({"app_id": 7, "user_id": "u0", "key": "hot"}, {"value": "v"})


def _extract(world: SimpleNamespace, sink: Any) -> None:
    private.extract(world.settings, "profiles", None, "arrow", sink, None, lambda _: None)

"""The live catalog's answers: the forms of the Iceberg REST specification, and no way to change a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from thermocline.errors import CatalogUnreachable, NotReady, ReadPointGone, ThermoclineError
from thermocline.serving.http.app import create_app
from thermocline.serving.http.guard import Guard
from thermocline.serving.live.channel import Asked, LiveChannel
from thermocline.serving.live.maker import Loaded
from thermocline.serving.read.caller import EVERYONE, Action, Caller, Grant, Part
from thermocline.serving.read.tables import ServedTable, Tables
from thermocline.settings import ServingSettings

TABLE = "/iceberg/v1/namespaces/app/tables/profiles"


class FakeChannel:
    """Gives a snapshot, or raises."""

    def __init__(self) -> None:
        self.loaded = Loaded("one-1", b'{"of": "all"}')
        self.asked: list[Asked] = []
        self.error: ThermoclineError | None = None

    async def ask(self, asked: Asked) -> Loaded:
        self.asked.append(asked)
        if self.error is not None:
            raise self.error
        return self.loaded


@pytest.fixture
def live(new_world: Callable[..., Any], client_of: Callable[..., Any]) -> Iterator[SimpleNamespace]:
    world = new_world()
    world.commit()
    world.publish()
    world.tail()
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true}')
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    table.refresh()
    channel = FakeChannel()
    callers = [EVERYONE]
    settings = ServingSettings(state_dir=world.folder)
    app = create_app(
        Tables([table]), settings, live=cast("LiveChannel", channel), guard=Guard(lambda _: callers[0])
    )
    with client_of(app) as client:
        yield SimpleNamespace(client=client, world=world, channel=channel, callers=callers)


def error_of(answer: Any) -> tuple[int, str]:
    error = answer.json()["error"]
    assert error["code"] == answer.status_code
    assert error["message"]
    return answer.status_code, error["type"]


def test_an_engine_finds_the_table_by_its_identifier(live: SimpleNamespace) -> None:
    get = live.client.get
    assert get("/iceberg/v1/config").json()["overrides"] == {"snapshot-loading-mode": "all"}
    assert "GET /v1/{prefix}/namespaces/{namespace}/tables" in get("/iceberg/v1/config").json()["endpoints"]
    assert get("/iceberg/v1/namespaces").json() == {"namespaces": [["app"]]}
    assert get("/iceberg/v1/namespaces?parent=app").json() == {"namespaces": []}
    assert get("/iceberg/v1/namespaces/app").json() == {"namespace": ["app"], "properties": {}}
    listed = get("/iceberg/v1/namespaces/app/tables").json()
    assert listed == {"identifiers": [{"namespace": ["app"], "name": "profiles"}]}
    assert live.channel.asked == []


def test_a_load_names_its_snapshot_and_is_not_repeated(live: SimpleNamespace) -> None:
    whole = live.client.get(TABLE)
    assert (whole.status_code, whole.json()) == (200, {"of": "all"})
    assert live.client.get(f"{TABLE}?snapshots=refs").json() == {"of": "all"}
    again = live.client.get(TABLE, headers={"If-None-Match": whole.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    live.channel.loaded = Loaded("one-2", b"{}")
    later = live.client.get(TABLE, headers={"If-None-Match": whole.headers["ETag"]})
    assert later.status_code == 200
    assert live.channel.asked == 4 * [Asked("profiles", {})]


def test_an_earlier_load_is_asked_for_by_its_name(live: SimpleNamespace) -> None:
    assert live.client.get(f"{TABLE}@one-1").status_code == 200
    assert live.client.head(f"{TABLE}@one-1").status_code == 204
    assert live.channel.asked == [Asked("profiles", {}, "one-1")]
    live.channel.error = ReadPointGone(table="profiles", detail="there is no such load")
    assert error_of(live.client.get(f"{TABLE}@one-2")) == (404, "NoSuchTableException")


def test_a_load_waits_for_the_records_that_a_request_names(live: SimpleNamespace) -> None:
    live.world.produce({"app_id": 7, "user_id": "u1", "key": "k"}, {"value": "mine"})
    live.world.tail()
    assert live.client.get(TABLE, headers={"Thermocline-Read-After": "profiles/0@0"}).status_code == 200
    assert live.channel.asked == [Asked("profiles", {("profiles", 0): 0})]
    wrong = live.client.get(TABLE, headers={"Thermocline-Read-After": "profiles"})
    assert error_of(wrong) == (400, "BadRequestException")


def test_whether_a_table_exists_is_told_without_making_a_snapshot(live: SimpleNamespace) -> None:
    assert live.client.head(TABLE).status_code == 204
    assert live.client.head("/iceberg/v1/namespaces/app").status_code == 204
    assert live.client.head(f"{TABLE}s").status_code == 404
    assert live.client.head("/iceberg/v1/namespaces/other").status_code == 404
    assert live.channel.asked == []


def test_what_there_is_not_is_an_error_of_the_specification(live: SimpleNamespace) -> None:
    get = live.client.get
    assert error_of(get(f"{TABLE}s")) == (404, "NoSuchTableException")
    of_metadata = "/iceberg/v1/namespaces/app%1Fprofiles/tables/snapshots"
    assert error_of(get(of_metadata)) == (404, "NoSuchTableException")
    assert error_of(get("/iceberg/v1/namespaces/other/tables")) == (404, "NoSuchNamespaceException")
    assert error_of(get("/iceberg/v1/namespaces?parent=other")) == (404, "NoSuchNamespaceException")
    assert error_of(get("/iceberg/v1/namespaces/app/views")) == (404, "NoSuchEndpointException")


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", TABLE),
        ("DELETE", TABLE),
        ("POST", "/iceberg/v1/namespaces/app/tables"),
        ("POST", "/iceberg/v1/namespaces/app/register"),
        ("POST", "/iceberg/v1/namespaces"),
        ("DELETE", "/iceberg/v1/namespaces/app"),
        ("POST", "/iceberg/v1/namespaces/app/properties"),
        ("POST", "/iceberg/v1/tables/rename"),
        ("POST", "/iceberg/v1/transactions/commit"),
        ("POST", "/iceberg/v1/namespaces/app/views"),
    ],
)
def test_whatever_would_change_something_is_refused(live: SimpleNamespace, method: str, path: str) -> None:
    answer = live.client.request(method, path, json={})
    assert error_of(answer) == (403, "ForbiddenException")
    assert "read-only" in answer.json()["error"]["message"]


def test_a_report_of_a_scan_is_taken(live: SimpleNamespace) -> None:
    assert live.client.post(f"{TABLE}/metrics", json={"report-type": "scan-report"}).status_code == 204


def test_an_error_of_ours_names_its_code_and_the_next_step(live: SimpleNamespace) -> None:
    live.channel.error = NotReady(table="profiles", detail="its tailer has not begun to read the log")
    answer = live.client.get(TABLE)
    assert error_of(answer) == (503, "ServiceUnavailableException")
    assert answer.json()["error"]["message"].startswith("[not-ready] table profiles is not ready")
    live.channel.error = CatalogUnreachable(uri="lake", detail="refused")
    assert error_of(live.client.get(TABLE))[0] == 503


def test_a_caller_sees_only_tables_that_are_granted_and_whole(live: SimpleNamespace) -> None:
    live.callers[0] = Caller("somebody", grants={})
    assert live.client.get("/iceberg/v1/namespaces").json() == {"namespaces": []}
    assert error_of(live.client.get(TABLE)) == (404, "NoSuchTableException")
    part = Grant(frozenset({Action.CATALOG}), Part(scope=(("app_id", "7"),)))
    live.callers[0] = Caller("somebody", grants={"profiles": part})
    assert error_of(live.client.get(TABLE)) == (403, "ForbiddenException")  # the files have all rows
    assert live.channel.asked == []

"""An app that admits by a clients file: who is let in at which path, and what the others are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.manual_clock import ManualClock
from tests.serving.wire import value_of
from thermocline.process.clock import SystemClock
from thermocline.serving.access.admission import Admission
from thermocline.serving.access.clients_file import ClientsFile
from thermocline.serving.access.keys import ApiKey
from thermocline.serving.access.limits import Limits, RateLimits
from thermocline.serving.http.app import create_app
from thermocline.serving.http.guard import Guard
from thermocline.serving.read.caller import Credentials
from thermocline.serving.read.tables import ServedTable, Tables
from thermocline.settings import ServingSettings

KEY = ApiKey.new()
GRANT = '[clients.billing.tables.profiles]\nverbs = ["lookup"]\n'


@pytest.fixture
def served(
    new_world: Callable[..., Any], client_of: Callable[..., Any], tmp_path: Path
) -> Iterator[SimpleNamespace]:
    """A server whose table isn't ready, before a clients file with one key."""
    world = new_world()
    world.commit()
    path = tmp_path / "clients.toml"
    path.write_text(f'[clients.billing]\nkeys = [{{ id = "{KEY.id}", sha256 = "{KEY.hash()}" }}]\n{GRANT}')
    admission = Admission(ClientsFile(path), SystemClock())
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    settings = ServingSettings(state_dir=world.folder)
    with client_of(create_app(Tables([table]), settings, guard=Guard(admission))) as client:
        yield SimpleNamespace(client=client, path=path)


def of_key(key: ApiKey) -> dict[str, str]:
    return {"Authorization": f"Bearer {key.text}"}


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/tables", "/v1/tables/profiles", "/v1/tables/profiles/rows?app_id=7&user_id=u1", "/status"),
        *("/metrics", "/docs", "/openapi.json", "/nothing", "/readyz/", "http://testserver//readyz"),
        "/readyz/../v1/tables",
    ],
)
def test_without_credentials_nothing_but_probes_is_answered(served: SimpleNamespace, path: str) -> None:
    for headers in ({}, of_key(ApiKey.new()), {"Authorization": b"Basic \xe9"}):
        answer = served.client.get(path, headers=headers, follow_redirects=False)
        assert (answer.status_code, answer.json()["code"]) == (401, "unauthenticated")
        assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
        assert "profiles" not in answer.json()["detail"]


def test_the_live_catalog_tells_engines_in_their_form(served: SimpleNamespace) -> None:
    answer = served.client.get("/iceberg/v1/config")
    assert (answer.status_code, answer.json()["error"]["type"]) == (401, "NotAuthorizedException")


def test_a_probe_needs_no_credentials_and_is_told_nothing(served: SimpleNamespace) -> None:
    assert served.client.get("/livez").status_code == 200
    assert served.client.get("/version").status_code == 200
    ready = served.client.get("/readyz")
    assert (ready.status_code, ready.json()["code"]) == (503, "not-ready")
    assert "profiles" not in ready.text
    assert "profiles" in served.client.get("/readyz", headers=of_key(KEY)).text


def test_a_key_is_let_in(served: SimpleNamespace) -> None:
    assert served.client.get("/v1/tables", headers=of_key(KEY)).json() == {"tables": ["profiles"]}
    assert served.client.get("/v1/tables", auth=("", KEY.text)).json() == {"tables": ["profiles"]}
    assert served.client.get("/docs", auth=("", KEY.text)).status_code == 200


def test_a_page_of_another_origin_may_bring_a_key(
    new_world: Callable[..., Any], client_of: Callable[..., Any]
) -> None:
    world = new_world()
    settings = ServingSettings(state_dir=world.folder, cors_origins=("https://app.example",))
    asked = {"Origin": "https://app.example", "Access-Control-Request-Method": "GET"}
    with client_of(create_app(Tables([]), settings)) as client:
        headers = {**asked, "Access-Control-Request-Headers": "authorization"}
        assert client.options("/v1/tables", headers=headers).status_code == 200


def test_requests_beyond_a_limit_are_refused_with_when_to_come_again(
    new_world: Callable[..., Any], client_of: Callable[..., Any], tmp_path: Path
) -> None:
    """Method: one request a second, and a clock that stands still; whoever brings nothing is an address."""
    world, clock = new_world(), ManualClock()
    path = tmp_path / "clients.toml"
    text = f'[clients.billing]\nkeys = [{{ id = "{KEY.id}", sha256 = "{KEY.hash()}" }}]\n'
    text += "limits = { requests_per_second = 1, burst = 2, bytes_per_minute = 1_000_000 }\n"
    path.write_text(f'{text}{GRANT}[clients.anonymous.tables.profiles]\nverbs = ["lookup"]\n')
    rates = RateLimits(tmp_path, 1, clock)
    admission = Admission(ClientsFile(path), clock, rates)
    guard = Guard(
        admission, recognise=admission.recognised, rates=rates, limits=Limits(requests_per_second=1)
    )
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    with client_of(
        create_app(Tables([table]), ServingSettings(state_dir=world.folder), guard=guard)
    ) as client:

        def asked(**headers: str) -> Any:
            return client.get("/v1/tables", headers=headers)

        statuses = [asked(**of_key(KEY)).status_code for _ in range(4)]
        assert statuses == [200, 200, 429, 429]
        refused = asked(**of_key(KEY))
        assert (refused.json()["code"], refused.headers["Retry-After"]) == ("too-many-requests", "1")
        assert [asked().status_code for _ in range(2)] == [200, 429]
        assert client.get("/livez", headers=of_key(KEY)).status_code == 200, "a probe is not counted"
        clock.advance(1.0)
        assert [asked(**of_key(KEY)).status_code for _ in range(2)] == [200, 429]
    rates.close()


def limited(world: Any, clock: ManualClock, limits: Limits, rates: RateLimits) -> Any:
    """An app that lets everybody in, within these limits."""
    world.produce({"app_id": 7, "user_id": "u1", "key": "a"}, value_of("cold"))
    world.commit()
    world.publish()
    world.tail()
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true}')
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    table.refresh()
    guard = Guard(rates=rates, limits=limits)
    return create_app(Tables([table]), ServingSettings(state_dir=world.folder), guard=guard)


def test_bytes_and_lookups_the_short_way_are_counted(
    new_world: Callable[..., Any], client_of: Callable[..., Any], tmp_path: Path
) -> None:
    clock, query = ManualClock(), b"app_id=7&user_id=u1"
    address = Credentials(address="192.0.2.1")
    rates = RateLimits(tmp_path, 1, clock)
    app = limited(new_world(), clock, Limits(requests_per_second=1, burst=3, bytes_per_minute=1_000), rates)
    with client_of(app) as client:
        path = f"/v1/tables/profiles/rows?{query.decode()}"
        headers = {"X-Request-Id": "one"}
        assert client.get(path, headers=headers).status_code == 200  # of another address, reads the file

        def short() -> bool:
            return client.portal.call(app.known, "profiles", query, None, address) is not None

        assert [short() for _ in range(4)] == [True, True, True, False]
        clock.advance(1_000.0)
        assert short()
    rates.close()
    (tmp_path / "bytes").mkdir()
    rates = RateLimits(tmp_path / "bytes", 1, clock)
    app = limited(new_world(), clock, Limits(bytes_per_minute=100), rates)
    with client_of(app) as client:
        assert [client.get(path).status_code for _ in range(2)] == [200, 429], "an answer has more than 100"
        clock.advance(600.0)
        assert client.get(path).status_code == 200
    rates.close()


def test_each_address_has_limits_of_its_own(
    new_world: Callable[..., Any], client_of: Callable[..., Any], tmp_path: Path
) -> None:
    clock, query = ManualClock(), b"app_id=7&user_id=u1"
    rates = RateLimits(tmp_path, 1, clock)
    app = limited(new_world(), clock, Limits(requests_per_second=1), rates)
    with client_of(app) as client:
        assert client.get(f"/v1/tables/profiles/rows?{query.decode()}").status_code == 200

        def short(address: str) -> bool:
            return (
                client.portal.call(app.known, "profiles", query, None, Credentials(address=address))
                is not None
            )

        assert [short(one) for one in ("192.0.2.1", "192.0.2.2", "192.0.2.1")] == [True, True, False]
    rates.close()

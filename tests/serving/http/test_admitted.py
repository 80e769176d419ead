"""An app that admits by a clients file: who is let in at which path, and what the others are told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from thermocline.process.clock import SystemClock
from thermocline.serving.access.admission import Admission
from thermocline.serving.access.clients_file import ClientsFile
from thermocline.serving.access.keys import ApiKey
from thermocline.serving.http.app import create_app
from thermocline.serving.http.guard import Guard
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
        *("/metrics", "/docs", "/openapi.json", "/nothing", "/readyz/", "//readyz", "/readyz/../v1/tables"),
    ],
)
def test_without_credentials_nothing_but_probes_is_answered(served: SimpleNamespace, path: str) -> None:
    for headers in ({}, of_key(ApiKey.new())):
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

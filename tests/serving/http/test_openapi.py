"""The OpenAPI document: what generators of clients need, and clients that two of them make of it."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import httpx
import pytest
import uvicorn

from tests.environments import python_with
from tests.serving.wire import served_app
from thermocline.rules.definition import LiveTable
from thermocline.serving.http.app import create_app
from thermocline.serving.http.openapi import described
from thermocline.serving.http.protocol import LookupProtocol
from thermocline.serving.read.tables import Tables
from thermocline.settings import ServingSettings

CALLERS: Final = Path(__file__).parent / "openapi_client"
# What each caller prints: values, the code of a missing row, rows of a batch, rows extracted, tables.
CALLED: Final = [["cold"] * 4, "row-not-found", [4, 0], 4, ["profiles"]]


def _document(*names: str) -> Any:
    definitions = {
        name: LiveTable.build(
            name=name,
            identifier=f"app.{name}",
            topics=["t"],
            key=["id"],
            columns={
                "id": {"type": "int", "comment": "which one"},
                "title": "string",
                "nested": {"type": "struct<a: int, b: list<string>>", "comment": "two"},
            },
        )
        for name in names
    }
    return described(create_app(Tables([]), ServingSettings()).api, definitions)


def _operations(document: Any) -> Iterator[Any]:
    for operations in document["paths"].values():
        yield from operations.values()


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def test_operations_and_schemas_have_short_names_that_stay_unique_in_any_language() -> None:
    document = _document("profiles", "a-b", "a_b", "Profiles")
    ids = [one["operationId"] for one in _operations(document)]
    assert {"rows_profiles", "batch_profiles", "extract_profiles", "start_extract_profiles", "livez"} <= set(
        ids
    )
    assert {"rows_a-b", "rows_a_b_2", "rows_Profiles_2"} <= set(ids)
    for names in (ids, list(document["components"]["schemas"])):
        assert len({_bare(name) for name in names}) == len(names)
        assert max(map(len, names)) <= len("Profiles_2_ExtractJobCreate")


def test_only_schemas_have_a_title_which_is_their_name_and_each_is_used() -> None:
    document = _document("profiles")
    schemas = document["components"]["schemas"]
    assert {name: schema["title"] for name, schema in schemas.items()} == {name: name for name in schemas}
    inside = [document["paths"], [{k: v for k, v in one.items() if k != "title"} for one in schemas.values()]]
    assert not re.findall(r'"title": "', json.dumps(inside))
    assert schemas["profiles_Row"]["properties"]["title"] == {"type": ["string", "null"]}
    descriptions = {
        name: schema.get("description") for name, schema in schemas["profiles_Row"]["properties"].items()
    }
    assert descriptions == {"id": "which one", "title": None, "nested": "two"}, "the columns' comments"
    referred = set(re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(document)))
    assert referred == set(schemas)


def test_the_document_says_where_its_server_is_and_every_error_is_a_problem() -> None:
    document = _document("profiles")
    assert [one["url"] for one in document["servers"]] == ["/"]
    errors = [
        (status, answer["content"])
        for one in _operations(document)
        for status, answer in one["responses"].items()
        if int(status) >= 400
    ]
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    assert all(content == problem for _, content in errors)
    assert {"404", "405", "406", "413", "415", "422", "500", "503"} <= {status for status, _ in errors}


@pytest.fixture
def url(new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server over a table, on a port. Extracts need no seal."""
    world = new_world()

    def seal(seconds: float) -> None:
        world.clock.advance(seconds + 1)
        world.tier.tend(None)

    monkeypatch.setattr(world.clock, "sleep", seal)
    for served in served_app(world, monkeypatch):
        yield from _serving(served)


def _serving(served: SimpleNamespace) -> Iterator[str]:
    listening = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        served.app, http=LookupProtocol, ws="none", lifespan="off", log_config=None, access_log=False
    )
    server = uvicorn.Server(config)
    running = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    running.start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        running.join()


@pytest.mark.full
def test_a_client_made_by_openapi_python_client_calls_the_server(url: str, tmp_path: Path) -> None:
    """In an environment of its own: the generator needs other versions than we do."""
    (tmp_path / "openapi.json").write_text(httpx.get(f"{url}/openapi.json").text)
    settings = tmp_path / "settings.yaml"
    settings.write_text("package_name_override: thermocline_openapi\npost_hooks: []\n")
    python = str(python_with("openapi-client.txt"))
    generate = [python, "-m", "openapi_python_client"]
    generate += ["generate", "--path", "openapi.json", "--meta", "none"]
    generate += ["--config", str(settings), "--output-path", "thermocline_openapi", "--fail-on-warning"]
    _run(generate, tmp_path)
    shutil.copy(CALLERS / "call.py", tmp_path)
    assert json.loads(_run([python, "call.py", url], tmp_path)) == CALLED


@pytest.mark.full
@pytest.mark.skipif(shutil.which("npm") is None, reason="there is no Node.js")
def test_a_client_made_by_openapi_typescript_calls_the_server(url: str, tmp_path: Path) -> None:
    """The compiler checks that the caller fits the types; then it calls."""
    folder = tmp_path / "caller"
    shutil.copytree(CALLERS, folder)
    (folder / "openapi.json").write_text(httpx.get(f"{url}/openapi.json").text)
    _run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder)
    _run(["npx", "--no-install", "openapi-typescript", "openapi.json", "-o", "api.d.ts"], folder)
    _run(["npx", "--no-install", "tsc", "-p", "."], folder)
    assert json.loads(_run(["node", "call.js", url], folder)) == CALLED


def _run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout

"""Requests by each client's own OpenAPI document, right and wrong ones: every answer is as it says.

Schemathesis makes them, of the document that the client is given, and compares each answer with it.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
import schemathesis
from pyiceberg.io.pyarrow import PyArrowFileIO
from schemathesis.config import SchemathesisConfig
from schemathesis.core.transport import Response
from schemathesis.engine import events, from_schema
from schemathesis.engine.recorder import ScenarioRecorder
from schemathesis.generation.case import Case
from schemathesis.schemas import BaseSchema

from tests.serving.wire import listening_at, value_of
from thermocline.process.clock import SystemClock
from thermocline.rules.definition import LiveTable
from thermocline.serving.access.admission import Admission
from thermocline.serving.access.clients_file import ClientsFile
from thermocline.serving.access.keys import ApiKey
from thermocline.serving.http.app import create_app
from thermocline.serving.http.guard import Guard
from thermocline.serving.jobs.runner import JobRunner, stores
from thermocline.serving.read.tables import ServedTable, Tables
from thermocline.settings import ServingSettings

EXAMPLES: Final = 4
RETENTION_MS: Final = 3_600_000
FULL_EXAMPLES: Final = 400
KEYS: Final = {name: ApiKey.new() for name in ("operator", "reader", "exporter")}
CLIENTS: Final = f"""
[clients.operator]
keys = [{{ id = "{KEYS["operator"].id}", sha256 = "{KEYS["operator"].hash()}" }}]
[clients.operator.tables."*"]
verbs = ["lookup", "extract", "changes", "jobs", "admin"]

[clients.reader]
keys = [{{ id = "{KEYS["reader"].id}", sha256 = "{KEYS["reader"].hash()}" }}]
[clients.reader.tables.profiles]
verbs = ["lookup", "extract", "changes"]
columns = ["updated_at"]
scope = {{ user_id = "u1" }}

[clients.exporter]
keys = [{{ id = "{KEYS["exporter"].id}", sha256 = "{KEYS["exporter"].hash()}" }}]
[clients.exporter.tables.profiles]
verbs = ["jobs"]

[clients.anonymous]
"""
BEYOND: Final = ("where", "since", "read_point", "Thermocline-Read-After", "columns", "limit")
# Which of the files of its job each asks for.
FILES: Final = {"operator": "manifest.json", "exporter": "bucket-00000.parquet"}
READINGS: Final = LiveTable.build(
    name="readings",
    identifier="app.readings",
    topics=["profiles"],
    key=["day", "device", "number"],
    entity=["day", "device"],
    columns={
        "day": "date",
        "device": "uuid",
        "number": "long",
        "amount": "decimal(9, 2)",
        "ratio": "double",
        "is_on": "boolean",
        "clock": "time",
        "raw": "binary",
        "place": "struct<lat: double, names: list<string>>",
        "tags": "map<string, int>",
    },
    buckets=4,
)


@pytest.fixture
def url(new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A server of two tables, one of them of all kinds of columns, before a clients file."""
    worlds = (new_world(), new_world(READINGS))
    fill(*worlds)
    served = [ready(world, monkeypatch) for world in worlds]
    path = tmp_path / "clients.toml"
    path.write_text(CLIENTS)
    admission = Admission(ClientsFile(path), SystemClock())
    settings = ServingSettings(
        state_dir=tmp_path, extract_jobs_dir=tmp_path / "jobs", read_after_seconds_max=0.02
    )
    guard = Guard(admission, recognise=admission.recognised)
    tables = Tables(served)
    app = create_app(tables, settings, guard=guard)
    with listening_at(app, None) as port:
        url = f"http://127.0.0.1:{port}"
        for client, table in (("operator", "profiles"), ("operator", "readings"), ("exporter", "profiles")):
            key = {"Authorization": f"Bearer {KEYS[client].text}"}
            job = httpx.post(f"{url}/v1/tables/{table}/extracts", headers=key, json={"id": "done"})
            assert job.json()["state"] == "queued"
        clock = SystemClock()
        by_table = stores(settings, [table.name for table in served], clock, PyArrowFileIO())
        runner = JobRunner(tables, by_table, clock, RETENTION_MS, threading.Event())
        assert [runner.step() for _ in range(4)] == [True, True, True, False]
        yield url
    app.api.state.worker.close()


def fill(profiles: Any, readings: Any) -> None:
    for user in ("u1", "u2"):
        profiles.produce({"app_id": 7, "user_id": user, "key": "a"}, value_of("cold"))
    key = {"day": "2026-01-02", "device": "12345678-1234-1234-1234-123456789abc", "number": 1}
    readings.produce(key, {
        "amount": "12.34", "ratio": 0.5, "is_on": True, "clock": "01:02:03", "raw": "AAEC",
        "place": {"lat": 1.5, "names": ["a", None]}, "tags": {"a": 1},
    })  # fmt: skip
    readings.produce({**key, "number": 2}, {})
    for world in (profiles, readings):
        world.commit()
        world.publish()
    profiles.produce({"app_id": 7, "user_id": "u1", "key": "b"}, value_of("hot"))
    readings.produce({**key, "number": 3}, {"ratio": 1e300})
    for world in (profiles, readings):
        world.tail()
        (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true}')


def ready(world: Any, monkeypatch: pytest.MonkeyPatch) -> ServedTable:
    def seal(seconds: float) -> None:
        world.clock.advance(seconds + 1)
        world.tier.tend(None)

    monkeypatch.setattr(world.clock, "sleep", seal)
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    table.refresh()
    return table


@dataclass
class Asked:
    """What was asked, by operation and status, and what was not as the document says."""

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    problems: dict[tuple[str, str], str] = field(default_factory=dict)


def asked_by(url: str, client: str, examples: int, parameters: Mapping[str, str] | None = None) -> Asked:
    """Schemathesis asks, as the client, for everything that its document has."""
    headers = {"Authorization": f"Bearer {KEYS[client].text}"} if client in KEYS else {}
    config = SchemathesisConfig.from_dict(
        {
            "base-url": url,
            "headers": headers,
            "parameters": dict(parameters or {}),
            "generation": {"max-examples": examples, "database": "none"},
            # No answer links to another operation.
            "phases": {"stateful": {"enabled": False}},
        }
    )
    schema: BaseSchema = schemathesis.openapi.from_url(f"{url}/openapi.json", headers=headers, config=config)
    if parameters is not None:
        schema = schema.include(path_regex=r"\{id\}")
    asked = Asked()
    for event in from_schema(schema).execute():
        match event:
            case events.FatalError():
                raise event.exception
            case events.NonFatalError():
                asked.problems[event.label, "error"] = repr(event.value)
            case events.ScenarioFinished():
                take(asked, event.recorder)
    return asked


def take(asked: Asked, recorder: ScenarioRecorder) -> None:
    for case, interaction in recorder.interactions.items():
        response = interaction.response
        assert response is not None, "the server broke the connection off"
        asked.statuses[recorder.label, response.status_code] += 1
        for check in recorder.checks.get(case, ()):
            info = check.failure_info
            if info is not None and not is_to_be_expected(check.name, recorder.cases[case].value, response):
                told = f"{info.failure.title}: {info.failure.message}\n{info.code_sample}"
                asked.problems[recorder.label, check.name] = (
                    f"{recorder.label}: {told}\n{response.text[:300]}"
                )


def is_to_be_expected(check: str, case: Case[Any], response: Response) -> bool:
    """Whether what a check found is as it should be."""
    if check == "not_a_server_error":  # so many jobs are started that there is no room, as nobody runs them
        return response.status_code == 503 and response.json()["code"] == "server-busy"
    return check == "positive_data_acceptance" and is_beyond_the_document(case, response)


def is_beyond_the_document(case: Case[Any], response: Response) -> bool:
    """Whether a request is refused, that has the right form, for what OpenAPI has no words for.

    These are the grammar of conditions, of which an error names the column; whether a topic's partition
    exists or a read point is one of the table; that ``since`` excludes ``limit`` and wants all key columns;
    and the header Accept, which OpenAPI ignores as a parameter: what it may ask for is what the answer has.
    """
    problem = response.json()
    if problem["status"] == 406:
        return True
    has_condition = isinstance(case.body, dict) and bool(case.body.get("where"))
    return problem["code"] == "bad-parameter" and (has_condition or problem["facts"]["name"] in BEYOND)


@pytest.mark.parametrize("client", [*KEYS, "anonymous"])
def test_every_answer_is_as_the_document_of_the_client_says(url: str, client: str) -> None:
    check_answers(url, client, EXAMPLES)


@pytest.mark.full
@pytest.mark.parametrize("client", [*KEYS, "anonymous"])
def test_many_answers_are_as_the_document_of_the_client_says(url: str, client: str) -> None:
    check_answers(url, client, FULL_EXAMPLES)


def check_answers(url: str, client: str, examples: int) -> None:
    asked = asked_by(url, client, examples)
    if client in FILES:
        of_job = asked_by(url, client, examples, {"path.id": "done", "path.name": FILES[client]})
        asked.problems |= of_job.problems
        asked.statuses += of_job.statuses
    assert "\n\n".join(asked.problems.values()) == ""
    operations = {operation for operation, _ in asked.statuses}
    answered = {operation for operation, status in asked.statuses if status < 300}
    assert operations == answered, "all that is listed to them is for them"

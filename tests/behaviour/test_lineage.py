"""Lineage of real commits, as a receiver of OpenLineage gets it; and commits while it does not work."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.behaviour.armed import armed_by
from tests.behaviour.topic import APP, Topic
from tests.lineage_server import Event, LineageServer, counted
from thermocline.dev.stack import TABLE, Stack
from thermocline.errors import ExitCode
from thermocline.iceberg.catalog import current_state, load_table, open_catalog
from thermocline.iceberg.files import local_path
from thermocline.ingest.run import run
from thermocline.kafka.log import Log
from thermocline.settings import LineageSettings, Settings

TIMEOUT_SECONDS = 0.5


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack("lineage")


@pytest.fixture
def server() -> Iterator[LineageServer]:
    server = LineageServer()
    server.start()
    yield server
    server.may_answer.set()
    server.stop()


def ingested(stack: Stack, url: str) -> int:
    """Sends some records and ingests them, with lineage to that address; the exit code."""
    written = Topic(stack.settings.kafka, topic_of(stack.settings))
    for number in range(20):
        written.send((APP, f"u{number}", "k"), f"v{number}")
    written.flush()
    lineage = LineageSettings(url=url, namespace="tests", timeout_seconds=TIMEOUT_SECONDS)
    settings = stack.settings.model_copy(update={"lineage": lineage})
    (ended,) = run(settings, [TABLE], once=True, stop=threading.Event())
    return ended.exit_code


def topic_of(settings: Settings) -> str:
    (topic,) = settings.table(TABLE).topics
    return topic


def ends_of(settings: Settings) -> dict[str, dict[str, int]]:
    return Log(settings.kafka).ends([topic_of(settings)]).to_dict()


def seam_of(settings: Settings) -> dict[str, dict[str, int]]:
    identifier = settings.table(TABLE).identifier
    return current_state(load_table(open_catalog(settings.catalog), TABLE, identifier), TABLE).seam.to_dict()


def the_one_run(events: list[Event], *types: str) -> list[Event]:
    assert [event["eventType"] for event in events] == list(types)
    assert len({event["run"]["runId"] for event in events}) == 1
    assert {event["job"]["namespace"] for event in events} == {"tests"}
    assert {event["job"]["name"] for event in events} == {f"{TABLE}.ingest"}
    return events


def test_a_commit_is_a_run_from_the_topic_to_the_table(stack: Stack, server: LineageServer) -> None:
    settings, topic = stack.settings, topic_of(stack.settings)
    server.may_answer.set()
    before = ends_of(settings)[topic]

    assert ingested(stack, server.url) == ExitCode.DONE

    table = load_table(open_catalog(settings.catalog), TABLE, settings.table(TABLE).identifier)
    state, ends = current_state(table, TABLE), ends_of(settings)
    _, done = the_one_run(server.received, "START", "COMPLETE")
    (read,) = done["inputs"]
    assert (read["namespace"], read["name"]) == (f"kafka://{settings.kafka.bootstrap_servers}", topic)
    partitions = read["inputFacets"]["thermocline_offsets"]["partitions"]
    assert {str(one["partition"]): one["end"] for one in partitions} == {
        place: end for place, end in ends[topic].items() if end > before.get(place, 0)
    }
    (written,) = done["outputs"]
    assert names_of(written) == place_of(table.location())
    assert written["facets"]["version"]["datasetVersion"] == str(state.snapshot_id)
    (name,) = (one["name"] for one in written["facets"]["symlinks"]["identifiers"])
    assert name == settings.table(TABLE).identifier
    assert written["outputFacets"]["outputStatistics"]["rowCount"] == 20
    commit = written["outputFacets"]["thermocline_commit"]
    assert (commit["batchId"], commit["seam"]) == (state.batch_id, ends)
    assert commit["records"]["read"] == 20
    assert counted(TABLE) == (0, 0)


def test_a_batch_that_fails_is_said_to_have_failed(
    stack: Stack, server: LineageServer, tmp_path: Path
) -> None:
    server.may_answer.set()
    with armed_by(tmp_path / "points") as points:
        points.write_text("owner.check=error@1\n")
        code = ingested(stack, server.url)
    assert code != ExitCode.DONE
    _, failed = the_one_run(server.received, "START", "FAIL")
    assert failed["run"]["facets"]["errorMessage"]["message"] != ""
    assert "version" not in failed["outputs"][0]["facets"]


def hangs(server: LineageServer) -> None:
    assert not server.may_answer.is_set()


def answers_500(server: LineageServer) -> None:
    server.refuses = lambda _: True
    server.may_answer.set()


def is_away(server: LineageServer) -> None:
    server.stop()


@pytest.mark.parametrize("misbehave", [hangs, answers_500, is_away])
def test_commits_go_on_while_no_receiver_takes_their_lineage(
    stack: Stack, server: LineageServer, misbehave: Callable[[LineageServer], None]
) -> None:
    misbehave(server)
    failures, dropped = counted(TABLE)

    assert ingested(stack, server.url) == ExitCode.DONE

    assert seam_of(stack.settings) == ends_of(stack.settings)
    assert server.received == []
    more_failures, more_dropped = counted(TABLE)
    assert more_failures > failures
    assert more_dropped == dropped + 2, "START and COMPLETE"


def names_of(dataset: dict[str, Any]) -> tuple[str, str]:
    return dataset["namespace"], dataset["name"]


def place_of(location: str) -> tuple[str, str]:
    """Of a table in a folder, or in a store."""
    path = local_path(location)
    if path is not None:
        return "file", path
    parts = urlsplit(location)
    return f"s3://{parts.netloc}", parts.path.strip("/")

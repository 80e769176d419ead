"""Lineage of rewrites by `maintain run`, on a real catalog and real files, as a receiver gets it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.small_ingest import NAME, Ingest, settings_of
from tests.lineage_server import LineageServer
from tests.maintenance.kept import SETTINGS, kept_up
from thermocline.maintenance.plan import Budget
from thermocline.maintenance.run import maintain
from thermocline.process.clock import SystemClock
from thermocline.settings import LineageSettings

pytestmark = pytest.mark.jvm

BATCHES = 12


@pytest.fixture
def server() -> Iterator[LineageServer]:
    server = LineageServer()
    server.start()
    server.may_answer.set()
    yield server
    server.stop()


def test_each_rewrite_that_lands_is_a_run_from_the_table_to_itself(
    tmp_path: Path, jvm: Any, server: LineageServer
) -> None:
    settings = settings_of(tmp_path, "sqlite:///catalog.db")
    ingest = Ingest(settings, jvm, seed=5)
    with kept_up(ingest) as kept:
        kept.batches(BATCHES)
    settings = settings.model_copy(
        update={
            "ingest": settings.ingest.model_copy(update={"engine": "local"}),
            "maintenance": SETTINGS,
            "lineage": LineageSettings(url=server.url),
        }
    )

    done, _ = maintain(settings, NAME, Budget(), SystemClock(), threading.Event())

    assert done.rewrites > 0
    # By their own times: on a busy machine the server may take in one after the next.
    events = sorted(server.received, key=lambda event: event["eventTime"])
    assert [event["eventType"] for event in events] == ["START", "COMPLETE"] * done.rewrites
    assert {event["job"]["name"] for event in events} == {f"{NAME}.rewrite"}
    runs = [event["run"]["runId"] for event in events]
    assert runs[::2] == runs[1::2]
    assert len(set(runs)) == done.rewrites
    ingest.refresh()
    snapshots = {str(one.snapshot_id): one for one in ingest.owned.table.snapshots()}
    for began, ended in zip(events[::2], events[1::2], strict=True):
        assert began["eventTime"] < ended["eventTime"]
        (read,), (written,) = ended["inputs"], ended["outputs"]
        assert (read["namespace"], read["name"]) == (written["namespace"], written["name"])
        of, given = read["inputFacets"]["inputStatistics"], written["outputFacets"]["outputStatistics"]
        assert of["rowCount"] == given["rowCount"], "no batch came in between"
        summary = snapshots[written["facets"]["version"]["datasetVersion"]].summary
        assert summary is not None
        assert summary["added-data-files"] == str(given["fileCount"])
        assert summary["deleted-data-files"] == str(of["fileCount"])
        assert summary["added-files-size"] == str(given["size"])
    assert ingest.rows() == ingest.expected

"""What the metrics of ingest say of simulated owners, and those of a table of its files."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from prometheus_client import Gauge
from prometheus_client.metrics import MetricWrapperBase

from tests.simulation.faults import Answer, Fault, Kind
from tests.simulation.owners import Process
from tests.simulation.records import NAME
from tests.simulation.world import BAD, DELETE, UPSERT, Surroundings, World
from thermocline.iceberg.files import DataFile, Deletes
from thermocline.ingest.claim.reconcile import Resolution, Settled
from thermocline.ingest.owner import measures
from thermocline.process.metrics import REGISTRY
from thermocline.rules.seam import Seam


def sample(metric: str, table: str = NAME, **labels: str) -> float:
    """0 where nobody measured it yet."""
    return REGISTRY.get_sample_value(f"thermocline_{metric}", {"table": table, **labels}) or 0


def by_outcome(metric: str, *outcomes: str) -> dict[str, float]:
    return {outcome: sample(f"ingest_{metric}_total", outcome=outcome) for outcome in outcomes}


def gained(after: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: after[name] - before[name] for name in after if after[name] != before[name]}


def records() -> dict[str, float]:
    return by_outcome("records", "applied", "superseded", "unchanged", "quarantined", "skipped", "read")


def commits() -> dict[str, float]:
    return by_outcome("commits", "landed", "rejected", "unknown")


@pytest.fixture
def world() -> World:
    return World(Surroundings())


@pytest.fixture
def process(world: World) -> Process:
    """It owns the table, which is empty."""
    world.counts["Ingest"] += 1  # a step that has its faults: without one, no error is expected of it
    process = Process.of(world, "owner")
    process.ingest(None, None)
    return process


def test_each_record_of_a_batch_is_counted_once_by_where_it_went(world: World, process: Process) -> None:
    before, counted = records(), commits()
    runs = sample("ingest_run_seconds_count"), sample("ingest_commit_seconds_count")
    for key, what in ((1, UPSERT), (1, UPSERT), (2, UPSERT), (3, DELETE), (1, BAD)):
        world.produce(0, key, what)
    process.ingest(None, None)
    assert gained(records(), before) == {"applied": 2, "superseded": 1, "unchanged": 1, "quarantined": 1}
    assert gained(commits(), counted) == {"landed": 1}
    assert (sample("ingest_run_seconds_count"), sample("ingest_commit_seconds_count")) == (
        runs[0] + 1,
        runs[1] + 1,
    )


def test_a_step_without_records_counts_nothing_but_shows_that_ingest_lives(
    world: World, process: Process
) -> None:
    world.produce(0, 1, UPSERT)
    process.ingest(None, None)
    before, counted, committed_at = records(), commits(), sample("ingest_last_commit_timestamp_seconds")
    world.advance(60)
    process.ingest(None, None)
    assert (records(), commits()) == (before, counted)
    assert sample("ingest_last_commit_timestamp_seconds") == committed_at
    assert sample("ingest_last_step_timestamp_seconds") == world.now_ms / 1000 >= committed_at + 60


def test_a_step_that_fails_is_none_and_its_records_stay_in_the_lag(world: World, process: Process) -> None:
    before, counted, done_at = records(), commits(), sample("ingest_last_step_timestamp_seconds")
    world.advance(60)
    for _ in range(3):
        world.produce(0, 1, UPSERT)
    process.ingest(Fault("error", 0, only="metadata load"), None)
    assert gained(commits(), counted) == {"rejected": 1}
    assert sample("ingest_last_step_timestamp_seconds") == done_at
    assert (records(), sample("ingest_lag_records")) == (before, 3)
    process.ingest(None, None)
    assert gained(commits(), counted) == {"rejected": 1, "landed": 1}
    assert sample("ingest_last_step_timestamp_seconds") == done_at + 60
    assert sample("ingest_lag_records") == 0


def test_lag_is_what_a_bounded_batch_leaves() -> None:
    world = World(Surroundings(records_max=4))
    process = Process.of(world, "owner")
    for place in (0, 0, 0, 1, 1, 1):
        world.produce(place, 1, UPSERT)
    process.ingest(None, None)
    seam = world.committed_seam()
    assert 0 < sample("ingest_lag_records") == 6 - sum(seam.values())
    process.ingest(None, None)
    assert sample("ingest_lag_records") == 0


@pytest.mark.parametrize(("kind", "outcome"), [("applied", "landed"), ("late", "unknown")])
def test_a_commit_whose_answer_is_lost_is_counted_by_what_is_found_of_it(
    world: World, process: Process, kind: Kind, outcome: str
) -> None:
    before, counted = records(), commits()
    world.produce(0, 1, UPSERT)
    process.ingest(None, Answer(kind))
    assert gained(commits(), counted) == {outcome: 1}
    assert (records() != before) == (outcome == "landed")


def test_the_gauges_of_a_table_are_those_of_its_snapshot(world: World, process: Process) -> None:
    """Method: the rows are counted from the stored files, not from what the owner believes of them."""
    for key in (*range(6), 1, 2):
        world.produce(0, key, UPSERT)
        if key % 3 == 0:
            process.ingest(None, None)
    world.produce(0, 4, DELETE)
    process.ingest(None, None)
    snapshot = world.table().current
    live = len(world.rows_of(snapshot))
    stored = sum(len(world.io.objects[file.path]) for file in snapshot.files)
    assert sample("table_rows") == live == 5
    assert sample("table_dead_rows") == stored - live > 0
    assert sample("table_files") == len(snapshot.files)


def test_the_worst_bucket_is_named_by_its_files_and_its_dead_rows() -> None:
    deletes = Deletes("b1/1.puffin", "puffin", 0, 1, 30, 100)
    files = {
        0: [DataFile(f"b0/{number}", 0, 100, 1_000) for number in range(3)],
        1: [DataFile("b1/0", 1, 50, 500, deletes), DataFile("b1/1", 1, 70, 700, deletes)],
        2: [],
    }
    measures.measure_table("worst", files)
    assert sample("table_files", "worst") == 5
    assert sample("table_bytes", "worst") == 4_200
    assert (sample("table_rows", "worst"), sample("table_dead_rows", "worst")) == (360, 60)
    assert sample("table_delete_files", "worst") == 1
    assert sample("table_bucket_files_max", "worst") == 3
    assert sample("table_dead_ratio_max", "worst") == 0.5
    measures.measure_table("worst", {})
    assert sample("table_rows", "worst") == sample("table_dead_ratio_max", "worst") == 0


def test_an_owner_that_opens_shows_what_it_met_and_counters_from_0_on() -> None:
    """Goal: Prometheus sees the first change of a counter only where it saw the counter before."""
    settled = [Settled(f"{n}", "", Resolution.LANDED, 0) for n in range(2)]
    measures.opened("opened", 5.0, settled, {}, 7_000)
    assert sample("ingest_reconciled_commits", "opened", verdict="landed") == 2
    assert sample("ingest_commit_interval_seconds", "opened") == 5
    assert sample("ingest_owned_timestamp_seconds", "opened") == 7
    assert sample("ingest_last_step_timestamp_seconds", "opened") == 7
    for metric, outcome in (("commits", "unknown"), ("records", "quarantined")):
        name, labels = f"thermocline_ingest_{metric}_total", {"table": "opened", "outcome": outcome}
        assert REGISTRY.get_sample_value(name, labels) == 0
    measures.opened("opened", 5.0, [], {}, 8_000)
    assert sample("ingest_reconciled_commits", "opened", verdict="landed") == 0


def test_a_table_that_is_owned_no_more_leaves_counters_and_no_gauge() -> None:
    """Goal: no alert goes on, and no dashboard shows, what the table was when its owner ended."""
    gauges = [metric for metric in vars(measures).values() if isinstance(metric, Gauge)]
    for table in ("closed", "other"):
        measures.opened(table, 5.0, [], {}, 7_000)
        measures.looked(table, Seam({}), Seam({}))
        measures.route_known(table, with_table=1, failed=0)
    assert all(shown(gauge, "closed") for gauge in gauges)
    measures.closed("closed")
    assert not any(shown(gauge, "closed") for gauge in gauges)
    assert all(shown(gauge, "other") for gauge in gauges)
    assert shown(measures.COMMITS, "closed")
    measures.closed("never opened")


def shown(metric: MetricWrapperBase, table: str) -> int:
    (found,) = metric.collect()
    return sum(one.labels["table"] == table for one in found.samples)

"""Two tables that one process ingests from the same topics, which are read once for both.

Each table is a world of its own, with its own catalog, store and oracle; they have the cluster, the time and
the process in common. What a history does to one of them is no fault of the other's.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.simulation.edges import simulated
from tests.simulation.engine import FakeEngine
from tests.simulation.faults import Answer, Fault
from tests.simulation.history import settle
from tests.simulation.owners import Process
from tests.simulation.world import BAD, DELETE, TOUCH, UPSERT, Surroundings, World
from tests.tier import quick_or_full
from thermocline.errors import LogReplaced, OffsetsGone, ThermoclineError
from thermocline.ingest.batch.batch import BatchResult
from thermocline.ingest.batch.scan import Scan
from thermocline.ingest.owner.passed import SECONDS_MAX
from thermocline.ingest.owner.scans import step_together

HISTORIES = quick_or_full(150, 2_000)
STEPS = 30
AROUND = Surroundings(partitions=(2, 1), records_max=6)


class CountingEngine(FakeEngine):
    """Counts its scans by the number of tables that share them."""

    def __init__(self, world: World) -> None:
        super().__init__(world.cluster, world.edge)
        self.scans: Counter[int] = Counter()

    def run(self, scan: Scan) -> tuple[BatchResult | ThermoclineError, ...]:
        self.scans[len(scan.shares)] += 1
        return super().run(scan)


class TwoTables:
    """A process with an owner for each of two tables."""

    def __init__(self, around: Surroundings = AROUND, takes: tuple[str, str] = ("", "")) -> None:
        """``takes``: the topic whose records are each table's; empty for all."""
        first = World(replace(around, takes=takes[0]))
        self.worlds = [first, World(replace(around, takes=takes[1]), beside=first)]
        self.engine, self.log = CountingEngine(first), first.cluster.log()
        self.processes = [Process.of(world, "ingest") for world in self.worlds]

    def step(self, fault: Fault | None = None, answer: Answer | None = None) -> None:
        """A batch of each; where the process dies, it begins again with the next step."""
        for world in self.worlds:
            world.counts["Ingest"] += 1
        if self.worlds[0].process("ingest", fault, self._work, answer):
            self.kill()

    def kill(self) -> None:
        """It knows nothing any more."""
        for process in self.processes:
            process.owner = None

    def _work(self) -> None:
        owned: dict[int, Process] = {}
        for process in self.processes:
            if process.opens() and process.owner is not None:
                process.owner.engine, process.owner.log = self.engine, cast(Any, self.log)
                owned[id(process.owner)] = process
        for stepped in step_together([process.owner for process in owned.values() if process.owner]):
            for owner, outcome in stepped:
                owned[id(owner)].stepped(outcome)

    def produce(self, rng: random.Random, count: int) -> None:
        """Records of either topic; a key has its partition."""
        for _ in range(count):
            key = rng.randrange(12)
            self.worlds[0].produce(key, key, rng.choice((UPSERT, UPSERT, DELETE, BAD)))

    def settle(self) -> None:
        """Both come to the end of the log, and are what all its records come to."""
        for world in self.worlds:
            settle(world)
            if world.violation is not None:
                raise world.violation

    def seams(self) -> list[object]:
        return [world.committed_seam() for world in self.worlds]


def run(seed: int, takes: tuple[str, str]) -> Counter[str]:
    """A random history; what happened in it."""
    rng = random.Random(seed)
    both = TwoTables(replace(AROUND, wanders=False), takes)
    for _ in range(STEPS):
        match rng.choice(("produce", "produce", "step", "step", "fault", "answer", "kill", "advance")):
            case "produce":
                both.produce(rng, rng.randrange(1, 6))
            case "step":
                both.step()
            case "fault":
                kind = rng.choice(("crash", "error"))
                both.step(Fault(kind, rng.randrange(60)))  # type: ignore[arg-type]
            case "answer":
                kinds = ("lost", "applied", "raced", "late", "late-race")
                both.step(None, Answer(rng.choice(kinds), rng.randrange(4)))  # type: ignore[arg-type]
            case "kill":
                both.kill()
            case "advance":
                both.worlds[0].advance(rng.randrange(1, 120))
                for world in both.worlds:
                    world.counts["Advance"] += 1
    both.settle()
    counts = sum((world.counts for world in both.worlds), Counter[str]())
    counts["shared scans"], counts["scans of one"] = both.engine.scans[2], both.engine.scans[1]
    counts["seams differed"] = both.seams()[0] != both.seams()[1]
    return counts


@pytest.mark.parametrize("takes", [("", ""), ("a", "b")])
def test_two_tables_that_share_scans_lose_and_repeat_nothing_in_any_history(takes: tuple[str, str]) -> None:
    """Goal: what a table alone is promised. Oracle: a replay into dicts, for each table by itself."""
    counts: Counter[str] = Counter()
    with simulated():
        for seed in range(HISTORIES):
            print(f"seed {seed}")
            counts += run(seed, takes)
    wanted = ["shared scans", "scans of one", "crashed", "bad record", "error catalog-unreachable"]
    assert [one for one in wanted if not counts[one]] == []
    assert bool(counts["passed over"]) == any(takes)
    assert counts["shared scans"] > counts["scans of one"]


@pytest.mark.parametrize("which", [0, 1])
def test_a_table_whose_commit_is_refused_has_its_own_ranges_of_the_next_scan(which: int) -> None:
    """Goal: the log is read once for both, from where the one that is behind begins.

    Method: one table's swap fails, after the scan of both.
    """
    with simulated():
        both = behind_each_other(which)
        rng = random.Random(2)
        both.produce(rng, 10)
        both.step()  # each from its own seam, to the same ends
        assert both.engine.scans == {2: 3}
        seams = both.seams()
        assert seams[0] == seams[1]
        both.produce(rng, 10)
        both.step()
        assert both.engine.scans == {2: 4}
        both.settle()


def behind_each_other(which: int) -> TwoTables:
    """Two tables, one of which lacks a batch that the other has committed."""
    both = TwoTables(replace(AROUND, records_max=100))
    rng = random.Random(1)
    both.produce(rng, 10)
    both.step()
    both.produce(rng, 10)
    both.step(Fault("error", which, only="metadata write"))
    assert both.engine.scans == {2: 2}
    seams = both.seams()
    assert seams[0] != seams[1]
    return both


def test_tables_that_would_hold_too_much_together_are_read_one_by_one() -> None:
    with simulated():
        both = behind_each_other(1)
        for process in both.processes:
            owner = process.owner
            assert owner is not None
            owner.packed_bytes_per_record = float(owner.settings.batch_bytes_max)
        both.produce(random.Random(2), 10)
        both.step()
        assert both.engine.scans == {2: 2, 1: 2}
        both.settle()


def test_a_log_that_is_cut_while_it_is_read_stops_the_table_alone_that_lacks_it() -> None:
    """Goal: what the one that is behind has lost was before the batch of the other."""
    with simulated():
        both = behind_each_other(1)
        run, cluster = both.engine.run, both.worlds[0].cluster
        both.produce(random.Random(2), 30)
        ahead = both.processes[0].owner
        assert ahead is not None

        def cut_first(scan: Scan) -> tuple[BatchResult | ThermoclineError, ...]:
            for topic, partition, offset in ahead.position.seam.items():
                cluster.trim(topic, partition, offset)
            for world in both.worlds:
                world.counts["Trim"] += 1
            return run(scan)

        both.engine.run = cut_first  # type: ignore[method-assign]
        seams = both.seams()
        both.step()
        after = both.seams()
        assert after[0] != seams[0]
        assert after[1] == seams[1]
        assert both.processes[0].stop is None
        assert isinstance(both.processes[1].stop, OffsetsGone)


def only_of(both: TwoTables, place: int, count: int = 3) -> None:
    """Records of one topic: 0 and 1 are the partitions of a, 2 the one of b."""
    for key in range(count):
        both.worlds[0].produce(place, key, UPSERT)


def test_a_table_without_records_of_its_own_commits_nothing_and_goes_on_with_the_others() -> None:
    """Goal: ten batches of records of one table are no commit of the other, which reads none of them again.

    Then its own record brings all of it: rows, seam and accounts in one commit.
    """
    with simulated():
        both = TwoTables(replace(AROUND, records_max=100), ("a", "b"))
        only_of(both, 0)
        only_of(both, 2)
        both.step()
        landed = [world.counts["landed"] for world in both.worlds]
        for _ in range(10):
            only_of(both, 0)
            both.step()
        assert both.engine.scans == {2: 11}
        assert [world.counts["landed"] for world in both.worlds] == [landed[0] + 10, landed[1]]
        owner = both.processes[1].owner
        assert owner is not None
        assert owner.lag_records == 0
        assert owner.at.seam == both.processes[0].owner.position.seam  # type: ignore[union-attr]
        assert owner.position.seam["a", 0] == 3
        only_of(both, 2)
        both.step()
        assert [world.counts["landed"] for world in both.worlds] == [landed[0] + 10, landed[1] + 1]
        seams = both.seams()
        assert seams[0] != seams[1]  # the first one has passed over the last batch
        assert owner.position.seam["a", 0] == 33
        both.settle()


@pytest.mark.parametrize("is_idle", [False, True])
def test_a_seam_that_was_put_off_is_committed_once_it_is_half_an_hour_old(is_idle: bool) -> None:
    with simulated():
        both = TwoTables(replace(AROUND, records_max=100), ("a", "b"))
        only_of(both, 0)
        only_of(both, 2)
        both.step()
        landed = both.worlds[1].counts["landed"]
        for _ in range(2):
            only_of(both, 0)
            both.step()
        assert both.worlds[1].counts["landed"] == landed
        both.worlds[0].advance(SECONDS_MAX)
        if not is_idle:
            only_of(both, 0)
        both.step()
        assert both.worlds[1].counts["landed"] == landed + 1
        seams = both.seams()
        assert seams[0] == seams[1]
        both.settle()


def test_a_process_that_died_reads_again_what_it_had_passed_over() -> None:
    with simulated():
        both = TwoTables(replace(AROUND, records_max=100), ("a", "b"))
        only_of(both, 0)
        only_of(both, 2)
        both.step()
        only_of(both, 0)
        both.step()
        seams = both.seams()
        assert seams[0] != seams[1]
        both.kill()
        only_of(both, 2)
        both.step()
        owner = both.processes[1].owner
        assert owner is not None
        assert owner.position.seam["a", 0] == 6
        both.settle()


def test_a_log_that_loses_what_was_passed_over_stops_nobody_who_has_read_it() -> None:
    """Goal: the log's start is beyond the table's seam, and behind what its owner has passed over."""
    with simulated():
        both = TwoTables(replace(AROUND, records_max=100), ("a", "b"))
        only_of(both, 0)
        only_of(both, 2)
        both.step()
        only_of(both, 0, 12)
        both.step()
        both.worlds[0].cluster.trim("a", 0, 10)
        both.step()
        owner = both.processes[1].owner
        assert owner is not None
        assert owner.position.seam["a", 0] == 15  # and now it is committed, before the log loses more
        both.settle()


def test_a_scan_that_fails_as_a_whole_is_read_again_for_each_table_alone() -> None:
    """Goal: what ends the job of all ends the table alone that it was due to."""
    with simulated():
        both = TwoTables(replace(AROUND, records_max=100))
        both.produce(random.Random(2), 10)
        both.step(Fault("error", 0, only="quarantine write"))
        assert both.engine.scans == {2: 1, 1: 2}
        seams = both.seams()
        assert seams[0] == seams[1]
        both.settle()


def test_keys_in_several_partitions_are_decided_for_each_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scan after the first one is shared, too, and so is the next batch, read for them at once."""
    with simulated():
        both = TwoTables(replace(AROUND, records_max=100, wanders=True))
        for place in range(3):
            both.worlds[0].produce(place, 1, UPSERT)
            both.worlds[0].produce(place, 1, TOUCH if both.worlds[0].around.is_partial else UPSERT)
        both.step()
        assert both.engine.scans == {2: 2}
        both.worlds[0].produce(0, 1, UPSERT)
        both.step()
        assert both.engine.scans == {2: 3}
        both.settle()


def test_a_table_whose_keys_are_to_be_decided_is_read_in_one_piece_and_the_other_as_ever() -> None:
    with simulated():
        both = TwoTables(replace(AROUND, records_max=100))
        both.produce(random.Random(3), 10)
        both.step()
        both.processes[1].owner.is_contested = True  # type: ignore[union-attr]
        both.produce(random.Random(4), 10)
        both.step()
        assert both.engine.scans == {2: 1, 1: 2}
        both.settle()


def test_a_topic_that_is_recreated_while_it_is_read_again_is_noticed() -> None:
    """Goal: what one table was told before its commit says nothing of what another one reads after it.

    Method: keys are in several partitions. One table knows it from the batch before, and commits at once; the
    other has to be read again, and meanwhile its topic is recreated.
    """
    with simulated():
        both = TwoTables(replace(AROUND, records_max=100, wanders=True))
        both.produce(random.Random(3), 10)
        both.step()
        for place in range(3):
            both.worlds[0].produce(place, 1, UPSERT)
        both.processes[0].owner.is_contested = True  # type: ignore[union-attr]
        before, run = both.seams(), both.engine.run

        def then_recreated(scan: Scan) -> tuple[BatchResult | ThermoclineError, ...]:
            found = run(scan)
            if both.engine.scans[1] == 3:
                both.worlds[0].cluster.replace_topic("a")
                for world in both.worlds:
                    world.counts["ReplaceTopic"] += 1
            return found

        both.engine.run = then_recreated  # type: ignore[method-assign]
        both.step()
        after = both.seams()
        assert after[0] != before[0]
        assert after[1] == before[1]
        assert isinstance(both.processes[1].stop, LogReplaced)

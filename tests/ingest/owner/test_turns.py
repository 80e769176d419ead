"""Turns of tables: upkeep comes between batches and never delays one, and no table keeps another waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.manual_clock import ManualClock
from thermocline.errors import (
    CommitRejected,
    EngineFailed,
    KafkaUnreachable,
    OffsetsGone,
    OwnerLost,
    StorageFailed,
    TableHeld,
    ThermoclineError,
)
from thermocline.ingest import run as run_module
from thermocline.ingest.owner.scans import Outcome
from thermocline.ingest.owner.turns import (
    REJECTIONS_MAX,
    RETRY_SECONDS,
    TURN_SECONDS,
    IngestedTable,
    Opener,
    Turns,
)
from thermocline.process.metrics import REGISTRY


class Stop(threading.Event):
    """Waiting for it moves the clock; it is set at a time."""

    def __init__(self, clock: ManualClock, at: float) -> None:
        super().__init__()
        self._clock, self._at = clock, at

    def is_set(self) -> bool:
        return super().is_set() or self._clock.monotonic() >= self._at

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        assert timeout > 0
        self._clock.sleep(timeout)
        return self.is_set()


@dataclass
class FakeOwner:
    """An owner whose batches take a second, and whose log always holds ``lag_records`` more."""

    clock: ManualClock
    name: str
    calls: list[str]
    lag_records: int = 0
    interval_seconds: float = 10.0
    step_seconds: float = 1.0
    turn_seconds: float = 0.0
    fails: Callable[[], ThermoclineError | Exception | None] = lambda: None
    must_reload: bool = False
    reloads: int = 0
    closed: list[ThermoclineError | None] = field(default_factory=list)
    topic: str = ""

    def __post_init__(self) -> None:
        self.settings = SimpleNamespace(commit_interval_seconds=self.interval_seconds)
        self.upkeep = SimpleNamespace(slowdown=1.0)
        self.lease = SimpleNamespace(check=lambda: None)
        self.definition = SimpleNamespace(
            topics=(self.topic or self.name,), merging=SimpleNamespace(is_keyed=True)
        )
        self.engine = self.log = None

    def step(self) -> bool:
        self.calls.append(self.name)
        if (error := self.fails()) is not None:
            raise error
        self.reloads += self.must_reload
        self.must_reload = False
        self.clock.sleep(self.step_seconds)
        return self.lag_records > 0

    def maintain(self) -> None:
        self.calls.append(f"upkeep of {self.name}")
        self.clock.sleep(self.turn_seconds)

    def close(self, error: ThermoclineError | None = None) -> None:
        self.closed.append(error)


def step_each(owners: Sequence[Any]) -> Iterator[list[tuple[Any, Outcome]]]:
    """As `step_together`, without a log: tables that are asked for together are one scan."""
    stepped: list[tuple[Any, Outcome]] = []
    for owner in owners:
        try:
            stepped.append((owner, owner.step()))
        except Exception as error:  # noqa: BLE001  as `step_together`
            stepped.append((owner, error))
    yield stepped


def turns(tables: Sequence[IngestedTable], clock: ManualClock) -> Turns:
    return Turns(tables, clock, step_each)


def table_of(owner: FakeOwner) -> IngestedTable:
    fake: Any = owner
    return IngestedTable(owner.name, owner.clock, opener=SimpleNamespace(), owner=fake)  # type: ignore[arg-type]


@pytest.mark.parametrize("turn_seconds", [0.0, 0.3, 1.0])
def test_a_turn_that_takes_no_longer_than_it_may_delays_no_batch(turn_seconds: float) -> None:
    clock, calls = ManualClock(), list[str]()
    owner = FakeOwner(clock, "a", calls, step_seconds=0.0, turn_seconds=turn_seconds)
    began = clock.monotonic()
    batches: list[float] = []
    owner.fails = lambda: batches.append(clock.monotonic() - began)
    turns([table_of(owner)], clock).follow(Stop(clock, began + 35))
    assert batches == pytest.approx([0, 10, 20, 30])
    assert calls.count("upkeep of a") >= 30 / (TURN_SECONDS + turn_seconds) - 6


def test_the_interval_that_alerts_go_by_is_longer_while_maintenance_is_behind() -> None:
    clock = ManualClock()
    owner = FakeOwner(clock, "slowed", [], step_seconds=0.0)
    owner.upkeep = SimpleNamespace(slowdown=4.0)
    turns([table_of(owner)], clock).follow(Stop(clock, clock.monotonic() + 100))
    assert REGISTRY.get_sample_value("thermocline_ingest_commit_interval_seconds", {"table": "slowed"}) == 40
    assert owner.calls.count("slowed") == 3


def test_a_table_that_is_always_behind_gets_no_more_batches_than_any_other_that_is() -> None:
    clock, calls = ManualClock(), list[str]()
    owners = [FakeOwner(clock, name, calls, lag, 0.5) for name, lag in (("a", 5), ("b", 900), ("c", 0))]
    turns([table_of(owner) for owner in owners], clock).follow(Stop(clock, clock.monotonic() + 300))
    batches = [call for call in calls if not call.startswith("upkeep")]
    assert batches[:6] == ["b", "a", "c"] * 2
    assert {batches.count(name) for name in "abc"} <= {99, 100, 101}


def test_upkeep_has_its_turns_where_a_batch_of_some_table_is_always_due_soon() -> None:
    clock, calls = ManualClock(), list[str]()
    owners = [FakeOwner(clock, str(n), calls, interval_seconds=60, step_seconds=0.1) for n in range(100)]
    turns([table_of(owner) for owner in owners], clock).follow(Stop(clock, clock.monotonic() + 300))
    for n in range(100):
        assert calls.count(f"upkeep of {n}") > 2 * calls.count(str(n)) >= 8


@pytest.mark.parametrize(
    "error", [OffsetsGone(table="b", gaps=("t/0@0-5",)), ValueError("a bug")], ids=["error", "bug"]
)
def test_what_stops_a_table_stops_that_one_alone(error: Exception) -> None:
    clock, calls = ManualClock(), list[str]()
    owners = [FakeOwner(clock, name, calls) for name in "abc"]
    owners[1].fails = lambda: error
    tables = [table_of(owner) for owner in owners]
    turns(tables, clock).follow(Stop(clock, clock.monotonic() + 100))
    assert [calls.count(name) for name in "abc"] == [10, 1, 10]
    stopped = tables[1].error
    assert stopped is not None
    assert stopped.code == ("offsets-gone" if isinstance(error, ThermoclineError) else "internal-error")
    assert [owner.closed for owner in owners] == [[None], [stopped], [None]]


def test_what_passes_by_itself_is_waited_out_while_others_go_on() -> None:
    clock, calls = ManualClock(), list[str]()
    away = [KafkaUnreachable(bootstrap_servers="b", detail="away")] * 3
    owners = [FakeOwner(clock, name, calls, interval_seconds=RETRY_SECONDS / 2) for name in "ab"]
    owners[0].fails = lambda: away.pop() if away else None
    tables = [table_of(owner) for owner in owners]
    turns(tables, clock).follow(Stop(clock, clock.monotonic() + 10 * RETRY_SECONDS))
    assert not away
    assert [table.error for table in tables] == [None, None]
    assert owners[0].reloads == 1
    assert min(calls.count(name) for name in "ab") > 10


def test_a_commit_that_is_refused_again_and_again_stops_its_table() -> None:
    clock, calls = ManualClock(), list[str]()
    owner = FakeOwner(clock, "a", calls)
    owner.fails = lambda: CommitRejected(table="a", batch_id="1", detail="no")
    table = table_of(owner)
    turns([table], clock).follow(Stop(clock, clock.monotonic() + 1_000))
    assert calls.count("a") == REJECTIONS_MAX
    assert isinstance(table.error, CommitRejected)


def test_tables_of_the_same_topic_and_interval_go_on_being_due_together() -> None:
    """Goal: also one that was waited out, and had its batches at other times for a while.

    Method: `a` and `b` are one scan; a table of another topic takes its turns between.
    """
    clock, calls = ManualClock(), list[str]()
    away = [KafkaUnreachable(bootstrap_servers="b", detail="away")]
    owners = [
        FakeOwner(clock, name, calls, topic=topic) for name, topic in (("a", "t"), ("c", ""), ("b", "t"))
    ]
    owners[2].fails = lambda: away.pop() if away else None
    asked: list[list[str]] = []

    def together(some: Sequence[Any]) -> Iterator[list[tuple[Any, Outcome]]]:
        asked.append([owner.name for owner in some])
        return step_each(some)

    Turns([table_of(owner) for owner in owners], clock, together).follow(Stop(clock, clock.monotonic() + 38))
    of_topic = [names for names in asked if names != ["c"]]
    assert of_topic == [["a", "b"], ["b"], ["a", "b"], ["a", "b"], ["a", "b"]]
    assert [calls.count(name) for name in "abc"] == [4, 5, 4]


def test_what_ends_a_table_of_a_scan_ends_that_one_alone() -> None:
    clock, calls = ManualClock(), list[str]()
    owners = [FakeOwner(clock, name, calls, topic="t") for name in "abc"]
    owners[1].fails = lambda: OffsetsGone(table="b", gaps=("t/0@0-5",))
    tables = [table_of(owner) for owner in owners]
    turns(tables, clock).follow(Stop(clock, clock.monotonic() + 35))
    assert [calls.count(name) for name in "abc"] == [4, 1, 4]
    assert [table.error is None for table in tables] == [True, False, True]


class FakeOpening:
    """A table whose lease is held as often as the test says, by this or that owner."""

    def __init__(self, held_by: list[int | None], looks: list[str]) -> None:
        table = SimpleNamespace(io=None, location=lambda: "/nowhere")
        self.claim = SimpleNamespace(lease=self, look_again=lambda: looks.append("again"), table=table)
        self.watch_seconds = 6.0
        self._held_by = held_by

    def is_free(self) -> bool:
        if not self._held_by:
            return True
        epoch = self._held_by.pop(0)
        if epoch is not None:
            raise TableHeld(table="a", host="h", pid=epoch, since="", renewed="", epoch=epoch)
        return False


@pytest.mark.parametrize("is_standby", [True, False])
def test_a_table_that_another_process_owns_is_waited_for_by_a_standby_alone(
    is_standby: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: the standby says so once for each owner that it meets, and owns the table in the end."""
    caplog.set_level("INFO")
    clock, calls, looks = ManualClock(), list[str](), list[str]()
    opening: Any = FakeOpening([None, 1, None, 1, None, 2, None], looks)
    owner: Any = FakeOwner(clock, "a", calls)
    table = IngestedTable(
        "a", clock, Opener(lambda: opening, lambda _: owner), is_standby=is_standby, waits_out=is_standby
    )
    turns([table], clock).follow(Stop(clock, clock.monotonic() + 30))
    said = [record.message for record in caplog.records]
    if is_standby:
        assert said == ["standing by until the owner ends"] * 2 + ["the owner has ended; taking over"]
        assert looks == ["again"] * 3
        assert calls.count("a") > 1
    else:
        assert isinstance(table.error, TableHeld)
        assert not calls


def test_a_standby_opens_its_table_again_where_the_store_refuses_it() -> None:
    """Goal: what a catalog granted of the store when it began to stand by may have ended long ago."""
    clock, calls = ManualClock(), list[str]()
    owner: Any = FakeOwner(clock, "a", calls)

    def refused() -> bool:
        raise StorageFailed(table="a", detail="the token has expired")

    ended: Any = SimpleNamespace(claim=SimpleNamespace(lease=SimpleNamespace(is_free=refused)))
    openings: list[Any] = [FakeOpening([], []), ended]
    opener = Opener(openings.pop, lambda _: owner)
    table = IngestedTable("a", clock, opener, is_standby=True, waits_out=True)
    turns([table], clock).follow(Stop(clock, clock.monotonic() + 100))
    assert table.error is None
    assert calls.count("a") > 5


def test_a_standby_that_lost_its_table_stands_by_again() -> None:
    clock, calls = ManualClock(), list[str]()
    first, second = FakeOwner(clock, "first", calls), FakeOwner(clock, "second", calls)
    lost = OwnerLost(table="a", epoch_ours=1, epoch_found=2)
    first.fails = lambda: lost if calls.count("first") == 3 else None
    owners: list[Any] = [second, first]
    opening: Any = FakeOpening([], [])
    opener = Opener(lambda: opening, lambda _: owners.pop())
    table = IngestedTable("a", clock, opener, is_standby=True)
    turns([table], clock).follow(Stop(clock, clock.monotonic() + 100))
    assert table.error is None
    assert (first.closed, second.closed) == ([lost], [None])
    assert calls.count("second") > 5


def test_a_standby_whose_engine_has_died_ends_instead_of_blaming_the_catalog(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A process manager starts it again then. Method: the engine dies after a minute, and then the owner."""
    clock = ManualClock()

    def is_late() -> bool:
        return clock.monotonic() > 60

    class Engine:
        def check(self) -> None:
            if is_late():
                raise EngineFailed(engine="Spark", detail="its JVM is gone")

        def stop(self) -> None:
            pass

    lease = SimpleNamespace(is_free=is_late, watch_seconds=1.0)
    opening = SimpleNamespace(claim=SimpleNamespace(lease=lease, name="t"))
    monkeypatch.setattr(run_module, "start_engine", lambda *_: Engine())
    monkeypatch.setattr(run_module, "Opening", SimpleNamespace(of=lambda *_: opening))
    monkeypatch.setattr(run_module, "Log", lambda _: None)
    settings: Any = SimpleNamespace(kafka=None)
    (ended,) = run_module.run(settings, ["t"], False, Stop(clock, at=120.0), clock, standby=True)
    assert isinstance(ended.error, EngineFailed)
    assert 60 < clock.monotonic() < 120

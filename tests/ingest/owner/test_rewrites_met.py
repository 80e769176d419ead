"""An owner whose batches meet rewrites by others again and again."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

import pytest

from thermocline.errors import ForeignSnapshot
from thermocline.ingest.claim.ownership import REWRITES_MAX
from thermocline.ingest.commit.commit import Landed, Rejected
from thermocline.ingest.owner import owner as owner_module
from thermocline.ingest.owner import scans
from thermocline.ingest.owner.owner import Owner
from thermocline.ingest.owner.table_batch import TableBatch
from thermocline.ingest.owner.turns import IngestedTable
from thermocline.process.clock import SystemClock
from thermocline.rules.seam import Seam


def owner_that_meets(monkeypatch: pytest.MonkeyPatch, met: list[bool], is_rewrite: bool) -> Owner:
    """Each batch meets another writer's snapshot, or does not."""

    def batch(*_: object) -> TableBatch:
        if met.pop(0):
            raise ForeignSnapshot(table="t", snapshot_id=1, detail="another writer made it")
        return False
        yield

    monkeypatch.setattr(scans, "batch_of", batch)
    monkeypatch.setattr(Owner, "_reload", lambda _: is_rewrite)
    owner = Owner.__new__(Owner)
    owner.lease = cast(Any, SimpleNamespace(check=lambda: None, has_failed=False))
    owner.must_reload, owner.rewrites_met, owner.passed = False, 0, None
    merging = SimpleNamespace(is_keyed=True)
    owner.definition = cast(Any, SimpleNamespace(name="t", topics=("t",), merging=merging))
    owner.topics = cast(Any, SimpleNamespace(look=lambda _: None))
    owner.settings = cast(Any, SimpleNamespace(batch_records_max=1, batch_bytes_max=1))
    owner.bytes_per_record = owner.packed_bytes_per_record = None
    owner.position = cast(Any, SimpleNamespace(seam=Seam()))
    owner.engine = owner.log = cast(Any, None)
    owner.clock, owner.routing = SystemClock(), None
    return owner


def test_a_batch_that_met_a_rewrite_is_followed_by_another_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    owner = owner_that_meets(monkeypatch, [True, False], is_rewrite=True)
    assert [owner.step(), owner.step()] == [True, False]


def test_an_owner_whose_lease_is_not_renewed_loads_the_table_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """An idle one asks the store for nothing else, and what a catalog granted of it may have ended."""
    owner = owner_that_meets(monkeypatch, [False, False], is_rewrite=False)
    reloads: list[Owner] = []
    monkeypatch.setattr(Owner, "_reload", lambda owner: reloads.append(owner))  # noqa: PLW0108  (a method)
    owner.step()
    owner.lease.has_failed = True
    owner.step()
    assert reloads == [owner]


def test_a_snapshot_that_is_no_rewrite_ends_the_owner_with_foreign_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(ForeignSnapshot):
        owner_that_meets(monkeypatch, [True], is_rewrite=False).step()


def test_rewrites_that_never_end_end_the_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only those in a row count."""
    often = [True] * REWRITES_MAX
    owner = owner_that_meets(monkeypatch, [*often, False, *often, True], is_rewrite=True)
    for _ in range(2 * REWRITES_MAX + 1):
        owner.step()
    with pytest.raises(ForeignSnapshot):
        owner.step()


def test_a_rewrite_that_only_maintenance_met_is_taken_over_before_the_next_batch_is_due() -> None:
    """Goal: an idle owner, which commits nothing, does not stay beside the table for long."""

    def met(_: Owner) -> None:
        raise ForeignSnapshot(table="t", snapshot_id=1, detail="another writer made it")

    owner = Owner.__new__(Owner)
    owner.lease = cast(Any, SimpleNamespace(check=lambda: None, has_failed=False))
    owner.clock = SystemClock()
    owner.upkeep = cast(Any, SimpleNamespace(turn=met))
    owner.must_reload = False
    table = IngestedTable("t", owner.clock, owner=owner, due_at=owner.clock.monotonic() + 3_600)
    table.maintain()
    assert owner.must_reload
    assert table.due_at <= owner.clock.monotonic()


@pytest.mark.parametrize("count", [1, REWRITES_MAX, REWRITES_MAX + 1])
def test_a_rewrite_that_comes_while_another_is_looked_at_is_looked_at_in_its_turn(
    monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    """Engines land a rewrite in parts, while a large one takes minutes to be looked at."""

    @dataclass(frozen=True)
    class State:
        snapshot_id: int
        epoch: int = 1
        io: object = None
        quarantine_io: object = None
        quarantine_location: str = ""

    companion = SimpleNamespace(io=None, location=lambda: "")
    error = ForeignSnapshot(table="t", snapshot_id=1, detail="another writer made it")
    outcomes = [*[Rejected(error)] * count, Landed(7, Seam())]
    looks: list[object] = []
    table = SimpleNamespace(io=None, catalog=None)

    def stands(*_: Any) -> tuple[State, Any]:
        looks.append(1)
        return State(len(looks)), SimpleNamespace(snapshot_id=len(looks))

    monkeypatch.setattr(owner_module, "load_table", lambda *_: table)
    monkeypatch.setattr(owner_module, "resume_state", stands)
    monkeypatch.setattr(owner_module, "say_taken_over", lambda *_: None)
    monkeypatch.setattr(owner_module, "Position", SimpleNamespace(of=lambda state, _: state))
    owner = Owner.__new__(Owner)
    fields: dict[str, Any] = {
        "table": table,
        "definition": SimpleNamespace(name="t", identifier="app.t"),
        "lease": SimpleNamespace(check=lambda: None, renew_or_warn=lambda: None, has_failed=False),
        "task": State(0),
        "bad_records": SimpleNamespace(quarantine=companion, renew=lambda: None),
        "engine": SimpleNamespace(check=lambda: None, has_failed=False),
        "committer": SimpleNamespace(epoch=1, renew=lambda _: None, take_over=lambda _: outcomes.pop(0)),
        "live_files": lambda *_: None,
        "routing": None,
        "must_reload": True,
        "rewrites_met": 0,
    }
    for name, value in fields.items():
        setattr(owner, name, value)
    if count > REWRITES_MAX:
        with pytest.raises(ForeignSnapshot):
            owner._reload()
        return
    assert owner._reload()
    assert len(looks) == count + 1
    assert owner.position == State(7)  # type: ignore[comparison-overlap]
    assert not owner.must_reload

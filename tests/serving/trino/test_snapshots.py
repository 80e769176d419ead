"""Which snapshots the endpoint knows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.manual_clock import ManualClock
from thermocline.errors import LiveViewRefused
from thermocline.rules.seam import Seam
from thermocline.serving.trino.snapshots import WAIT_SECONDS, NamedSnapshot, NamedSnapshots


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def snapshots(tmp_path: Path, clock: ManualClock) -> NamedSnapshots:
    return NamedSnapshots("profiles", tmp_path, clock, look_seconds=4.0)


def named(snapshot_id: int, definition: Any) -> NamedSnapshot:
    return NamedSnapshot(snapshot_id, Seam(), "source", 0, definition, "")


def test_a_table_that_was_created_again_has_its_new_definition(
    snapshots: NamedSnapshots, new_world: Any
) -> None:
    """Both have the version 1, and snapshots of the old one are known for a while."""
    old = new_world().definition
    new = replace(old, columns=old.columns[:-1])
    snapshots.add(named(1, old))
    assert snapshots.definition(old.version) is old
    snapshots.add(named(2, new))
    assert snapshots.definition(old.version) is new
    snapshots.close()


def test_a_snapshot_is_waited_for_as_long_as_two_looks_at_the_catalog_take(
    snapshots: NamedSnapshots, clock: ManualClock
) -> None:
    began = clock.monotonic()
    with pytest.raises(LiveViewRefused):
        snapshots.named(7)
    assert clock.monotonic() - began >= WAIT_SECONDS + 2 * 4.0

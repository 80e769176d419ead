"""A standby takes over from an owner that is frozen or killed, and one that wakes up commits nothing more."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.behaviour.several import Several, said
from tests.torture import takeover
from thermocline.dev.stack import Command, Stack
from thermocline.errors import OwnerLost
from thermocline.iceberg.holder import standby_of

NAMES = ("left", "right")
STANDING_BY = "standing by until the owner ends"
TAKING_OVER = "the owner has ended; taking over"


@pytest.fixture(scope="module")
def several(new_stack: Callable[..., Stack]) -> Several:
    return Several(new_stack("standby"), NAMES, lease_seconds=5.0)


def standby(several: Several) -> Command:
    """One that has seen that the owners live."""
    started = several.command("ingest", "run", "--standby")
    several.wait_for(
        lambda: {line["table"] for line in said(started, STANDING_BY)} == set(NAMES), "it waits", started
    )
    assert not said(started, "ownership taken")
    return started


def epochs(several: Several) -> list[int]:
    return [live.state().epoch for live in several.tables.values()]


def shown(several: Several) -> set[int | None]:
    """The processes that stand by, as others are shown them."""
    tables = [live.table() for live in several.tables.values()]
    found = [standby_of(table.io, table.location()) for table in tables]
    return {None if one is None else one.pid for one in found}


@pytest.mark.full
def test_a_standby_takes_over_all_tables_of_an_owner_that_is_frozen_or_killed(several: Several) -> None:
    """Goal: nothing is lost or repeated, and the owner that was frozen is fenced when it wakes up."""
    first = several.command("ingest", "run")
    several.write(0)
    several.wait_until_committed(*NAMES, by=first)
    second = standby(several)
    before = epochs(several)
    several.wait_for(lambda: shown(several) == {second.process.pid}, "it is shown", second)

    os.killpg(first.process.pid, signal.SIGSTOP)
    several.write(10)
    several.wait_until_committed(*NAMES, by=second)
    assert {line["table"] for line in said(second, TAKING_OVER)} == set(NAMES)
    assert epochs(several) == [epoch + 1 for epoch in before]
    several.wait_for(lambda: shown(several) == {None}, "it stands by no more", second)
    several.write(20)
    os.killpg(first.process.pid, signal.SIGCONT)
    assert first.process.wait() == OwnerLost.exit_code
    assert {line["code"] for line in said(first, "ingest of a table stopped")} == {OwnerLost.code}
    several.wait_until_committed(*NAMES, by=second)

    third = standby(several)
    several.wait_for(lambda: shown(several) == {third.process.pid}, "the next is shown", third)
    second.kill()
    several.write(30)
    several.wait_until_committed(*NAMES, by=third)
    assert epochs(several) == [epoch + 2 for epoch in before]
    for live in several.tables.values():
        assert live.summary()["thermocline.total-records-read"] == str(len(live.topic.oracle))
    third.tell_to_stop()
    assert third.process.wait() == 0


@pytest.mark.full
def test_two_that_stand_by_for_each_other_take_turns_and_neither_commits_out_of_turn(tmp_path: Path) -> None:
    """Method: rounds of `tests.torture.takeover`, in which the owner that was frozen is the next standby."""
    takeover.run(tmp_path, rounds=3, seed=2, engine="local", is_standby=True)

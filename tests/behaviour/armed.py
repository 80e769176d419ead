"""The file that arms failpoints of this process, and of all that it starts, while a test runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.failpoints.arming import disarm, fired
from tests.failpoints.firing import arm_from, environment
from tests.failpoints.point import Action, Process
from tests.failpoints.points import POINTS

ERROR_LIKE = (Action.ERROR, Action.APPLIED_THEN_ERROR)
# What else has to fail before a point is met.
FAILS_BEFORE = {
    "commit.look": "commit.publish=error@1",
    "commit.note": "commit.publish=error@1",
    "settle.delete": "commit.publish=error@1",
    "settle.forget": "commit.publish=error@1",
    "owner.clean-up": "owner.check=error@1",
    "owner.reload": "owner.plan=error@1",
}


@contextmanager
def armed_by(path: Path) -> Iterator[Path]:
    """Nothing is armed before it is written, nor afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(file=path).items():
            patch.setenv(name, value)
        arm_from(os.environ)
        yield path
    disarm(path)
    arm_from(os.environ)


@contextmanager
def armed_owners(path: Path) -> Iterator[Path]:
    """As `armed_by`, with a short lease: a table whose owner died, or could not free it, is waited for."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("THERMOCLINE_INGEST__LEASE_SECONDS", "3")
        with armed_by(path):
            yield path


def has_fired(path: Path, entry: str) -> bool:
    """Whether what the file says now has happened."""
    return entry in [one.entry for one in fired(path)]


def error_like(*processes: Process) -> list[tuple[str, Action]]:
    """Every point that one of the processes comes by, with each of its errors."""
    return [
        (point.name, action)
        for point in POINTS.values()
        if set(processes) & set(point.processes)
        for action in point.actions
        if action in ERROR_LIKE
    ]

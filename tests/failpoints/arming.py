"""What is armed: its syntax, the file that arms while processes run, and the journal of what fired.

    point=action[@n][;point=action[@n]]...

Actions are error, kill, sleep:SECONDS, applied-then-error, and skew:MS of a clock.

With ``@n`` only the n-th time counts at which a process comes by; armed by the variable, in each process.
Armed by the file, whose entries may also stand on lines of their own, it fires once in all, in the process
that comes there first: one that was killed by it and started again goes on. Rewriting the file arms it again.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

import msgspec

from tests.failpoints.point import Action, Form
from tests.failpoints.points import POINTS
from thermocline.errors import did_you_mean

TEXT_VARIABLE: Final = "FAILPOINTS"
FILE_VARIABLE: Final = "FAILPOINTS_FILE"

_ENTRY: Final = re.compile(
    r"(?P<point>[a-z.-]+)=(?P<action>[a-z-]+)(:(?P<value>-?\d+(\.\d+)?))?(@(?P<nth>[1-9]\d*))?"
)
_MEASURED: Final = {Action.SLEEP: "sleep:SECONDS", Action.SKEW: "skew:MS"}


@dataclass(frozen=True, slots=True)
class Arm:
    """One entry. ``value`` is seconds of a sleep, milliseconds of a skew; ``nth`` None means every time."""

    point: str
    action: Action
    value: float
    nth: int | None
    text: str


class Fired(msgspec.Struct, frozen=True):
    """A line of the journal: which entry fired, in which process. ``stamp`` is of the file that armed it."""

    stamp: str
    entry: str
    pid: int


def parse(text: str, origin: str) -> tuple[Arm, ...]:
    """The entries of a text. Raises ValueError with every problem, under the name of its origin."""
    arms: list[Arm] = []
    problems: list[str] = []
    for entry in filter(None, (part.strip() for part in re.split(r"[;\n]", text))):
        arm_or_problem = _parsed(entry)
        if isinstance(arm_or_problem, Arm):
            arms.append(arm_or_problem)
        else:
            problems.append(arm_or_problem)
    if problems:
        raise ValueError(f"{origin}: {'; '.join(problems)}")
    return tuple(arms)


def arm(path: Path, text: str) -> None:
    """Write the file that processes look into: what it says is armed from now on, and nothing else.

    Raises ValueError; then the file stays as it was.
    """
    parse(text, str(path))
    scratch = path.with_name(f"{path.name}.new")
    scratch.write_text(text)
    scratch.replace(path)


def disarm(path: Path) -> None:
    """Remove the file and the journal."""
    path.unlink(missing_ok=True)
    journal_of(path).unlink(missing_ok=True)


def fired(path: Path) -> tuple[Fired, ...]:
    """What has fired of what the file says now, in order. Without ``@n`` each process says so once."""
    try:
        lines = journal_of(path).read_bytes().splitlines()
    except FileNotFoundError:
        return ()
    stamp = stamp_of(path)
    found = (msgspec.json.decode(line, type=Fired) for line in lines)
    return tuple(one for one in found if one.stamp == stamp)


def journal_of(path: Path) -> Path:
    """Where processes note what fired by the file."""
    return path.with_name(f"{path.name}.fired")


def stamp_of(path: Path) -> str | None:
    """What changes whenever the file is rewritten; None where it is not there."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return f"{status.st_ino}-{status.st_mtime_ns}"


def is_first(path: Path, stamp: str, entry: str) -> bool:
    """Note that an entry of the file fires; False, and nothing is noted, where it has fired before."""
    with _locked(journal_of(path)) as journal:
        found = [msgspec.json.decode(line, type=Fired) for line in journal.read().splitlines()]
        if any((one.stamp, one.entry) == (stamp, entry) for one in found):
            return False
        _append(journal, stamp, entry)
        return True


def note(path: Path, stamp: str, entry: str) -> None:
    """Note that an entry of the file fires."""
    with _locked(journal_of(path)) as journal:
        _append(journal, stamp, entry)


def _parsed(entry: str) -> Arm | str:
    """The entry, or what is wrong with it."""
    match = _ENTRY.fullmatch(entry)
    if match is None:
        return f'"{entry}": write point=action, with :VALUE and @N where they are wanted'
    point = POINTS.get(match["point"])
    if point is None:
        return f'"{entry}": no failpoint is called {match["point"]}{did_you_mean(match["point"], POINTS)}'
    if match["action"] not in point.actions:
        known = ", ".join(_MEASURED.get(action, action.value) for action in point.actions)
        return f'"{entry}": {point.name} can {known}'
    action = Action(match["action"])
    if (action in _MEASURED) != (match["value"] is not None):
        return f'"{entry}": write {_MEASURED.get(action, action.value)}'
    if point.form is Form.CLOCK and match["nth"] is not None:
        return f'"{entry}": a clock is wrong all the time, without @N'
    nth = int(match["nth"]) if match["nth"] else None
    return Arm(point.name, action, float(match["value"] or 0), nth, entry)


@contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    with path.open("a+b") as journal:
        fcntl.flock(journal, fcntl.LOCK_EX)
        journal.seek(0)
        yield journal


def _append(journal: IO[bytes], stamp: str, entry: str) -> None:
    journal.write(msgspec.json.encode(Fired(stamp, entry, os.getpid())) + b"\n")
    journal.flush()

"""Sinks and requests for the tests of the audit log."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.thermocline.profiles import PROFILES
from thermocline.serving.access.audit import Access
from thermocline.serving.access.audit_sink import Line, SinkFailed
from thermocline.serving.cold.reader import Entity
from thermocline.serving.read.entity import entity_of

PATIENCE_SECONDS = 30.0


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def entity(user: str, key: str | None = None, app_id: int = 7) -> Entity:
    parameters = {"app_id": str(app_id), "user_id": user}
    return entity_of(PROFILES, parameters if key is None else {**parameters, "key": key})


def access(number: int = 0, verb: str = "lookup") -> Access:
    """The request of that number, as its id."""
    return Access(verb, f"r{number}", 200, 0.0005, client="billing")


def lines_of(folder: Path) -> list[bytes]:
    """All that stands in the files of a folder, oldest first, with the ends of the lines."""
    set_aside = sorted(folder.glob("audit-*.jsonl"))
    current = [one for one in [folder / "audit.jsonl"] if one.exists()]
    return [line for path in [*set_aside, *current] for line in path.read_bytes().splitlines(keepends=True)]


class MemorySink:
    """Takes lines, unless it is told to fail or to hang."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.batches = 0
        self.attempts = 0
        self.failure: Exception | None = None
        self.may_go = threading.Event()
        self.may_go.set()
        self.is_closed = False

    def write(self, lines: Sequence[Line]) -> None:
        self.attempts += 1
        self.may_go.wait(PATIENCE_SECONDS)
        if self.failure is not None:
            raise self.failure
        self.batches += 1
        self.lines += [line.text for line in lines]

    def close(self) -> None:
        self.is_closed = True


AWAY = SinkFailed("the disk was taken out")

"""Judges every answer at its own read point, as soon as the ledger has come as far."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from tests.torture.ledger import Entity
from thermocline.dev.oracle import Row, RowKey, differences
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam

# Answers that wait while the ledger can't read; then readers wait too.
WAITING_MAX: Final = 20_000
# The ledger reads the log as serving does; a broker may be unavailable or frozen for some of this.
LEDGER_SECONDS_MAX: Final = 180.0
SAID_MAX: Final = 100  # by then it is clear that something is broken
DIFFERENCES_MAX: Final = 20  # of one answer: more say nothing new


ANY: Final = Seam()  # names no record


@dataclass(frozen=True, slots=True)
class Answer:
    """What a read path said. ``floor``: what it had to include; ``entity``: None for the whole table."""

    session: str
    read_path: str
    entity: Entity | None
    rows: Sequence[Row]
    point: ReadPoint
    floor: Seam = ANY


class Truth(Protocol):
    """What an answer is compared with."""

    def rows_of(self, entity: Entity, end: Seam) -> Mapping[RowKey, Row]: ...
    def rows(self, end: Seam) -> Mapping[RowKey, Row]: ...
    def wait_for(self, end: Seam, seconds: float) -> bool: ...


class Findings:
    """The differences found, each said as soon as it is. For any thread."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.unforeseen: Counter[str] = Counter()
        self.context = ""
        self.is_harsh = False

    def add(self, kind: str, what: str) -> None:
        """Notes one."""
        line = f"{kind}: {what} [{self.context}]"
        self.lines.append(line)
        if len(self.lines) <= SAID_MAX:
            print(f"DIFFERENCE {line}", flush=True)

    @property
    def count(self) -> int:
        """How much there is to look at."""
        return len(self.lines) + self.unforeseen.total()

    def add_unforeseen(self, kind: str, what: str) -> None:
        """Notes an error that nobody gave a name: a difference, unless disks or files fail on purpose."""
        if not self.is_harsh:
            self.add(kind, what)
            return
        self.unforeseen[kind] += 1
        print(f"unforeseen, {kind}: {what} [{self.context}]", flush=True)


class Judge:
    """Takes answers of several sessions, in the order of each, and notes what is wrong with them."""

    def __init__(
        self, truth: Truth, findings: Findings, patience_seconds: float = LEDGER_SECONDS_MAX
    ) -> None:
        self.judged: Counter[str] = Counter()
        self._truth = truth
        self._findings = findings
        self._patience_seconds = patience_seconds
        self._reached: dict[str, Seam] = {}
        self._waiting: queue.Queue[Answer | None] = queue.Queue(WAITING_MAX)
        self._thread = threading.Thread(target=self._run, name="judge", daemon=True)

    def start(self) -> None:
        """Begins to judge."""
        self._thread.start()

    def take(self, answer: Answer) -> None:
        """Hands in an answer; waits while too many do."""
        self._waiting.put(answer)

    def settle(self) -> None:
        """Returns when all that was handed in is judged."""
        self._waiting.join()

    def stop(self) -> None:
        """Judges what was handed in, and ends."""
        self._waiting.put(None)
        self._thread.join()

    def differences(self, answer: Answer) -> list[tuple[str, str]]:
        """What is wrong with an answer, as kinds and sentences; the ledger has come as far as it."""
        end, found = answer.point.end, []
        if not end.at_least(answer.floor):
            found.append(("stale", f"asked to include {answer.floor}, it reflects {end}"))
        reached = self._reached.get(answer.session, Seam())
        if not end.at_least(reached):
            found.append(("went back", f"{end} after an answer at {reached}"))
        self._reached[answer.session] = reached.merged_max(end)
        entity = answer.entity
        oracle = self._truth.rows(end) if entity is None else self._truth.rows_of(entity, end)
        wrong = differences(oracle, answer.rows)[:DIFFERENCES_MAX]
        return [*found, *(("wrong rows", line) for line in wrong)]

    def _run(self) -> None:
        while (answer := self._waiting.get()) is not None:
            try:
                self._judge(answer)
            except Exception as error:  # noqa: BLE001 -- an answer that can't be judged is no good one
                self._findings.add("not judged", f"{answer.read_path}: {type(error).__name__}: {error}")
            finally:
                self._waiting.task_done()
        self._waiting.task_done()

    def _judge(self, answer: Answer) -> None:
        if not self._truth.wait_for(answer.point.end, self._patience_seconds):
            self._patience_seconds = 0.0  # the others need not wait for it as well
            self._findings.add("beyond the log", f"{answer.read_path} at {answer.point.to_header()}")
            return
        self.judged[answer.read_path] += 1
        for kind, what in self.differences(answer):
            self._findings.add(
                kind, f"{answer.read_path}, {answer.session}: {what}; {answer.point.to_header()}"
            )

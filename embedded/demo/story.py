"""The story of one row: written, committed, changed, attacked by garbage, deleted."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from embedded.demo.garbage import garbage_about
from embedded.demo.lookups import Answer
from embedded.demo.verdict import named
from embedded.demo.view_door import View, ViewDoor
from embedded.demo.view_freshness import value_in
from embedded.demo.witness import Sight, Witness
from embedded.demo.writer import Written
from embedded.oracle import RowKey
from thermocline.errors import VerdictBad
from thermocline.process.clock import Clock
from thermocline.text.shown import json_text

ADA: Final = (7, "ada")
ROW: Final[RowKey] = (*ADA, "plan")
OTHER_ROWS: Final[dict[RowKey, str]] = {(*ADA, "city"): "London", (*ADA, "language"): "en-GB"}
FROM_ICEBERG: Final = "from Iceberg"
FROM_KAFKA: Final = "from Kafka"
# For the person who reads along.
PAUSE_SECONDS: Final = 2.0
# Between lookups while the commit is awaited.
LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Step:
    """What happened to the row, what lookups say since, how long that took, and why it is right.

    ``view_ms`` is how long the view by key in Trino took to say the same.
    """

    what: str
    now: str
    ms: float
    why: str
    view_ms: float | None = None


class Story:
    """Tells the steps one by one; ``steps`` grows as they happen, ``garbage`` says where that was put."""

    def __init__(self, witness: Witness, clock: Clock, door: ViewDoor | None = None) -> None:
        self.steps: list[Step] = []
        self.garbage: list[Written] = []
        self.is_told = False
        self._witness = witness
        self._clock = clock
        self._door = door

    def run(self, stop: threading.Event) -> None:
        """Until the end of the story, or until told to stop. Raises as `Witness.write`."""
        for row, value in OTHER_ROWS.items():
            self._witness.write(row, value)
        written = self._tell("written", '"free"', self._witness.write(ROW, "free"), "free")
        if not self._await_commit(written, stop) or stop.wait(PAUSE_SECONDS):
            return
        self._tell("changed", '"team"', self._witness.write(ROW, "team"), "team")
        if stop.wait(PAUSE_SECONDS):
            return
        self._attack()
        if stop.wait(PAUSE_SECONDS):
            return
        self._tell("deleted", "not found", self._witness.write(ROW, None), None)
        self.is_told = True

    def _tell(self, what: str, now: str, sight: Sight, value: str | None) -> Written:
        why = origin(sight.written, sight.answer)
        self.steps.append(Step(what, now, sight.seconds * 1000, why, self._view_ms(value)))
        return sight.written

    def _view_ms(self, value: str | None) -> float | None:
        """How long the view takes to say that the row has this value; None where it is not there to ask.

        The row's last record is acknowledged, so its first answer must be right.
        """
        if self._door is None:
            return None
        began = self._clock.monotonic()
        rows = self._door.rows_of(View.BY_KEY, [ADA])
        if rows is None:
            return None
        said = value_in(rows, ROW)
        if said != value:
            says = f"{named(ROW)} is {json_text(said)} in {View.BY_KEY}"
            raise VerdictBad(detail=f"{says}, but {json_text(value)} was written last")
        return (self._clock.monotonic() - began) * 1000

    def _await_commit(self, written: Written, stop: threading.Event) -> bool:
        """Looks all the time; whether the commit came before the stop."""
        while not stop.wait(LOOK_SECONDS):
            answer = self._witness.look(ROW)
            if answer is not None and answer.read_point.seam.covers(*written.place, written.offset):
                why = origin(written, answer)
                self.steps.append(
                    Step("committed", '"free"', answer.seconds * 1000, why, self._view_ms("free"))
                )
                return True
        return False

    def _attack(self) -> None:
        sights = [
            self._witness.write_garbage(ROW, garbage.key, garbage.value) for garbage in garbage_about(ROW)
        ]
        self.garbage.extend(sight.written for sight in sights)
        slowest = max(sight.seconds for sight in sights)
        why = f"{len(sights)} bad records, most with this row's key, changed nothing"
        self.steps.append(Step("garbage", 'still "team"', slowest * 1000, why, self._view_ms("team")))


def origin(written: Written, answer: Answer) -> str:
    """Where an answer has a record from, told by its offset and the seam of the snapshot that was read."""
    topic, partition = written.place
    seam = answer.read_point.seam
    if seam.covers(topic, partition, written.offset):
        return f"offset {written.offset:,} < seam {seam.get(written.place):,}: {FROM_ICEBERG}"
    return f"offset {written.offset:,} ≥ seam {seam.get(written.place):,}: {FROM_KAFKA}"

"""The story of one row, and the probe of freshness: rows of their own, so each answer is checked at once."""

from __future__ import annotations

import random
import threading
from dataclasses import dataclass
from itertools import count
from typing import Final

from thermocline.dev.demo.figures import StoryStep, Timings
from thermocline.dev.demo.lookups import LookupAnswer, LookupConnection
from thermocline.dev.demo.reporter import FROM_ICEBERG, FROM_KAFKA
from thermocline.dev.demo.views import View, Views, value_in
from thermocline.dev.demo.writer import Writer, Written, garbage_about
from thermocline.dev.oracle import RowKey, named
from thermocline.dev.stack import TABLE
from thermocline.errors import NotReady, ReadAfterTimeout, ServerUnreachable, VerdictBad
from thermocline.process.clock import Clock
from thermocline.text.shown import json_text

ADA: Final = (7, "ada")
ROW: Final[RowKey] = (*ADA, "plan")
OTHER_ROWS: Final[dict[RowKey, str]] = {(*ADA, "city"): "London", (*ADA, "language"): "en-GB"}
PROBE: Final = (7, "probe")
PROBE_ROWS: Final = 16
"""More than partitions, so that each of those is written to."""
# Some four a second: enough for a 99th percentile within a minute, and the server is left alone between them.
PROBE_PAUSE_SECONDS: Final = (0.1, 0.3)
# Far beyond any freshness worth showing: a tailer that is restarted takes a few seconds.
SEEN_SECONDS_MAX: Final = 30.0
RETRY_SECONDS: Final = 0.01
# For the person who reads along.
PAUSE_SECONDS: Final = 2.0
# Between lookups while the commit is awaited.
LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class Sight:
    """A record, the first answer that includes it, and how long after the acknowledgement that came."""

    written: Written
    answer: LookupAnswer
    seconds: float


class Witness:
    """Writes rows that nobody else writes, so it knows what each answer must say. For one thread."""

    def __init__(self, writer: Writer, lookups: LookupConnection, clock: Clock) -> None:
        self._writer = writer
        self._lookups = lookups
        self._clock = clock
        self._values: dict[RowKey, str | None] = {}
        self.answers_checked = 0
        self.answers_refused = 0

    def write(self, row: RowKey, value: str | None) -> Sight:
        """Sets or deletes a row, and looks until that is seen.

        Raises:
            VerdictBad: an answer said something else than its read point means.
            ReadAfterTimeout: no answer included it in time.
            KafkaUnreachable: the broker did not acknowledge it.
        """
        before = self._values.get(row)
        written = self._writer.write(row, value)
        self._values[row] = value
        return self._seen(row, written, before)

    def write_garbage(self, row: RowKey, key: bytes | None, value: bytes | None) -> Sight:
        """Writes a bad record, and looks at the row, which must not change, until an answer is beyond it.

        Raises as ``write``.
        """
        return self._seen(row, self._writer.write_raw(key, value), self._values.get(row))

    def look(self, row: RowKey) -> LookupAnswer | None:
        """What a lookup says now; None where the server could not answer. Raises `VerdictBad`."""
        answer = self._answer(row)
        if answer is not None:
            self._check(row, answer, self._values.get(row))
        return answer

    def _seen(self, row: RowKey, written: Written, before: str | None) -> Sight:
        deadline = written.acknowledged_at + SEEN_SECONDS_MAX
        while self._clock.monotonic() < deadline:
            answer = self._answer(row)
            if answer is None:
                continue
            is_included = answer.read_point.end.covers(*written.place, written.offset)
            self._check(row, answer, self._values.get(row) if is_included else before)
            if is_included:
                return Sight(written, answer, self._clock.monotonic() - written.acknowledged_at)
        raise ReadAfterTimeout(table=TABLE, wanted=str(written), waited_seconds=SEEN_SECONDS_MAX)

    def _answer(self, row: RowKey) -> LookupAnswer | None:
        try:
            return self._lookups.entity(row[:2])
        except (NotReady, ServerUnreachable):
            self.answers_refused += 1
            self._clock.sleep(RETRY_SECONDS)
            return None

    def _check(self, row: RowKey, answer: LookupAnswer, expected: str | None) -> None:
        self.answers_checked += 1
        said = value_in(answer.rows, row)
        if said != expected:
            point = answer.read_point.to_header()
            says = f"{named(row)} is {json_text(said)} at {point}"
            raise VerdictBad(detail=f"{says}, but {json_text(expected)} was written there")


class Probe:
    """Measures freshness: from Kafka's acknowledgement to the first answer that shows the value."""

    def __init__(self, witness: Witness, seed: int) -> None:
        self.timings = Timings()
        self._witness = witness
        self._random = random.Random(seed)  # pauses that fall into step with nothing

    def run(self, stop: threading.Event) -> None:
        """Until told to stop. Raises as `Witness.write`."""
        for number in count():
            if stop.wait(self._random.uniform(*PROBE_PAUSE_SECONDS)):
                return
            row = (*PROBE, f"probe_{number % PROBE_ROWS:02d}")
            self.timings.add(self._witness.write(row, f"written as number {number}").seconds)


class Story:
    """One row: written, committed, changed, attacked by garbage, deleted; ``steps`` grows as that happens."""

    def __init__(self, witness: Witness, views: Views | None = None) -> None:
        self.steps: list[StoryStep] = []
        self.garbage = 0
        self.is_told = False
        self._witness = witness
        self._views = views

    def run(self, stop: threading.Event) -> None:
        """Until the end of the story, or until told to stop. Raises as `Witness.write`."""
        for row, value in OTHER_ROWS.items():
            self._witness.write(row, value)
        written = self._write("written", '"free"', "free")
        if not self._await_commit(written, stop) or stop.wait(PAUSE_SECONDS):
            return
        self._write("changed", '"team"', "team")
        if stop.wait(PAUSE_SECONDS):
            return
        self._attack()
        if stop.wait(PAUSE_SECONDS):
            return
        self._write("deleted", "not found", None)
        self.is_told = True

    def _write(self, what: str, now: str, value: str | None) -> Written:
        sight = self._witness.write(ROW, value)
        self._tell(what, now, sight.seconds, origin(sight.written, sight.answer), value)
        return sight.written

    def _await_commit(self, written: Written, stop: threading.Event) -> bool:
        """Looks all the time; whether the commit came before the stop."""
        while not stop.wait(LOOK_SECONDS):
            answer = self._witness.look(ROW)
            if answer is not None and answer.read_point.seam.covers(*written.place, written.offset):
                self._tell("committed", '"free"', answer.seconds, origin(written, answer), "free")
                return True
        return False

    def _attack(self) -> None:
        sights = [self._witness.write_garbage(ROW, *record) for record in garbage_about(ROW)]
        self.garbage = len(sights)
        why = f"{len(sights)} bad records, most with this row's key, changed nothing"
        self._tell("garbage", 'still "team"', max(sight.seconds for sight in sights), why, "team")

    def _tell(self, what: str, now: str, seconds: float, why: str, value: str | None) -> None:
        # The row's last record is acknowledged, so the view's first answer must be right.
        in_view = self._views.check(View.BY_KEY, ROW, value) if self._views else None
        view_ms = None if in_view is None else in_view * 1000
        self.steps.append(StoryStep(what, now, seconds * 1000, why, view_ms))


def origin(written: Written, answer: LookupAnswer) -> str:
    """Where an answer has a record from, told by its offset and the seam of the snapshot that was read."""
    seam = answer.read_point.seam.get(written.place)
    if written.offset < seam:
        return f"offset {written.offset:,} < seam {seam:,}: {FROM_ICEBERG}"
    return f"offset {written.offset:,} ≥ seam {seam:,}: {FROM_KAFKA}"

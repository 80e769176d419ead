"""Writes one row, looks until an answer includes that, and checks every answer on the way."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Final

from thermocline.clock import Clock
from thermocline.embedded.demo.lookups import Answer, Lookups
from thermocline.embedded.demo.writer import Writer, Written
from thermocline.embedded.oracle import RowKey
from thermocline.errors import NotReady, ReadAfterTimeout, ServerUnreachable, VerdictBad

# Far beyond any freshness worth showing: a tailer that is restarted takes a few seconds.
SEEN_SECONDS_MAX: Final = 30.0
RETRY_SECONDS: Final = 0.01


@dataclass(frozen=True, slots=True)
class Sight:
    """A record, the first answer that includes it, and how long after the acknowledgement that came."""

    written: Written
    answer: Answer
    seconds: float


class Witness:
    """Writes rows that nobody else writes, so it knows what each answer must say. For one thread."""

    def __init__(self, writer: Writer, lookups: Lookups, table: str, clock: Clock) -> None:
        self._writer = writer
        self._lookups = lookups
        self._table = table
        self._clock = clock
        self._values: dict[RowKey, str | None] = {}
        self.answers_checked = 0

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
        deadline = written.acknowledged_at + SEEN_SECONDS_MAX
        while self._clock.monotonic() < deadline:
            answer = self._looked_up(row)
            if answer is not None and self._is_included(row, written, answer, before):
                return Sight(written, answer, self._clock.monotonic() - written.acknowledged_at)
        wanted = f"{written.place[0]}/{written.place[1]}@{written.offset}"
        raise ReadAfterTimeout(table=self._table, wanted=wanted, waited_seconds=SEEN_SECONDS_MAX)

    def write_garbage(self, row: RowKey, key: bytes, value: bytes) -> Sight:
        """Writes a bad record with the row's own key, and looks until an answer is beyond it; raises as above."""
        ...

    def look(self, row: RowKey) -> Answer | None:
        """What a lookup says now, checked against what was written; None where there was no answer.

        Raises:
            VerdictBad: it says something else.
        """
        answer = self._looked_up(row)
        if answer is not None:
            self._expect(row, answer, self._values.get(row))
        return answer

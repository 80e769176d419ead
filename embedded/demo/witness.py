"""Writes one row, looks until an answer includes that, and checks every answer on the way."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from embedded.demo.lookups import Answer, Lookups
from embedded.demo.verdict import named
from embedded.demo.writer import Writer, Written
from embedded.oracle import RowKey
from thermocline.errors import NotReady, ReadAfterTimeout, ServerUnreachable, VerdictBad
from thermocline.process.clock import Clock
from thermocline.text.shown import json_text

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

    def look(self, row: RowKey) -> Answer | None:
        """What a lookup says now; None where the server could not answer.

        Raises:
            VerdictBad: it says something else than what was written last.
        """
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
        wanted = f"{written.place[0]}/{written.place[1]}@{written.offset}"
        raise ReadAfterTimeout(table=self._table, wanted=wanted, waited_seconds=SEEN_SECONDS_MAX)

    def _answer(self, row: RowKey) -> Answer | None:
        try:
            return self._lookups.entity(row[:2])
        except (NotReady, ServerUnreachable):
            self.answers_refused += 1
            self._clock.sleep(RETRY_SECONDS)
            return None

    def _check(self, row: RowKey, answer: Answer, expected: str | None) -> None:
        self.answers_checked += 1
        said = value_of(row, answer)
        if said != expected:
            point = answer.read_point.to_header()
            detail = (
                f"{named(row)} is {json_text(said)} at {point}, but {json_text(expected)} was written there"
            )
            raise VerdictBad(detail=detail)


def value_of(row: RowKey, answer: Answer) -> str | None:
    """The row's value in an answer for its entity; None where it has no such row."""
    return next((found["value"] for found in answer.rows if found["key"] == row[2]), None)

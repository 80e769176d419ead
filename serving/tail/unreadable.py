"""The records that a reader of an older read point can't read by now, and others may have been able to.

Whether a record is bad can change while it stays in the log: its schema is deleted from the registry, or a
limit is lowered. A record that was good to whoever read it first must not be left out in silence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thermocline.rules.bad_digest import digest_of, merged

if TYPE_CHECKING:
    from thermocline.kafka.facts import RecordChunk
    from thermocline.rules.decode import Bad
    from thermocline.rules.seam import Seam


@dataclass(slots=True)
class Unreadable:
    """The bad records that were met: those that ingest has read, before ``seam``; and those of an answer.

    ``digest`` is of the former, and ``first`` the first of them, with the reason. ``answer_end`` is where the
    earlier answer ended, and ``without_schema`` the first record before it whose schema could not be had.
    """

    seam: Seam
    answer_end: Seam
    digest: int = 0
    first: str = ""
    without_schema: str = ""

    def note(self, chunk: RecordChunk, bad: Sequence[Bad], lacks_schema: bool) -> None:
        """Takes up the bad records of a chunk; ``lacks_schema``: of some of its records."""
        committed = _before(self.seam, chunk, bad)
        offsets = (chunk.offsets[one.index] for one in committed)
        self.digest = merged(self.digest, digest_of(chunk.topic, chunk.partition, offsets))
        if committed and not self.first:
            self.first = _worded(chunk, committed[0])
        answered = _before(self.answer_end, chunk, bad)
        if lacks_schema and answered and not self.without_schema:
            self.without_schema = _worded(chunk, answered[0])


def _before(end: Seam, chunk: RecordChunk, bad: Sequence[Bad]) -> list[Bad]:
    until = end.get((chunk.topic, chunk.partition))
    return [one for one in bad if chunk.offsets[one.index] < until]


def _worded(chunk: RecordChunk, bad: Bad) -> str:
    return f"{chunk.topic}/{chunk.partition}@{chunk.offsets[bad.index]} can't be read now ({bad.reason})"

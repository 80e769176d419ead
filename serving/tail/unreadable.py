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
    from thermocline.kafka.facts import TopicRecords
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

    def note(self, records: TopicRecords, bad: Sequence[Bad], lacks_schema: bool) -> None:
        """Takes up the bad ones among records of a topic; ``lacks_schema``: of some of them."""
        committed = _before(self.seam, records, bad)
        places = (_place_in(records, one) for one in committed)
        digests = (digest_of(records.topic, partition, [offset]) for partition, offset in places)
        self.digest = merged(self.digest, *digests)
        if committed and not self.first:
            self.first = _worded(records, committed[0])
        answered = _before(self.answer_end, records, bad)
        if lacks_schema and answered and not self.without_schema:
            self.without_schema = _worded(records, answered[0])


def _before(end: Seam, records: TopicRecords, bad: Sequence[Bad]) -> list[Bad]:
    places = ((one, *_place_in(records, one)) for one in bad)
    return [one for one, partition, offset in places if offset < end.get((records.topic, partition))]


def _worded(records: TopicRecords, bad: Bad) -> str:
    partition, offset = _place_in(records, bad)
    return f"{records.topic}/{partition}@{offset} can't be read now ({bad.reason})"


def _place_in(records: TopicRecords, bad: Bad) -> tuple[int, int]:
    return records.partitions[bad.index], records.offsets[bad.index]

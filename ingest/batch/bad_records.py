"""The handling of a batch's bad records, before the batch commits.

Stop on one that the table does not bear, stop where there are too many, else make them durable: in the
dead-letter topic where there is one, and in quarantine. Only then may the seam pass them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from thermocline.errors import (
    CommitRejected,
    TableMissing,
    ThermoclineError,
    TooManyBadRecords,
)
from thermocline.iceberg.files import delete_files
from thermocline.ingest.batch.accounting import bad_by_stage
from thermocline.ingest.quarantine import keep_files, read_files, renew
from thermocline.kafka.dead_letters import DeadLetter, send_dead_letters
from thermocline.rules.stage import Stage

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.ingest.batch.read_task import FirstBad, ReadReport
    from thermocline.kafka.log import Log
    from thermocline.rules.definition import LiveTable, OnError
    from thermocline.settings import TableSettings

# Below this many, a ratio says little: two bad records of three are no reason to stop for.
RATIO_BAD_RECORDS_MIN = 100
# Bad records that the error of a breaker shows.
EXAMPLES_MAX = 5
# What our headers of a dead letter begin with; the rest of each is the name of a fact.
HEADER_PREFIX = "thermocline."


@dataclass(frozen=True, slots=True)
class BadRecordsPolicy:
    """What a table bears; ``dead_letter_topic`` is None where there is none."""

    table: str
    on_error: OnError
    ratio_max: float
    count_max: int | None
    dead_letter_topic: str | None

    @classmethod
    def of(cls, definition: LiveTable, settings: TableSettings) -> BadRecordsPolicy:
        """The policy that a table's definition and the file's section say."""
        return cls(
            definition.name,
            definition.on_error,
            settings.errors_ratio_max,
            settings.errors_count_max,
            settings.dead_letter_topic,
        )


@dataclass(slots=True)
class BadRecords:
    """What becomes of one table's bad records. ``open_quarantine`` loads the companion table."""

    policy: BadRecordsPolicy
    client_config: Mapping[str, Any]
    open_quarantine: Callable[[], Table]
    quarantine: Table = field(init=False)

    def __post_init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Load the companion table again, with its access to the store. Raises `CatalogUnreachable`."""
        self.quarantine = self.open_quarantine()

    def settle(self, reports: Sequence[ReadReport]) -> None:
        """Make those of a batch durable before it commits, or stop on them: see `settle_bad_records`.

        Also raises `CommitRejected`, which is waited out, where the companion was dropped meanwhile: `renew`
        makes it again.
        """
        try:
            settle_bad_records(self.policy, reports, self.quarantine, self.client_config)
        except TableMissing as missing:
            raise CommitRejected(
                table=self.policy.table, batch_id="(not begun)", detail=missing.what
            ) from missing

    def discard(self, reports: Sequence[ReadReport]) -> None:
        """Delete the files of a batch that will not commit, while the quarantine does not know them."""
        delete_files(self.quarantine.io, [path for one in reports for path in one.quarantine_files])


def settle_bad_records(
    policy: BadRecordsPolicy,
    reports: Sequence[ReadReport],
    quarantine: Table,
    client_config: Mapping[str, Any],
) -> None:
    """Make the bad records of a batch durable. When this raises, the batch must not commit.

    Called again for the same records, as after a crash, it leaves repeats: readers of the quarantine drop
    them by (topic id, partition, offset), and those of the dead-letter topic may do the same.

    Raises:
        TooManyBadRecords: there are more than the table bears; at a stage that it wants to stop at, any.
        CatalogUnreachable: they could not be kept in quarantine, or not be read for the dead-letter topic.
        KafkaUnreachable: not all of them could be written to the dead-letter topic.
        TableMissing: the quarantine table was dropped.
        TopicMissing: the dead-letter topic does not exist.
        DeadLetterRefused: the dead-letter topic will never take one of them.
    """
    # As in the log, since tasks report in no order: what a key's letters say last is what came last.
    in_order = sorted(reports, key=lambda report: report.covered)
    paths = [path for report in in_order for path in report.quarantine_files]
    try:
        check_bearable(policy, reports)  # safety: breakers
        if paths:
            renew(quarantine)  # with its access to the store, which may have ended
        # The letters first: while they can't be sent, the quarantine would grow with each attempt.
        if paths and policy.dead_letter_topic is not None:
            letters = (dead_letter(policy.table, row) for row in read_files(quarantine.io, paths))
            send_dead_letters(client_config, policy.table, policy.dead_letter_topic, letters)
    except ThermoclineError:
        delete_files(quarantine.io, paths)  # no commit names them: from here on, one may
        raise
    if not paths:
        return
    keep_files(quarantine, paths)  # safety: quarantine-kept


def check_bearable(policy: BadRecordsPolicy, reports: Sequence[ReadReport]) -> None:
    """Raises `TooManyBadRecords` as ``settle_bad_records`` does; does nothing else.

    Records that the contract refuses are as they were asked for, so no limit counts them.
    """
    bad = bad_by_stage(reports)
    firsts = sorted(first for report in reports for first in report.first_bad.values())
    unborne = [first for first in firsts if policy.on_error.of(first.stage) == "fail"]  # safety: fail-stage
    read = sum(report.records for report in reports)
    limits = [f'on_error = "fail" for {first.stage}' for first in unborne[:1]]
    if not limits:
        refused = Counter({Stage.CONTRACT.value: sum(report.refused for report in reports)})
        bad -= refused
        firsts = [first for first in firsts if first.stage in bad]
        others = sum(report.filtered + report.unmatched for report in reports)
        ours = read - others - refused.total()  # safety: ratio-of-ours
        limits = list(_exceeded(policy, bad.total(), ours))
    if limits:
        raise TooManyBadRecords(
            table=policy.table,
            bad=bad.total(),
            read=read,
            stages=tuple(f"{count:,} at {stage}" for stage, count in sorted(bad.items())),
            limits=tuple(limits),
            examples=tuple(_worded(first) for first in (unborne or firsts)[:EXAMPLES_MAX]),
        )


def check_dead_letter_topic(policy: BadRecordsPolicy, log: Log) -> None:
    """Checks, before anything is read, that dead letters have a place. Raises `TopicMissing`."""
    if policy.dead_letter_topic is not None:
        log.describe([policy.dead_letter_topic])


def dead_letter(table: str, row: Mapping[str, Any]) -> DeadLetter:
    """A row of the quarantine as it goes into the dead-letter topic: its own headers first, then ours."""
    place = f"{row['topic']}/{row['partition']}@{row['offset']}"
    facts = {
        "table": table,
        "topic": row["topic"],
        "topic-id": row["topic_id"],
        "partition": row["partition"],
        "offset": row["offset"],
        "timestamp": row["timestamp"].isoformat(timespec="milliseconds"),
        "stage": row["stage"],
        "reason": row["reason"],
    }
    own = [(header["name"], header["value"]) for header in row["headers"] or ()]
    ours = [(HEADER_PREFIX + name, str(value).encode()) for name, value in facts.items()]
    return DeadLetter(row["key"], row["value"], (*own, *ours), place)


def _exceeded(policy: BadRecordsPolicy, bad: int, ours: int) -> Iterator[str]:
    if policy.count_max is not None and bad > policy.count_max:
        yield f"errors_count_max = {policy.count_max}"
    if bad >= RATIO_BAD_RECORDS_MIN and bad > policy.ratio_max * ours:
        yield f"errors_ratio_max = {policy.ratio_max:g}"


def _worded(first: FirstBad) -> str:
    return f"{first.topic}/{first.partition}@{first.offset} ({first.stage}): {first.reason}"

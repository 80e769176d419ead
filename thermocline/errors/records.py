"""Errors of records: they can't be read yet, or are bad."""

from __future__ import annotations

from thermocline.errors import places
from thermocline.errors.root import SAME_COMMAND, ExitCode, Listing
from thermocline.errors.source import SourceError


class TransactionOpen(SourceError):
    """An open transaction of a producer holds back later records.

    Only records of finished transactions are read, so reading a partition stops where its oldest open
    transaction begins, until that one is committed or aborted. A running producer does so in a moment. If the
    producer crashed, the broker aborts the transaction after its `transaction.timeout.ms` (by default a
    minute). A transaction that stays open longer is hanging.

    Nothing is lost: the table is complete up to there, and ingest continues by itself once the transaction
    has ended. `thermocline ingest offsets` and `thermocline status` show where it begins, and how many
    offsets wait behind it. Kafka's own tool finds and ends it: `kafka-transactions.sh --bootstrap-server
    HOST:PORT describe-producers --topic TOPIC --partition N` shows the producer, and `kafka-transactions.sh
    --bootstrap-server HOST:PORT abort --topic TOPIC --partition N --start-offset OFFSET` aborts it, where
    OFFSET is where it begins. Only abort what no producer is going to commit.
    """

    code = "transaction-open"
    retryable = True
    _what = "an open transaction holds back table {table}: {_held}."
    _state = "the table is complete up to there; ingest continues by itself once the transaction has ended."
    _cause = "a producer has neither committed nor aborted it."
    _next = (
        "thermocline ingest offsets {table}\n"
        "thermocline explain transaction-open says how to find and abort it"
    )

    table: str
    held: tuple[str, ...]  # TOPIC/PARTITION@FIRST-END: the offsets from where it begins, the end excluded

    @property
    def _held(self) -> str:
        return places.some(self.held, places.held_back)


class RangeIncomplete(SourceError):
    """A planned range of a partition couldn't be read to its end.

    Nothing arrived for a while, and the end wasn't reached, so the batch would have had a gap. Usually a
    broker is slow, or the partition has no leader.

    The batch was not committed, and its records are still in the log. Run ingest again: it plans from the
    seam.
    """

    code = "range-incomplete"
    retryable = True
    _what = "{topic}/{partition} was read only up to offset {reached:,}, of {first:,} to {end:,}."
    _state = "the batch was not committed; its records are still in the log."
    _cause = "the broker stopped sending before the end of the range."
    _next = (
        f"{SAME_COMMAND}      (safe to repeat)\nthermocline status      (shows whether the brokers answer)"
    )

    topic: str
    partition: int
    first: int
    end: int
    reached: int


class TooManyBadRecords(SourceError):
    """A batch has more bad records than allowed.

    A bad record doesn't match the definition. Its stage says how far decoding got: the key (key), the value
    as a whole (decode), or the types of its columns (contract). With on_error = "fail" for a stage, none is
    allowed. Elsewhere, a few bad records are quarantined one by one, but many at
    once usually have another cause: a producer changed its format, or the definition is wrong. So ingest
    stops before it moves the whole topic into quarantine. `errors_count_max` limits how many records of a
    batch may be bad, `errors_ratio_max` their share of the records read (from 100 bad records on). Skipped
    records count, too; records that the table's contract refuses (`contract = "quarantine"`) don't.

    The table is complete up to its seam, nothing was added to the quarantine, and ingest will meet the
    records again. Fix the definition or the producer. To quarantine the records nevertheless, set `on_error =
    "quarantine"` for the stage and run `thermocline table alter`, or raise the limit in the table's section
    of the configuration; then run ingest again.
    """

    code = "too-many-bad-records"
    exit_code = ExitCode.STOPPED
    _what = (
        "{bad:,} of the {read:,} records of a batch of table {table} are bad ({stages}), which {limits} "
        "doesn't allow."
    )
    _state = "the batch was not committed, and nothing was quarantined; the records are still in the log."
    _cause = "a producer changed its format, or the definition is wrong. Among the first:{_examples}"
    _next = (
        "thermocline table show {table}      (what the columns must be)\n"
        "to quarantine them nevertheless, change {limits} in [tables.{table}], then:\n"
        "{_then}"
    )

    table: str
    bad: int
    read: int
    stages: tuple[str, ...]
    limits: tuple[str, ...]  # as in the configuration: a limit, or an on_error
    examples: tuple[str, ...]

    @property
    def _examples(self) -> str:
        return "".join(f"\n  - {example}" for example in self.examples)

    @property
    def _then(self) -> str:
        is_of_definition = any(limit.startswith("on_error") for limit in self.limits)
        return f"thermocline {'table alter' if is_of_definition else 'ingest run'} {self.table}"


class SchemaStopped(Listing, SourceError):
    """A writer's schema differs from the table in a way that its contract stops at.

    The `contract` of the table has `stop` for such a change. It counts for every record of the schema,
    whether or not the record makes use of what changed. Servers go on, and answer without these records,
    which they count as refused.

    The batch was not committed, the table is complete up to its seam, and the records are still in the log.
    Decide what the table is to do about the change: have the table's columns say what the schema says, or
    write another word for that kind of change, or for that column, into `contract`. Either is an alteration
    of the table: run `thermocline table alter`, then ingest again. Or have the producer go back to an earlier
    schema; records that it wrote already still need one of these.
    """

    code = "schema-stopped"
    exit_code = ExitCode.STOPPED
    _what = "schema {schema} of the {part} of {record} stops the ingest of table {table}: it has {_problems}"
    _listed = "changes"
    _state = "the batch was not committed, and nothing was quarantined; the records are still in the log."
    _next = (
        "thermocline table show {table}      (the columns, and the contract)\n"
        "after changing the columns or contract in [tables.{table}]:\n"
        "thermocline table alter {table}"
    )

    table: str
    schema: str  # its id, and what the registry calls it
    part: str  # key or value
    record: str
    changes: tuple[str, ...]


class DeadLetterRefused(SourceError):
    """The dead-letter topic rejects a record, even after retries.

    The record exceeds the topic's `max.message.bytes` (a dead letter is its record plus some headers), or the
    user may not write there. Ingest stops, since the topic's readers would otherwise never see that bad
    record.

    The table is complete up to its seam, and ingest will meet the record again. Some bad records of the batch
    may already be in the dead-letter topic, and will be written there once more. Raise the topic's limit,
    grant write access, or remove `dead_letter_topic` from the table's section, and run ingest again.
    """

    code = "dead-letter-refused"
    exit_code = ExitCode.STOPPED
    _what = "the dead-letter topic {topic} of table {table} rejects the record {record}."
    _state = "its batch was not committed; the table is complete up to its seam."
    _cause = "{detail}"
    _next = (
        "thermocline ingest run {table}\n"
        "after raising max.message.bytes of {topic}, granting the right to write to it, or removing\n"
        "dead_letter_topic from [tables.{table}]"
    )

    table: str
    topic: str
    record: str
    detail: str

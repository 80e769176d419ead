"""Kafka, or what it holds, is not as it must be."""

from __future__ import annotations

from datetime import timedelta

from thermocline.errors import places
from thermocline.errors.root import SAME_COMMAND, ExitCode, Resumable, ThermoclineError


class SourceError(ThermoclineError):
    """Kafka, or what it holds, is not as it must be."""

    http_status = 503
    exit_code = ExitCode.UNAVAILABLE


class KafkaUnreachable(SourceError):
    """No Kafka broker answered.

    The addresses, the network, or the security settings in [kafka.client] are wrong, or the cluster is down.

    No record is lost by waiting, as long as the topic keeps its records: the table stays as last committed,
    and ingest goes on from the table's seam. Servers answer from what they hold and say that it is stale.
    """

    code = "kafka-unreachable"
    retryable = True
    _what = "no Kafka broker answered at {bootstrap_servers}."
    _state = "the table and its seam are as last committed; reading goes on from there."
    _cause = "{detail}"
    _next = "thermocline status      (after checking kafka.bootstrap_servers and [kafka.client])"

    bootstrap_servers: str
    detail: str


class RegistryUnreachable(SourceError):
    """The schema registry did not say what a record's schema is.

    It is down, too slow, refuses the user, or something else answers at its address. A record of Avro can't
    be read without the schema that wrote it, so nothing is said of it, bad or good.

    No record is lost by waiting, as long as the topic keeps its records: ingest and the tailer go on by
    themselves once the registry answers. Schemas that a process has asked for once are not asked for again.
    An id that the registry says it does not know is another matter: that record is bad (stage `decode`).
    """

    code = "registry-unreachable"
    retryable = True
    _what = "the schema registry at {url} can't be asked."
    _state = "the table and its seam are as last committed; reading goes on from there."
    _cause = "{detail}"
    _next = "check [registry], and that the registry answers; ingest and serve try again by themselves"

    url: str
    detail: str


class TopicMissing(SourceError):
    """A topic of the table does not exist.

    Its name is misspelt, the cluster is another one, or it has not been created yet. Thermocline never
    creates a topic on your cluster, since its partitions and retention are the producers' decision (only the
    broker that `thermocline dev` runs gets those of the configuration). A user without the right to describe
    a topic sees it as missing, too.

    Nothing was written. Create the topic, or correct `topics` and `kafka.bootstrap_servers`, and repeat the
    command.
    """

    code = "topic-missing"
    exit_code = ExitCode.USAGE
    _what = "the topic {topic} does not exist on {bootstrap_servers}."
    _state = "nothing was written."
    _next = "create the topic, or correct the table's topics, then repeat the command"

    topic: str
    bootstrap_servers: str


class OffsetsGone(Resumable, SourceError):
    """The log no longer holds records that were still needed.

    Retention or a deletion removed records before they were read, so whoever goes on would miss them in
    silence. Ingest stops instead. The table is complete up to its seam; what came after it and is gone cannot
    be read again: a row may be older than the newest record of its key, and a row whose tombstone is gone
    stays. A server goes on from what it holds.

    If a copy of the records exists, restore it. If not, `thermocline ingest accept-gap`, with the lost ranges
    repeated as its facts (the error prints the whole command), moves the seam to where the log begins now and
    keeps a note of it in the table: all rows stay, and ingest goes on. If the topic still holds the newest
    record of every key, as a compacted one does, nothing but tombstones can be missing. If it does not, have
    the producer write the missing state again. Keep records for longer than ingest may ever be down.
    """

    code = "offsets-gone"
    exit_code = ExitCode.STOPPED
    _what = "the log no longer holds what is needed{_needed_by}: {_gaps}."
    _state = "the table is complete up to its seam; nothing was written."
    _cause = "retention or a deletion removed records before they were read."
    _next = "{_next_lines}"

    table: str
    gaps: tuple[str, ...]  # TOPIC/PARTITION@FIRST-END, the end excluded; "?" where the broker didn't say it

    @property
    def tokens(self) -> tuple[str, ...]:
        """The lost ranges."""
        return self.gaps

    @property
    def resume(self) -> str:
        """Accepting the gap."""
        return places.command("accept-gap", self.table, self.tokens)

    def ends(self) -> dict[tuple[str, int], int]:
        """Where the log begins now, by (topic, partition)."""
        return places.ends(self.gaps)

    @property
    def _needed_by(self) -> str:
        return f" by table {self.table}" if self.table else ""

    @property
    def _gaps(self) -> str:
        return places.some(self.gaps, places.gap)

    @property
    def _next_lines(self) -> str:
        if not self.table or any(gap.endswith("?") for gap in self.gaps):
            return f"thermocline ingest offsets {self.table or 'TABLE'}"
        return f"{self.resume}\nif the records cannot be restored: this goes on without them; all rows stay"


class TopicCompacted(SourceError):
    """A topic of a table with partial updates is compacted.

    Compaction keeps the newest record of a key and drops those before it. With `partial_updates = true` a
    record leaves columns as they are, which an earlier one set: a record that is dropped before it is read
    takes their values with it, and nothing shows that. So such a table is neither created nor read from a
    compacted topic. (With a user that may not describe the topic, it is taken for a compacted one.)

    Set `cleanup.policy=delete` on the topic, with a `retention.ms` that ingest is never behind for. What was
    compacted before is gone: have the producer send whole rows once, or create the table from a `start`
    behind it.
    """

    code = "topic-compacted"
    exit_code = ExitCode.STOPPED
    _what = "table {table} has partial updates, and these topics are compacted: {_topics}."
    _state = "the table is as last committed; nothing was written."
    _cause = "compaction drops records that set columns which later records of their key do not set."
    _next = "set cleanup.policy=delete on them, and run the command again"

    table: str
    topics: tuple[str, ...]

    @property
    def _topics(self) -> str:
        return places.some(self.topics)


class TombstonesGone(Resumable, SourceError):
    """A compacted topic may have dropped tombstones before they were read.

    Compaction keeps the newest record of a key for ever, but a tombstone only for `delete.retention.ms`.
    Whoever is behind for longer than that may never see that a row was deleted, and would keep it. So ingest
    stops when the table last held all of the log longer ago than that, and records wait to be read. (With a
    user that may not describe the topic, it is taken for a compacted one with Kafka's default of a day. A
    `delete.retention.ms` below ten minutes counts as ten minutes: less would not outlast a batch.)

    The table is complete up to its seam; nothing was written. No upsert is lost. `thermocline ingest
    accept-gap`, with each topic and its time repeated as its facts (the error prints the whole command),
    goes on and keeps a note of it in the table; rows whose tombstones are gone then stay. To be rid of them,
    create a new table from the topic, or have the producer delete these keys again.

    What is not seen: brokers before Kafka 3.1 count `delete.retention.ms` from when a segment was last
    changed, not from when it was first cleaned. They may drop a tombstone sooner than this reckons, above all
    one that an open transaction held back for long. Upgrade them, or end hanging transactions early
    (transaction-open).
    """

    code = "tombstones-gone"
    exit_code = ExitCode.STOPPED
    _what = "tombstones may have been compacted away before table {table} read them: {_late}."
    _state = "the table is complete up to its seam; nothing was written."
    _cause = "ingest was behind for longer than delete.retention.ms."
    _next = "{resume}\nthis goes on; a row whose tombstone is gone stays in the table"

    table: str
    topics: tuple[str, ...]
    since: tuple[str, ...]  # ISO times, in the order of the topics
    kept_ms: tuple[int, ...]

    @property
    def tokens(self) -> tuple[str, ...]:
        """The topics, and since when their tombstones may be gone."""
        return tuple(f"tombstones:{topic}={at}" for topic, at in zip(self.topics, self.since, strict=True))

    @property
    def resume(self) -> str:
        """Accepting that."""
        return places.command("accept-gap", self.table, self.tokens)

    @property
    def _late(self) -> str:
        late = zip(self.topics, self.since, self.kept_ms, strict=True)
        return places.some(
            [
                f"those of {topic} are kept for {timedelta(milliseconds=kept)}, and it is behind since {at}"
                for topic, at, kept in late
            ]
        )


class SeamBeyondLog(Resumable, SourceError):
    """The log ends before a place that was already read from it.

    The topic lost records that had been read: its cluster was restored from an older copy, an unclean leader
    election cut it, or the catalog is of another cluster. New records take the offsets of the lost ones, so
    going on from the seam would skip them in silence. Ingest stops instead.

    It sees this while the log ends before the seam. Where producers have written beyond the seam again before
    ingest looks (it was down, or the topic is a busy one), nothing shows that the log was cut, and the
    records that took the lost ones' offsets are not read. Keep `unclean.leader.election.enable` at false, and
    after such an election, or when a cluster was restored, stop the producers until ingest has looked.

    The table still holds everything that was committed to it. Bring the complete log back (the replica that
    held it), or let `thermocline ingest rebase`, with the places that were read up to repeated as its facts
    (the error prints the whole command), put the topic's seam to the log's beginning (`--to earliest`: what
    the log holds is read again, which repeats no row), its end, or a time. All rows stay, those of the lost
    records too.
    """

    code = "seam-beyond-log"
    exit_code = ExitCode.STOPPED
    _what = "table {table} has read further than the log reaches: {_cut}."
    _state = "the table keeps all that was committed; nothing was written."
    _cause = "the topic was restored from an older copy, or cut by an unclean leader election."
    _next = "{resume}\nif the complete log cannot be brought back: this reads the topic again; all rows stay"

    table: str
    cut: tuple[str, ...]  # TOPIC/PARTITION@END-SEAM: where the log ends, and what was read before that

    @property
    def tokens(self) -> tuple[str, ...]:
        """How far the partitions were read; where the log ends may move on at any moment."""
        return tuple(places.read_place(place) for place in self.cut)

    @property
    def resume(self) -> str:
        """Reading the topics again."""
        return places.command("rebase", self.table, self.tokens, "--to earliest")

    @property
    def _cut(self) -> str:
        return places.some(self.cut, places.end_and_seam)


class PartitionsShrunk(Resumable, SourceError):
    """A topic no longer has a partition that was read before.

    Kafka never takes partitions away, so this is another topic or another state of the cluster: its metadata
    was restored from an older copy. Keys live in other partitions now, and the seam says nothing about them.

    The table keeps everything that was committed; nothing was written. Check the cluster. If it is to stay as
    it is, `thermocline ingest rebase`, with the partitions repeated as its facts (the error prints the whole
    command), reads the topic from its beginning (`--to earliest`), its end or a time. All rows stay.
    """

    code = "partitions-shrunk"
    exit_code = ExitCode.STOPPED
    _what = "table {table} has read partitions that do not exist any more: {_gone}."
    _state = "the table keeps all that was committed; nothing was written."
    _cause = "the cluster was restored from an older copy, or the topic is another one."
    _next = "{resume}\nif the topic is to stay as it is: this reads it again; all rows stay"

    table: str
    gone: tuple[str, ...]  # TOPIC/PARTITION@SEAM

    @property
    def tokens(self) -> tuple[str, ...]:
        """The partitions that are not there."""
        return tuple(f"{place.partition('@')[0]}@none" for place in self.gone)

    @property
    def resume(self) -> str:
        """Reading the topics again."""
        return places.command("rebase", self.table, self.tokens, "--to earliest")

    @property
    def _gone(self) -> str:
        return places.some(self.gone, places.read_up_to)


class ClusterReplaced(Resumable, SourceError):
    """The Kafka cluster is not the one that the table was fed from.

    Offsets mean nothing on another cluster, even when topic names are the same. Ingest compares the cluster's
    id with the one in the table's newest snapshot, and stops when they differ.

    The table is untouched. Most often `kafka.bootstrap_servers` points to the wrong place: correct it. If the
    cluster was really replaced, `thermocline ingest rebase`, with its id repeated as the fact (the error
    prints the whole command), makes it the table's, and reads all topics from their beginning (`--to
    earliest`), their end or a time. All rows stay, also those that the new cluster never heard of.
    """

    code = "cluster-replaced"
    exit_code = ExitCode.STOPPED
    _what = "table {table} was fed from cluster {recorded}, but cluster {found} answers."
    _state = "the table is complete up to its seam; nothing was written."
    _cause = "kafka.bootstrap_servers is the wrong cluster, or the cluster was replaced."
    _next = "{resume}\nonly if the cluster was replaced for good; else correct kafka.bootstrap_servers"

    table: str
    recorded: str
    found: str

    @property
    def tokens(self) -> tuple[str, ...]:
        """The cluster that answers."""
        return (f"cluster={self.found}",)

    @property
    def resume(self) -> str:
        """Going on with the cluster that answers."""
        return places.command("rebase", self.table, self.tokens, "--to earliest")


class TopicReplaced(Resumable, SourceError):
    """A topic was deleted and created again under the same name.

    Its offsets began anew, so the table's seam does not belong to it. Ingest compares the topics' ids with
    those in the table's newest snapshot, and stops when they differ.

    The table keeps everything that was committed. Records of the old topic that had not been committed are
    lost with it. `thermocline ingest rebase`, with the new ids repeated as its facts (the error prints the
    whole command), goes on with the new topic from its beginning (`--to earliest`), its end or a time. All
    rows stay, also those that the new topic never heard of; for a table without them, create a new one.
    """

    code = "topic-replaced"
    exit_code = ExitCode.STOPPED
    _what = "{_topics} is not the one that fed table {table}."
    _state = "the table is complete up to its seam in the old topic; nothing was written."
    _cause = "it was deleted and created again."
    _next = "{resume}\nthis goes on with the new topic from its beginning; all rows stay"

    table: str
    topics: tuple[str, ...]
    recorded: tuple[str, ...]  # topic ids, in the order of the topics
    found: tuple[str, ...]

    @property
    def tokens(self) -> tuple[str, ...]:
        """The topics' ids as they are now."""
        return tuple(f"topic:{name}={found}" for name, found in zip(self.topics, self.found, strict=True))

    @property
    def resume(self) -> str:
        """Going on with the new topics."""
        return places.command("rebase", self.table, self.tokens, "--to earliest")

    @property
    def _topics(self) -> str:
        ids = zip(self.topics, self.recorded, self.found, strict=True)
        described = [f"{topic} (id {found}, before {recorded})" for topic, recorded, found in ids]
        return f"the topic {places.some(described)}"


class FactsDiffer(SourceError):
    """The facts given on the command line are not those that are found.

    `accept-gap` and `rebase` give something up, so they act only on the very state that their user saw: the
    facts that the error printed are repeated on the command line, all of them and no others. Meanwhile the
    log may have been cut further, or it is another trouble that has to be dealt with first.

    Nothing was written. Look at what is found now, and run the command that the error prints.
    """

    code = "facts-differ"
    exit_code = ExitCode.USAGE
    _what = "the facts found of table {table} are {_found}, not {_given}."
    _state = "nothing was written."
    _cause = "{detail}"
    _next = "{command}"

    table: str
    given: tuple[str, ...]
    found: tuple[str, ...]
    detail: str  # what is found, in words
    command: str

    @property
    def _found(self) -> str:
        return places.some(self.found) or "none"

    @property
    def _given(self) -> str:
        return places.some(self.given) or "none"


class RebaseRefused(SourceError):
    """A table without a key cannot go on with another log.

    Its rows are known by the place of their record: topic, partition and offset. A topic that was made again,
    another cluster, or a log that lost its end gives these places to other records. Reading on would give
    rows twice, or hide some behind others.

    Nothing was written; the table keeps all that was committed. Create a new table for the log as it is now,
    and query both.
    """

    code = "rebase-refused"
    exit_code = ExitCode.USAGE
    _what = "table {table} has no key: offsets that begin anew would be taken for rows that it holds."
    _state = "nothing was written."
    _cause = "{detail}"
    _next = "thermocline table show {table}\nthen create a table with another identifier for the new log"

    table: str
    detail: str  # what is found, in words


class TransactionOpen(SourceError):
    """A producer's transaction is open, and holds back what follows it.

    Only records of finished transactions are read, so a partition stands still where its oldest open
    transaction begins, until that one is committed or aborted. A running producer does so in a moment, and
    the broker aborts for one that has died, after its `transaction.timeout.ms` (a minute, if not set). A
    transaction that stays open for longer is hanging.

    Nothing is lost: the table is complete up to there, and ingest goes on by itself once the transaction has
    ended. `thermocline ingest offsets` and `thermocline status` show where it begins, and how many offsets
    wait behind it. Kafka's own tool finds and ends it: `kafka-transactions.sh --bootstrap-server HOST:PORT
    describe-producers --topic TOPIC --partition N` shows the producer, and `kafka-transactions.sh
    --bootstrap-server HOST:PORT abort --topic TOPIC --partition N --start-offset OFFSET` aborts it, where
    OFFSET is the one at which it begins. Abort only what no producer is going to commit.
    """

    code = "transaction-open"
    retryable = True
    _what = "an open transaction holds back table {table}: {_held}."
    _state = "the table is complete up to there; ingest goes on by itself once the transaction has ended."
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
    """A planned range of a partition could not be read to its end.

    Nothing more arrived for a while, and nothing said that the end had been reached, so the batch would have
    had a hole. Mostly a broker is slow, or the partition has no leader.

    The batch was not committed, and its records are still in the log. Run ingest again: it plans from the
    seam.
    """

    code = "range-incomplete"
    retryable = True
    _what = "{topic}/{partition} was read up to offset {reached:,} only, of {first:,} to {end:,}."
    _state = "the batch was not committed; its records are still in the log."
    _cause = "the broker stopped sending before the end of the range."
    _next = f"{SAME_COMMAND}      (safe to repeat)\nthermocline status      (says whether the brokers answer)"

    topic: str
    partition: int
    first: int
    end: int
    reached: int


class BadRecord(SourceError):
    """A record that the table's definition refuses, at a stage for which the table says on_error = "fail".

    The stage says how far the record came: its key (key), its value as a whole (decode), or the types of its
    columns (contract). Ingest stops before it, as the table's definition asks.

    The table is complete up to its seam, and the record will be met again. Correct the producer and have it
    cut from the log, or let such records wait in quarantine while the good ones go on: write `on_error =
    "quarantine"` for that stage, and let `thermocline table alter` put it into the table.
    """

    code = "bad-record"
    exit_code = ExitCode.STOPPED
    _what = "the record at {topic}/{partition}@{offset} is refused by table {table} ({stage}): {reason}"
    _state = "its batch was not committed; the table is complete up to its seam."
    _cause = 'the table\'s definition says on_error = "fail" for the stage {stage}.'
    _next = (
        "thermocline table show {table}      (what the columns must be)\n"
        'then correct the producer; or write on_error = "quarantine", and: thermocline table alter {table}'
    )

    table: str
    topic: str
    partition: int
    offset: int
    stage: str
    reason: str


class TooManyBadRecords(SourceError):
    """A batch has more bad records than the table bears.

    A few bad records are put aside one by one. Many of them at once are mostly something else: a producer
    that changed its format, or a definition that does not fit. Then ingest stops before it empties the topic
    into the quarantine. `errors_count_max` bounds how many records of a batch may be bad, `errors_ratio_max`
    which share of those that it read (once a hundred are bad). Skipped ones count, too.

    The table is complete up to its seam, nothing was added to the quarantine, and the records will be met
    again. Correct the definition or the producer; or, if the records are to be put aside, raise the limit in
    the table's section of the configuration, and run ingest again.
    """

    code = "too-many-bad-records"
    exit_code = ExitCode.STOPPED
    _what = "{bad:,} of the {read:,} records of a batch of table {table} are bad ({stages}), above {limits}."
    _state = "the batch was not committed, and nothing was put into quarantine; the records are in the log."
    _cause = "a producer changed its format, or the definition does not fit. Among the first:{_examples}"
    _next = (
        "thermocline table show {table}      (what the columns must be)\n"
        "if the records are to be put aside, raise the limit in [tables.{table}], then:\n"
        "thermocline ingest run {table}"
    )

    table: str
    bad: int
    read: int
    stages: tuple[str, ...]
    limits: tuple[str, ...]
    examples: tuple[str, ...]

    @property
    def _examples(self) -> str:
        return "".join(f"\n  - {example}" for example in self.examples)


class DeadLetterRefused(SourceError):
    """The dead-letter topic does not take a record, however often it is sent.

    It is larger than the topic's `max.message.bytes` (a dead letter is its record with some headers more), or
    the user may not write there. A bad record that the topic's readers would never see must not pass, so
    ingest stops.

    The table is complete up to its seam, and the record will be met again. Some of the batch's bad records
    may stand in the topic already, and will stand there once more. Raise the topic's limit, grant the right,
    or take `dead_letter_topic` out of the table's section, and run ingest again.
    """

    code = "dead-letter-refused"
    exit_code = ExitCode.STOPPED
    _what = "the dead-letter topic {topic} of table {table} does not take the record {record}."
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

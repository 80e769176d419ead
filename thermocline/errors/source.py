"""Kafka, or what it holds, is not as it must be."""

from __future__ import annotations

from thermocline.errors.root import ExitCode, ThermoclineError


class SourceError(ThermoclineError):
    """Kafka, or what it holds, is not as it must be."""

    http_status = 503
    exit_code = ExitCode.AWAY


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


class TopicMissing(SourceError):
    """A topic of the table does not exist.

    Its name is misspelt, the cluster is another one, or it has not been created yet. Thermocline never
    creates a topic, since its partitions and retention are the producers' decision. A user without the right
    to describe a topic sees it as missing, too.

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


class OffsetsGone(SourceError):
    """The log no longer holds records that were still needed.

    Retention or a deletion removed records before they were read, so whoever goes on would miss them in
    silence. Ingest stops instead. The table is complete up to its seam; rows may be older than the newest
    records that are gone.

    Ingest cannot go on with this table: what is gone cannot be read again. If the topic still holds the
    newest record of every key (a compacted topic does), create a new table from it: give a new section of the
    configuration another identifier and `start = "earliest"`, and run `thermocline table create` and
    `thermocline ingest run` on it. If not, have the producer write the missing state again, first. To not
    meet this again, keep records longer than ingest may ever be down.
    """

    code = "offsets-gone"
    exit_code = ExitCode.STOPPED
    _what = "offset {wanted:,} of {topic}/{partition} is gone{_needed_by}: {_begin}."
    _state = "the table is complete up to its seam; nothing was written."
    _cause = "retention or a deletion removed records before they were read."
    _next = (
        "thermocline ingest offsets {_table}      (shows how much is gone)\n"
        'then create a new table with start = "earliest" if the topic still has each key\'s newest record'
    )

    table: str
    topic: str
    partition: int
    wanted: int
    log_start: int  # negative when the broker could not say

    @property
    def _needed_by(self) -> str:
        return f", and table {self.table} still needs it" if self.table else ""

    @property
    def _begin(self) -> str:
        count = self.log_start - self.wanted
        if count <= 0:
            return "the broker refuses to read from it"
        return f"its log begins at {self.log_start:,}, {count:,} offsets later"

    @property
    def _table(self) -> str:
        return self.table or "TABLE"


class SeamBeyondLog(SourceError):
    """The log ends before a place that was already read from it.

    The topic lost records that had been read: it was created again, its cluster was restored from an older
    copy, or an unclean leader election cut it. New records will take the offsets of the lost ones, so going
    on from the seam would skip them in silence. Ingest stops instead.

    The table still holds everything that was committed to it. Bring the complete log back (the replica that
    held it), or create a new table with `start = "earliest"` from the log as it is now.
    """

    code = "seam-beyond-log"
    exit_code = ExitCode.STOPPED
    _what = "{topic}/{partition} ends at offset {log_end:,}, but table {table} has read it up to {seam:,}."
    _state = "the table keeps all that was committed; nothing was written."
    _cause = "the topic was created again, restored from an older copy, or cut by an unclean leader election."
    _next = (
        "thermocline ingest offsets {table}      (compares seam and log, partition by partition)\n"
        'then bring the complete log back, or create a new table with start = "earliest"'
    )

    table: str
    topic: str
    partition: int
    seam: int
    log_end: int


class ClusterReplaced(SourceError):
    """The Kafka cluster is not the one that the table was fed from.

    Offsets mean nothing on another cluster, even when topic names are the same. Ingest compares the cluster's
    id with the one in the table's newest snapshot, and stops when they differ.

    The table is untouched. Most often `kafka.bootstrap_servers` points to the wrong place: correct it. If the
    cluster was really replaced, create a new table from it.
    """

    code = "cluster-replaced"
    exit_code = ExitCode.STOPPED
    _what = "table {table} was fed from cluster {recorded}, but cluster {found} answers."
    _state = "the table is complete up to its seam; nothing was written."
    _next = (
        "thermocline config show      (is kafka.bootstrap_servers the right cluster?)\n"
        "if the cluster was replaced for good, create a new table from it"
    )

    table: str
    recorded: str
    found: str


class TopicReplaced(SourceError):
    """The topic was deleted and created again under the same name.

    Its offsets began anew, so the table's seam does not belong to it. Ingest compares the topic's id with the
    one in the table's newest snapshot, and stops when they differ.

    The table keeps everything that was committed. Records of the old topic that had not been committed are
    lost with it. Create a new table with `start = "earliest"` from the new topic.
    """

    code = "topic-replaced"
    exit_code = ExitCode.STOPPED
    _what = (
        "the topic {topic} is another one (id {found}) than the one that fed table {table} (id {recorded})."
    )
    _state = "the table is complete up to its seam in the old topic; nothing was written."
    _cause = "the topic was deleted and created again, or the cluster is another one."
    _next = (
        "thermocline ingest offsets {table}      (shows seam and log)\n"
        'then create a new table with start = "earliest" from the new topic'
    )

    table: str
    topic: str
    recorded: str
    found: str


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
    _next = "run the same command again; thermocline status says whether the brokers answer"

    topic: str
    partition: int
    first: int
    end: int
    reached: int


class BadRecord(SourceError):
    """A record that the table's definition refuses, and the table says on_error = "fail".

    The stage says how far the record came: its key, its decoding, or the types of its columns. Ingest stops
    before it, as the table's definition asks.

    The table is complete up to its seam, and the record will be met again. Correct the producer. To let such
    records wait in a quarantine table while the good ones go on, use a table with `on_error = "quarantine"`.
    """

    code = "bad-record"
    exit_code = ExitCode.STOPPED
    _what = "the record at {topic}/{partition}@{offset} is refused by table {table} ({stage}): {reason}"
    _state = "its batch was not committed; the table is complete up to its seam."
    _cause = 'the table\'s definition says on_error = "fail".'
    _next = (
        "thermocline table show {table}      (what the columns must be)\n"
        'then correct the producer, or use a table with on_error = "quarantine"'
    )

    table: str
    topic: str
    partition: int
    offset: int
    stage: str
    reason: str

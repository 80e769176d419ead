"""Kafka, or what it holds, is not as it must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Self

from thermocline.errors import places
from thermocline.errors.root import SAME_COMMAND, ExitCode, Resumable, ThermoclineError


class SourceError(ThermoclineError):
    """Kafka, its topics or their records."""

    http_status = 503
    exit_code = ExitCode.UNAVAILABLE


class SourceInvalid(SourceError):
    """The rows of a source don't fit the table.

    Its columns differ from the table's, a key is null, or two rows have the same key, and nothing says which
    of them is newer.

    Nothing was committed. Correct the source, and take it in again.
    """

    code = "source-invalid"
    retryable = False
    http_status = 422
    exit_code = ExitCode.USAGE
    _what = "{source} can't be taken in: {problem}"
    _next = "correct the source"

    source: str
    problem: str


class KafkaUnreachable(SourceError):
    """No Kafka broker answered.

    The addresses, the network, or the security settings in [kafka.client] are wrong, or the cluster is down.

    Waiting loses no records, as long as the topic keeps them: the table stays as last committed, and ingest
    continues from its seam. Servers answer from what they hold and mark their answers as stale.
    """

    code = "kafka-unreachable"
    retryable = True
    _what = "no Kafka broker answered at {bootstrap_servers}."
    _state = "the table and its seam are as last committed; reading continues from there."
    _cause = "{detail}"
    _next = "thermocline status      (after checking kafka.bootstrap_servers and [kafka.client])"

    bootstrap_servers: str
    detail: str


class TopicForbidden(SourceError):
    """The Kafka user may not read a topic of the table.

    The user of [kafka.client] needs the permissions READ, DESCRIBE and DESCRIBE_CONFIGS on each topic of the
    table. Without DESCRIBE_CONFIGS, a topic is assumed to be compacted, with Kafka's defaults.

    Waiting loses no records, as long as the topic keeps them: the table stays as last committed, and ingest
    continues from its seam. Servers answer from what they hold, mark their answers as stale, and try again.
    """

    code = "topic-forbidden"
    retryable = True
    _what = "the user of [kafka.client] may not read the topic {topic}."
    _state = "the table and its seam are as last committed; reading continues from there."
    _cause = "{detail}"
    _next = f"{SAME_COMMAND}      (once the user has READ, DESCRIBE and DESCRIBE_CONFIGS on it)"

    topic: str
    detail: str


class RegistryUnreachable(SourceError):
    """The schema registry didn't return a record's schema.

    It is down, too slow, rejects the user, or something else answers at its address. A record can't be
    decoded without the schema that it was written with, so it is treated as neither good nor bad.

    Waiting loses no records, as long as the topic keeps them: ingest and the tailer continue by themselves
    once the registry answers. Each process asks for a schema only once. If the registry answers that it
    doesn't know a schema id, the record is bad (stage `decode`).
    """

    code = "registry-unreachable"
    retryable = True
    _what = "the schema registry at {url} didn't answer as expected."
    _state = "the table and its seam are as last committed; reading continues from there."
    _cause = "{detail}"
    _next = "check [registry], and that the registry answers; ingest and serve retry by themselves"

    url: str
    detail: str


class TopicMissing(SourceError):
    """A topic of the table doesn't exist.

    Its name is misspelt, this is another cluster, or the topic hasn't been created yet. Thermocline creates
    no topic by itself, since partitions and retention are the producers' decision.

    Nothing was written. `thermocline topic create` creates the topic, and with --dry-run shows what it would
    set. Or correct `topics` or `kafka.bootstrap_servers`, and repeat the command.
    """

    code = "topic-missing"
    exit_code = ExitCode.USAGE
    _what = "the topic {topic} does not exist on {bootstrap_servers}."
    _state = "nothing was written."
    _next = "thermocline topic create {topic}      (or correct the table's topics)"

    topic: str
    bootstrap_servers: str


class TopicsUnmatched(SourceError):
    """No topic on the cluster matches a pattern of the table, and the table has no other topic.

    A pattern has to match a topic's whole name, and counts only topics that the user of [kafka.client] may
    describe. Topics whose names begin with two underscores are Kafka's own and never match.

    Nothing was written. Correct `topics` or `kafka.bootstrap_servers`, create a topic, or grant DESCRIBE, and
    repeat the command. If all topics of a table were deleted, ingest and servers continue by themselves once
    there is another one; until then, servers answer from what they hold.
    """

    code = "topics-unmatched"
    exit_code = ExitCode.USAGE
    _what = "table {table} has no topic: none on the cluster matches {_patterns}."
    _state = "nothing was written."
    _next = f"{SAME_COMMAND}      (once a topic matches that the user may describe)"

    table: str
    patterns: tuple[str, ...]

    @property
    def _patterns(self) -> str:
        return places.some(self.patterns)


class TopicDeleted(Resumable, SourceError):
    """A topic that was found by a pattern was deleted, and it isn't known that the table has all of it.

    A topic that was found by a pattern leaves the table by itself once it is deleted, if the table has
    everything up to the ends that ingest saw last. If ingest wasn't running, the table must have held all of
    the log not longer ago than `deleted_topic_seconds`. Otherwise ingest stops: the records that are
    listed, or an unknown number of them, are lost.

    The table is complete up to its seam; nothing else was written. If a copy of the records exists, have the
    producer write them to another topic that feeds the table. `thermocline ingest accept-gap`, with the facts
    repeated (the error prints the whole command), continues without the topic, and records that in the
    table: all rows stay. Delete a topic only once the table has all of it (`thermocline ingest offsets`).
    """

    code = "topic-deleted"
    exit_code = ExitCode.STOPPED
    _what = "topics of table {table} were deleted with records that it may not have: {_places}."
    _state = "the table is complete up to its seam, and last held all of the log at {drained_at}."
    _cause = "a topic was deleted before ingest had read all of it, or while ingest was not running."
    _next = "{resume}\nif the records can't be restored: this continues without them; all rows stay"

    table: str
    unread: tuple[str, ...]  # TOPIC/PARTITION@SEAM-END; "?" where the end isn't known
    drained_at: str  # ISO time

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics, each once."""
        return places.topics(self.unread)

    @property
    def tokens(self) -> tuple[str, ...]:
        """The partitions, and how far they were read."""
        return tuple(f"deleted:{place.rpartition('-')[0]}" for place in self.unread)

    @property
    def resume(self) -> str:
        """Accepting that."""
        return places.command("accept-gap", self.table, self.tokens)

    @property
    def _places(self) -> str:
        return places.some(self.unread, _deleted)


class OffsetsGone(Resumable, SourceError):
    """The log no longer holds records that are still needed.

    Retention or a deletion removed records before they were read. Continuing would silently skip them, so
    ingest stops. The table is complete up to its seam. The lost records after it can't be read again: a row
    may be older than the newest record of its key, and a row whose tombstone was lost stays. Servers continue
    from what they hold.

    If a copy of the records exists, restore it. If not, `thermocline ingest accept-gap`, with the lost ranges
    repeated as facts (the error prints the whole command), moves the seam to where the log now begins, and
    records that in the table: all rows stay, and ingest continues. If the topic still holds the newest record
    of every key, as a compacted one does, only tombstones can be missing. If not, have the producer write the
    missing state again. Set the topic's retention longer than ingest may ever be down.
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
        return f"{self.resume}\nif the records can't be restored: this continues without them; all rows stay"


class TopicCompacted(SourceError):
    """A topic of a table with partial updates, or with `sequence_by`, is compacted.

    Compaction keeps the newest record of a key and drops earlier ones. With `partial_updates = true`, a
    record may leave columns as an earlier one set them; with `sequence_by`, an earlier record may be the one
    that wins. If the earlier record is dropped before it is read, nothing shows that. So such a table is
    neither created on a compacted topic nor read from one. A topic whose configuration the user may not
    describe is assumed to be compacted: if it isn't, grant the user DESCRIBE_CONFIGS on it.

    Set `cleanup.policy=delete` on the topic, with a `retention.ms` that is longer than ingest is ever behind.
    What was compacted before is gone: have the producer send whole rows once, or create the table with a
    `start` after it.
    """

    code = "topic-compacted"
    exit_code = ExitCode.STOPPED
    _what = "table {table} needs all records of a key, and {_found}."
    _state = "the table is as last committed; nothing was written."
    _cause = "with partial_updates or sequence_by, the last record of a key is not enough to know its row."
    _next = "{_next_line}, and run the command again"

    table: str
    topics: tuple[str, ...]
    hidden: tuple[str, ...] = ()  # those of them whose configuration the user may not describe

    @property
    def _found(self) -> str:
        found = []
        if known := self._known:
            found.append(f"these topics are compacted: {places.some(known)}")
        if self.hidden:
            hidden = places.some(self.hidden)
            found.append(f"the user is not allowed to see whether these topics are compacted: {hidden}")
        return "; ".join(found)

    @property
    def _next_line(self) -> str:
        steps = [f"set cleanup.policy=delete on {places.some(self._known)}"] if self._known else []
        steps += [places.grant_configs(self.hidden)] if self.hidden else []
        return ", ".join(steps)

    @property
    def _known(self) -> tuple[str, ...]:
        return tuple(topic for topic in self.topics if topic not in self.hidden)


class TombstonesGone(Resumable, SourceError):
    """A compacted topic may have dropped tombstones before they were read.

    Compaction keeps the newest record of a key for ever, but a tombstone only for `delete.retention.ms`. A
    reader that is further behind than that may never see that a row was deleted, and would keep the row. So
    ingest stops if records are waiting and the table last contained the whole log longer ago than that. A
    topic whose configuration the user may not describe is assumed to be compacted, with Kafka's default of
    one day: if it isn't, grant the user DESCRIBE_CONFIGS on it. (A `delete.retention.ms` below ten minutes
    counts as ten minutes, since a batch can take that long.)

    The table is complete up to its seam; nothing was written. No upsert is lost. `thermocline ingest
    accept-gap`, with each topic and its time repeated as facts (the error prints the whole command),
    continues, and records that in the table; rows whose tombstones are gone stay, as do those whose tombstone
    was written before you accept and goes before ingest reads it. To get rid of them, create a new table from
    the topic, or have the producer delete these keys again.

    Not detected: brokers before Kafka 3.1 count `delete.retention.ms` from a segment's last change, not from
    when it was first cleaned. They may drop a tombstone earlier than calculated here, especially one that an
    open transaction held back for long. Upgrade them, or end hanging transactions early (transaction-open).
    """

    code = "tombstones-gone"
    exit_code = ExitCode.STOPPED
    _what = "tombstones may have been compacted away before table {table} read them: {_late}."
    _state = "the table is complete up to its seam; nothing was written."
    _cause = "ingest was behind for longer than delete.retention.ms."
    _next = "{resume}\nthis continues; rows whose tombstones are gone stay in the table{_grant}"

    table: str
    topics: tuple[str, ...]
    since: tuple[str, ...]  # ISO times, in the order of the topics
    kept_ms: tuple[int, ...]
    hidden: tuple[str, ...] = ()  # those of them whose configuration the user may not describe

    @property
    def tokens(self) -> tuple[str, ...]:
        """The topics, and since when their tombstones may be gone."""
        return tuple(f"tombstones:{topic}={at}" for topic, at in zip(self.topics, self.since, strict=True))

    @property
    def resume(self) -> str:
        """Accepting that."""
        return places.command("accept-gap", self.table, self.tokens)

    @property
    def _grant(self) -> str:
        if not self.hidden:
            return ""
        return f"\nif they are not compacted, {places.grant_configs(self.hidden)} instead"

    @property
    def _late(self) -> str:
        late = zip(self.topics, self.since, self.kept_ms, strict=True)
        return places.some(
            [
                f"{topic} keeps them for {timedelta(milliseconds=kept)}; ingest has been behind since {at}"
                for topic, at, kept in late
            ]
        )


class LogReplaced(Resumable, SourceError):
    """The log is not the one that the table has read.

    Offsets have no meaning in another log, so continuing from the seam would silently skip or repeat records.
    Ingest compares the log with the table's newest snapshot, and stops if:

    - another Kafka cluster answers, by its id: usually `kafka.bootstrap_servers` is wrong;
    - a topic was deleted and created again under the same name, by its id: uncommitted records of the old
      topic are lost with it;
    - a topic lost partitions, which Kafka never removes: it is another topic, or the cluster's metadata was
      restored from an older copy;
    - the log ends before offsets that were read: the cluster was restored from an older copy, or an unclean
      leader election truncated the log. This is only detected while the log ends before the seam. If
      producers have written past it again before ingest looks (because it was down, or the topic is busy),
      nothing shows it, and the records that took the lost ones' offsets are not read. Keep
      `unclean.leader.election.enable` at false. After such an election, or after restoring a cluster, stop
      the producers until ingest has looked.

    The table keeps everything that was committed; nothing was written. Check the cluster, and restore the
    complete log if you can. If the log is to be read as it is now, run `thermocline ingest rebase` with what
    was found repeated as facts (the error prints the whole command): it reads the topics in question from
    their beginning (`--to earliest`, which repeats no row), their end, or a time. All rows stay, including
    those that the log doesn't hold; for a table without them, create a new one.

    A table without a key can't be rebased. Its rows are identified by topic, partition and offset, which now
    belong to other records: some rows would be doubled and others hidden. Create a new table for the current
    log, and query both.
    """

    code = "log-replaced"
    exit_code = ExitCode.STOPPED
    _what = "the log is not the one that table {table} has read: {detail}."
    _state = "the table keeps all that was committed; nothing was written."
    _next = "{_next_lines}"

    table: str
    kind: str  # cluster, topics, partitions or end
    detail: str
    topics: tuple[str, ...]  # those in question; empty: all of the table's
    found: tuple[str, ...]
    has_key: bool = True

    @classmethod
    def of_cluster(cls, table: str, recorded: str, found: str) -> Self:
        """Another cluster; by their ids."""
        detail = f"it was fed from cluster {recorded}, but cluster {found} answers"
        return cls(table=table, kind="cluster", detail=detail, topics=(), found=(f"cluster={found}",))

    @classmethod
    def of_topics(cls, table: str, ids: Mapping[str, tuple[str, str]]) -> Self:
        """Topics that were deleted and created again; by their ids, before and now."""
        told = [f"{topic} (id {found}, before {recorded})" for topic, (recorded, found) in ids.items()]
        detail = f"created again: the topic {places.some(told)}"
        tokens = tuple(f"topic:{topic}={found}" for topic, (_, found) in ids.items())
        return cls(table=table, kind="topics", detail=detail, topics=tuple(ids), found=tokens)

    @classmethod
    def of_partitions(cls, table: str, gone: Sequence[str]) -> Self:
        """Partitions that were read and are not there; by TOPIC/PARTITION@SEAM."""
        detail = f"these partitions no longer exist: {places.some(gone, places.read_up_to)}"
        tokens = tuple(f"{place.partition('@')[0]}@none" for place in gone)
        return cls(table=table, kind="partitions", detail=detail, topics=places.topics(gone), found=tokens)

    @classmethod
    def of_end(cls, table: str, cut: Sequence[str]) -> Self:
        """A log that ends before what was read; by TOPIC/PARTITION@END-SEAM."""
        # As a fact, how far they were read: where the log ends may move on at any moment.
        tokens = tuple(places.read_place(place) for place in cut)
        detail = places.some(cut, places.end_and_seam)
        return cls(table=table, kind="end", detail=detail, topics=places.topics(cut), found=tokens)

    @property
    def tokens(self) -> tuple[str, ...]:
        """What was found."""
        return self.found

    @property
    def resume(self) -> str:
        """Reading the topics in question again."""
        return places.command("rebase", self.table, self.tokens, "--to earliest")

    @property
    def _next_lines(self) -> str:
        if not self.has_key:
            create = "then create a table with another identifier for the new log: this one has no key"
            return f"thermocline table show {self.table}\n{create}"
        return f"{self.resume}\nonly if the log is to be read as it is now: it is read again; all rows stay"


def _deleted(place: str) -> str:
    """A partition that is gone, how far it was read, and how far it went."""
    read, _, end = place.rpartition("-")
    ended = f"it went up to {int(end):,}" if end.isdigit() else "nobody knows how far it went"
    return f"{places.read_up_to(read)}, {ended}"

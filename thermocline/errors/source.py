"""Kafka, or what it holds, is not as it must be."""

from __future__ import annotations

from datetime import timedelta

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
    continues, and records that in the table; rows whose tombstones are gone stay. To get rid of them, create
    a new table from the topic, or have the producer delete these keys again.

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


class SeamBeyondLog(Resumable, SourceError):
    """The log ends before offsets that were already read.

    The topic lost records that had been read: the cluster was restored from an older copy, an unclean leader
    election truncated the log, or the catalog belongs to another cluster. New records take the offsets of the
    lost ones, so continuing from the seam would silently skip them. Ingest stops instead.

    This is only detected while the log ends before the seam. If producers have written past the seam again
    before ingest looks (because it was down, or the topic is busy), nothing shows that the log was truncated,
    and the records that took the lost ones' offsets are not read. Keep `unclean.leader.election.enable` at
    false. After such an election, or after restoring a cluster, stop the producers until ingest has looked.

    The table still holds everything that was committed. Restore the complete log (from the replica that has
    it). Otherwise `thermocline ingest rebase`, with the offsets read so far repeated as facts (the error
    prints the whole command), moves the topic's seam to the beginning of the log (`--to earliest`: what the
    log holds is read again, which repeats no row), to its end, or to a time. All rows stay, including those
    of the lost records.
    """

    code = "seam-beyond-log"
    exit_code = ExitCode.STOPPED
    _what = "table {table} has read past the end of the log: {_cut}."
    _state = "the table keeps all that was committed; nothing was written."
    _cause = "the topic was restored from an older copy, or cut by an unclean leader election."
    _next = "{resume}\nif the complete log can't be restored: this reads the topic again; all rows stay"

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
    """A topic lost partitions that were read before.

    Kafka never removes partitions, so this is another topic, or the cluster's metadata was restored from an
    older copy. Keys are in other partitions now, so the seam no longer applies.

    The table keeps everything that was committed; nothing was written. Check the cluster. To keep it as it
    is, run `thermocline ingest rebase` with the partitions repeated as facts (the error prints the whole
    command). It reads the topic from its beginning (`--to earliest`), its end, or a time. All rows stay.
    """

    code = "partitions-shrunk"
    exit_code = ExitCode.STOPPED
    _what = "table {table} has read partitions that no longer exist: {_gone}."
    _state = "the table keeps all that was committed; nothing was written."
    _cause = "the cluster was restored from an older copy, or this is another topic."
    _next = "{resume}\nto keep the topic as it is: this reads it again; all rows stay"

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
    """This is not the Kafka cluster that the table was fed from.

    Offsets have no meaning on another cluster, even if the topics have the same names. Ingest compares the
    cluster's id with the one in the table's newest snapshot, and stops if they differ.

    The table is untouched. Usually `kafka.bootstrap_servers` is wrong: correct it. If the cluster was really
    replaced, `thermocline ingest rebase`, with the new id repeated as a fact (the error prints the whole
    command), switches the table to it, and reads all topics from their beginning (`--to earliest`), their
    end, or a time. All rows stay, including those that the new cluster never had.
    """

    code = "cluster-replaced"
    exit_code = ExitCode.STOPPED
    _what = "table {table} was fed from cluster {recorded}, but cluster {found} answers."
    _state = "the table is complete up to its seam; nothing was written."
    _cause = "kafka.bootstrap_servers is the wrong cluster, or the cluster was replaced."
    _next = "{resume}\nonly if the cluster was really replaced; otherwise correct kafka.bootstrap_servers"

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

    Its offsets started over, so the table's seam doesn't apply to it. Ingest compares the topics' ids with
    those in the table's newest snapshot, and stops if they differ.

    The table keeps everything that was committed. Uncommitted records of the old topic are lost with it.
    `thermocline ingest rebase`, with the new ids repeated as facts (the error prints the whole command),
    continues with the new topic from its beginning (`--to earliest`), its end, or a time. All rows stay,
    including those that the new topic never had; for a table without them, create a new one.
    """

    code = "topic-replaced"
    exit_code = ExitCode.STOPPED
    _what = "{_topics} is not the one that fed table {table}."
    _state = "the table is complete up to its seam in the old topic; nothing was written."
    _cause = "it was deleted and created again."
    _next = "{resume}\nthis continues with the new topic from its beginning; all rows stay"

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
    """The facts on the command line don't match the current state.

    `accept-gap` and `rebase` give something up, so they act only on exactly the state that the user saw: all
    facts that the error printed must be repeated on the command line, and no others. Since then, the log may
    have lost more, or another problem must be solved first.

    Nothing was written. Review the facts found now, and run the command that the error prints.
    """

    code = "facts-differ"
    exit_code = ExitCode.USAGE
    _what = "the facts of table {table} are now {_found}, not {_given}."
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
    """A table without a key can't switch to another log.

    Its rows are identified by their record's place: topic, partition and offset. A recreated topic, another
    cluster, or a truncated log gives these places to other records, so continuing would duplicate some rows
    and hide others.

    Nothing was written; the table keeps everything that was committed. Create a new table for the current
    log, and query both.
    """

    code = "rebase-refused"
    exit_code = ExitCode.USAGE
    _what = "table {table} has no key, so new records with old offsets would be taken for rows that it holds."
    _state = "nothing was written."
    _cause = "{detail}"
    _next = "thermocline table show {table}\nthen create a table with another identifier for the new log"

    table: str
    detail: str  # what is found, in words

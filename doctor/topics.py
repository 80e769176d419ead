"""Checks of how topics are set: how long they keep records and tombstones, and how large records may be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from thermocline.doctor.finding import Finding, Outcome, not_looked_at, well
from thermocline.doctor.fixes import topic_config
from thermocline.doctor.spans import shown_bytes, shown_ms
from thermocline.kafka.facts import config_of, retention_of
from thermocline.rules.identity import KEPT_MS_MIN

if TYPE_CHECKING:
    from thermocline.doctor.check import Examination
    from thermocline.kafka.facts import TopicRetention
    from thermocline.settings import KafkaSettings

__all__ = [
    "Topic",
    "compaction_lag",
    "compaction_lag_of",
    "letter_bytes_of",
    "message_bytes",
    "message_bytes_of",
    "retention",
    "retention_of_topic",
    "tombstones",
    "tombstones_of",
]

Entries = Mapping[str, str | None]
_Look = Callable[["Topic"], Iterator[Finding]]

INTERVALS_KEPT_MIN: Final = 10
"""A topic that keeps records for less than so many commit intervals loses some after the first hiccup."""
KEPT_MS_SMALL: Final = 3_600_000
"""Below it, an upgrade of the cluster or an hour's outage loses records."""
KEPT_MS_FEW: Final = 86_400_000
"""Below it, nobody may be there to mend what stopped ingest."""
KEPT_MS_ADVISED: Final = 604_800_000
LAG_MS_ADVISED: Final = 86_400_000
MESSAGE_BYTES: Final = 1_048_588
"""Kafka's own default."""
LETTER_BYTES: Final = 16_384
"""What the headers of a dead letter take beside its record, with room to spare."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with its entries, and what of the tables that it feeds matters."""

    kafka: KafkaSettings
    name: str
    entries: Entries
    tables: tuple[str, ...]
    interval_ms: int
    is_keyed: bool = True
    needs_every_record: bool = False
    record_bytes_max: int = 1 << 62

    @property
    def shortest_ms(self) -> int:
        """Within which it may lose nothing."""
        return INTERVALS_KEPT_MIN * self.interval_ms

    def fix(self, setting: str) -> str:
        """The command that sets something of it."""
        return topic_config(self.kafka, self.name, setting)


def retention(examination: Examination) -> Sequence[Finding]:
    """For how long records wait for ingest."""
    return _of_each(examination, retention_of_topic)


def retention_of_topic(topic: Topic) -> Iterator[Finding]:
    """By age, and by size."""
    kept = retention_of(topic.entries)
    if kept.kept_ms is None:
        yield well(_compaction_alone(kept), topic.name)
    else:
        shown = f"retention.ms is {kept.kept_ms:,} ({shown_ms(kept.kept_ms)})"
        means = (
            "records are deleted then, whether the table has them or not: if ingest stands still for longer, "
            "they are lost, and it stops with offsets-gone"
        )
        yield _graded(
            topic, shown, means, kept.kept_ms, max(KEPT_MS_SMALL, topic.shortest_ms), "retention.ms"
        )
    if kept.is_limited_by_size:
        yield Finding(
            Outcome.WARNING,
            f"retention.bytes is {topic.entries.get('retention.bytes') or 'not told by the broker'}",
            "records are also deleted when there are many: a burst may push out what the table does not have",
            topic.fix("retention.bytes=-1"),
            topic.name,
        )


def tombstones(examination: Examination) -> Sequence[Finding]:
    """For how long deletes stay in compacted topics."""
    return _of_each(examination, tombstones_of)


def tombstones_of(topic: Topic) -> Iterator[Finding]:
    """Whether what compaction drops could be missed."""
    config = config_of(topic.entries)
    if not config.is_compacted:
        yield well("cleanup.policy is delete: no tombstone is dropped before its records", topic.name)
        return
    if topic.needs_every_record:
        yield Finding(
            Outcome.PROBLEM,
            f"the topic is compacted, and {', '.join(topic.tables)} needs every record",
            "compaction drops records that later ones of their key don't take the place of: partial updates "
            "are lost, and columns that order records are not told any more; ingest stops (topic-compacted)",
            topic.fix(f"cleanup.policy=delete,retention.ms={KEPT_MS_ADVISED}"),
            topic.name,
        )
        return
    if not topic.is_keyed:
        yield well("its tables have no key, so nothing is deleted by tombstones", topic.name)
        return
    kept_ms = config.delete_retention_ms
    yield _graded(
        topic,
        f"delete.retention.ms is {kept_ms:,} ({shown_ms(kept_ms)})",
        "tombstones are dropped then: if ingest is behind for longer, a deleted row would stay for ever, so "
        "it stops with tombstones-gone",
        kept_ms,
        max(KEPT_MS_MIN, topic.shortest_ms),
        "delete.retention.ms",
    )


def compaction_lag(examination: Examination) -> Sequence[Finding]:
    """For how long superseded records stay in compacted topics."""
    return _of_each(examination, compaction_lag_of)


def compaction_lag_of(topic: Topic) -> Iterator[Finding]:
    """Whether what a read point reflects is still there while it is read."""
    lag_ms = retention_of(topic.entries).compaction_lag_ms
    if lag_ms is None:
        yield well("the topic is not compacted", topic.name)
        return
    shown = f"min.compaction.lag.ms is {lag_ms:,} ({shown_ms(lag_ms)})"
    if lag_ms >= topic.shortest_ms:
        yield well(shown, topic.name)
        return
    yield Finding(
        Outcome.WARNING,
        shown,
        "a record may be dropped as soon as a later one of its key came: extracts and lookups at a read "
        "point are refused with read-point-gone, and views with literal ends don't last",
        topic.fix(f"min.compaction.lag.ms={LAG_MS_ADVISED}"),
        topic.name,
    )


def message_bytes(examination: Examination) -> Sequence[Finding]:
    """The largest record that topics take, against what tables and dead-letter topics take."""
    found = list(_of_each(examination, message_bytes_of))
    letters = {
        name: letter
        for name in examination.tables
        if (letter := examination.settings.table(name).dead_letter_topic) in examination.topics
        and letter
        and examination.topics_of(name)
    }
    if letters:
        assert examination.log is not None
        entries = examination.log.entries([*letters.values()])
        for name, letter in letters.items():
            largest = max(
                (
                    _message_bytes(of or {})
                    for of in examination.log.entries(examination.topics_of(name)).values()
                ),
                default=MESSAGE_BYTES,
            )
            found.append(letter_bytes_of(examination.settings.kafka, letter, entries[letter], name, largest))
    return found


def message_bytes_of(topic: Topic) -> Iterator[Finding]:
    """Whether each record that the topic takes is one that its tables read."""
    largest, taken = _message_bytes(topic.entries), topic.record_bytes_max
    shown = f"max.message.bytes is {shown_bytes(largest)}"
    if largest <= taken:
        yield well(shown, topic.name)
        return
    tables = ", ".join(topic.tables)
    yield Finding(
        Outcome.WARNING,
        f"{shown}, and record_bytes_max of {tables} is {shown_bytes(taken)}",
        "producers may append records that the table takes for bad ones, as they are too large",
        topic.fix(f"max.message.bytes={taken}"),
        topic.name,
    )


def letter_bytes_of(
    kafka: KafkaSettings, letter: str, entries: Entries | None, table: str, largest: int
) -> Finding:
    """Whether a dead-letter topic takes the largest record of a table's topics."""
    if entries is None:
        return not_looked_at("the user may not describe its configuration", letter)
    taken = _message_bytes(entries)
    shown = f"max.message.bytes is {shown_bytes(taken)}, that of the topics of {table} {shown_bytes(largest)}"
    if taken >= largest:
        return well(shown, letter)
    return Finding(
        Outcome.PROBLEM,
        shown,
        "a bad record may be too large for the dead-letter topic, and ingest then stops with "
        "dead-letter-refused",
        topic_config(kafka, letter, f"max.message.bytes={largest + LETTER_BYTES}"),
        letter,
    )


def _message_bytes(entries: Entries) -> int:
    return int(entries.get("max.message.bytes") or MESSAGE_BYTES)


def _compaction_alone(kept: TopicRetention) -> str:
    return "records are not deleted for their age" + ("" if kept.compaction_lag_ms is None else ", compacted")


def _graded(
    topic: Topic, shown: str, means: str, kept_ms: int, problem_below_ms: int, setting: str
) -> Finding:
    if kept_ms >= max(KEPT_MS_FEW, problem_below_ms):
        return well(shown, topic.name)
    outcome = Outcome.PROBLEM if kept_ms < problem_below_ms else Outcome.WARNING
    advised = max(KEPT_MS_ADVISED, topic.shortest_ms)
    return Finding(outcome, shown, means, topic.fix(f"{setting}={advised}"), topic.name)


def _of_each(examination: Examination, look: _Look) -> Sequence[Finding]:
    """The findings of each topic whose configuration may be described."""
    assert examination.log is not None
    by_topic = examination.by_topic()
    entries = examination.log.entries([*by_topic])
    found: list[Finding] = []
    for name, tables in by_topic.items():
        of = entries[name]
        if of is None:
            found.append(not_looked_at("the user may not describe its configuration (see rights)", name))
            continue
        definitions = [examination.definition(table) for table in tables]
        settings = [examination.settings.table(table) for table in tables]
        topic = Topic(
            examination.settings.kafka,
            name,
            of,
            tuple(tables),
            max(round(one.commit_interval_seconds * 1000) for one in settings),
            is_keyed=any(one.merging.is_keyed for one in definitions),
            needs_every_record=any(one.merging.needs_every_record for one in definitions),
            record_bytes_max=min(one.record_bytes_max for one in definitions),
        )
        found += look(topic)
    return found

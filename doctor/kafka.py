"""Checks of Kafka itself: does it answer, are the topics there, and what may the user do with them?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from thermocline.doctor.finding import Finding, Outcome, not_looked_at, of_error, well
from thermocline.doctor.fixes import acls
from thermocline.errors import ThermoclineError, TopicForbidden, TopicMissing, TopicsUnmatched
from thermocline.kafka.facts import OffsetRange
from thermocline.kafka.log import Log, read_ranges
from thermocline.kafka.rights import READING, WRITING, TopicRights
from thermocline.process.masking import mask_password
from thermocline.rules.topic_patterns import finds

if TYPE_CHECKING:
    from thermocline.doctor.check import Examination
    from thermocline.settings import KafkaSettings, Settings

__all__ = ["brokers", "missing_rights", "registry", "rights", "topics"]

_ACL_NAMES: Final = {
    "READ": "Read",
    "WRITE": "Write",
    "DESCRIBE": "Describe",
    "DESCRIBE_CONFIGS": "DescribeConfigs",
}
"""The operations, as Kafka's tool for rights calls them."""
_UNKNOWN_ID: Final = (1 << 31) - 1  # the greatest schema id
_ANONYMOUS: Final = "ANONYMOUS"


def brokers(examination: Examination) -> Sequence[Finding]:
    """Whether the cluster answers."""
    kafka = examination.settings.kafka
    log = Log(kafka, examination.clock)
    found = f"{kafka.bootstrap_servers}: cluster {log.cluster_id()}"
    examination.log = log
    return (well(found),)


def registry(examination: Examination) -> Sequence[Finding]:
    """Whether the schema registry answers, by asking for a schema that it does not have."""
    asked = examination.settings.registry.client()
    if asked is None:
        return (well("not needed: registry.url is empty"),)
    asked.of(_UNKNOWN_ID)
    return (well(mask_password(examination.settings.registry.url)),)


def topics(examination: Examination) -> Sequence[Finding]:
    """Whether each topic is there, and how many partitions it has."""
    log = examination.log
    assert log is not None
    found, there = [], []
    wanted = dict(wanted_rights(examination.settings, examination.tables))
    for name in examination.tables:
        patterns = examination.settings.table(name).topic_patterns
        matching = [topic for topic in sorted(log.names()) if finds(patterns, topic)] if patterns else []
        wanted |= dict.fromkeys(matching, READING)
        if patterns and not matching:
            error = TopicsUnmatched(table=name, patterns=patterns)
            found.append(of_error(error, ", ".join(patterns)))
    for topic in wanted:
        try:
            partitions = log.describe([topic])[topic].partitions
        except TopicMissing as error:
            found.append(of_error(error, topic))
        except TopicForbidden:
            found.append(not_looked_at("the user may not describe it (see rights)", topic))
        else:
            there.append(topic)
            found.append(well(f"{partitions:,} partition{'' if partitions == 1 else 's'}", topic))
    examination.topics = tuple(there)
    return found


def rights(examination: Examination) -> Sequence[Finding]:
    """Rights by what the brokers say, and by fetching a record of each topic that tables read."""
    settings = examination.settings
    read = [topic for name in examination.tables for topic in examination.topics_of(name)]
    wanted = {**wanted_rights(settings, examination.tables), **dict.fromkeys(read, READING)}
    allowed = TopicRights(settings.kafka).of([*wanted])
    found: list[Finding] = []
    for topic, operations in allowed.items():
        missing = missing_rights(settings.kafka, topic, wanted[topic], operations)
        if missing is not None:
            found.append(missing)
        elif "READ" in wanted[topic]:
            found.append(_fetched(examination, topic))
        else:
            found.append(well(f"{', '.join(wanted[topic])}: allowed, by what the broker says", topic))
    return found


def wanted_rights(settings: Settings, tables: Sequence[str]) -> Mapping[str, tuple[str, ...]]:
    """The operations that each topic takes, in Kafka's words; those of the audit log, too."""
    wanted: dict[str, tuple[str, ...]] = {}
    for name in tables:
        table = settings.table(name)
        wanted |= dict.fromkeys(table.topic_names, READING)
        if table.dead_letter_topic:
            wanted.setdefault(table.dead_letter_topic, WRITING)
    if settings.audit.sink == "kafka":
        wanted.setdefault(settings.audit.topic, WRITING)
    return wanted


def missing_rights(
    kafka: KafkaSettings, topic: str, wanted: Sequence[str], allowed: frozenset[str] | None
) -> Finding | None:
    """A problem, where an operation is not allowed; None where all are, or where nobody says."""
    missing = [] if allowed is None else [one for one in wanted if one not in allowed]
    if not missing:
        return None
    principal = kafka.client.get("sasl.username", _ANONYMOUS)
    grant = acls(kafka, principal, topic, tuple(_ACL_NAMES[one] for one in missing))
    if principal == _ANONYMOUS and "SSL" in kafka.client.get("security.protocol", ""):
        grant = "# instead of ANONYMOUS, the name in the client's certificate\n" + grant
    stops_reads = any(one != "DESCRIBE_CONFIGS" for one in missing)
    means = (
        "ingest and servers can't read it" if "READ" in wanted else "ingest stops at the first dead letter"
    )
    careful = "the topic counts as compacted, with Kafka's defaults"
    return Finding(
        Outcome.PROBLEM if stops_reads else Outcome.WARNING,
        f"the user {principal} lacks {', '.join(missing)}",
        means if stops_reads else careful,
        grant,
        topic,
        TopicForbidden.code if stops_reads else "",
    )


def _fetched(examination: Examination, topic: str) -> Finding:
    """Whether a record can be fetched."""
    try:
        for one in _newest(examination, topic):
            for chunk in read_ranges(examination.settings.kafka.client_config(), [one]):
                return well(f"fetched {one.topic}/{one.partition}@{chunk.offsets[-1]}", topic)
    except ThermoclineError as error:
        return of_error(error, topic)
    return well("allowed, by what the broker says; there is no record to fetch", topic)


def _newest(examination: Examination, topic: str) -> Iterator[OffsetRange]:
    assert examination.log is not None
    starts, ends = examination.log.bounds([topic])
    for _, partition, end in ends.items():
        if end > starts.get((topic, partition)):
            yield OffsetRange(topic, partition, end - 1, end)

"""The change of a table by which topics that its patterns find come and go, and what is kept of them.

A topic is part of a table from the snapshot on whose definition names it. It is read from its first record
on: it was created after somebody last looked for topics, and after the table. A deleted topic that the table
has all of leaves seam and definition. Its id and its part of the seam are kept for a while: if it was only
hidden from the user, it is read on from there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypedDict

from thermocline.iceberg.catalog import (
    DELETED_PROPERTY,
    HELD_PROPERTY,
    LEFT_PROPERTY,
    LEFT_TOPICS_MAX,
    SEAM_PROPERTY,
    SUMMARY_TOPICS_ADDED,
    SUMMARY_TOPICS_LEFT,
    TOMBSTONES_PROPERTY,
)
from thermocline.ingest.commit.change import NewTopics, TableChange
from thermocline.rules.deleted_topics import Known, check_drained
from thermocline.rules.identity import Fed, check_identity, check_log
from thermocline.rules.partition_time import PartitionTimes
from thermocline.rules.rotation import rotated, without
from thermocline.rules.seam import Seam
from thermocline.rules.topic_patterns import added_to, finds

if TYPE_CHECKING:
    from thermocline.ingest.commit.change import InLog
    from thermocline.kafka.facts import TopicFacts
    from thermocline.kafka.log import Log
    from thermocline.rules.definition import LiveTable

__all__ = [
    "LOOK_SECONDS",
    "change_of",
    "check_what_is_there",
    "deleted_ends",
    "given_up_ends",
    "held_topics",
    "with_topics",
]

LOOK_SECONDS: Final = 10.0
"""A look asks a broker for the names of all topics: milliseconds, and some 100 kB with a thousand."""

NAMED_MAX: Final = 100
"""Of topics that come or leave with one commit, which stays in the metadata as long as its snapshot."""


def without_deleted(
    definition: LiveTable,
    at: Fed,
    log: Log,
    properties: Mapping[str, str],
    now_ms: int,
    drained_seconds: float,
) -> LiveTable:
    """The definition without deleted topics that the table has all of, by what the table says of itself.

    Raises:
        LogReplaced: another cluster answers.
        TopicDeleted: the table may lack records of a deleted topic.
    """
    if not definition.topic_patterns:
        return definition
    check_identity(definition.name, at.cluster_id, {}, log, ())
    gone = rotated(definition, log).gone
    known = Known(least=deleted_ends(properties), held=held_topics(properties))
    check_drained(definition.name, gone, at, known, now_ms, 1000 * drained_seconds)
    return without(definition, gone)


def check_what_is_there(
    definition: LiveTable,
    at: Fed,
    log: Log,
    properties: Mapping[str, str],
    now_ms: int,
    drained_seconds: float,
) -> None:
    """Checks the log against a table, without deleted topics that the table has all of.

    Raises what `without_deleted` and `thermocline.rules.identity.check_log` raise.
    """
    there = without_deleted(definition, at, log, properties, now_ms, drained_seconds)
    if there.topics or not definition.topic_patterns:
        check_log(definition.name, at, log, there, now_ms)


def with_topics(definition: LiveTable, listed: Collection[str], known: Sequence[str] = ()) -> LiveTable:
    """The definition as the file has it, with the topics that its patterns find and the known ones don't."""
    others = [topic for topic in listed if not finds(known, topic)]  # safety: alter-leaves-found-topics
    return replace(definition, topics=(*definition.topics, *added_to(definition, others)))


def deleted_ends(properties: Mapping[str, str]) -> Seam:
    """The ends that deleted topics were seen to have, where the table did not have all of them."""
    return Seam.from_json(properties.get(DELETED_PROPERTY, "{}"))


def held_topics(properties: Mapping[str, str]) -> frozenset[str]:
    """The topics of which open transactions held records back when the table last had all of the log."""
    return frozenset(json.loads(properties.get(HELD_PROPERTY, "[]")))


def given_up_ends(properties: Mapping[str, str], ids: Mapping[str, str]) -> Seam:
    """The same, and how far topics were read, for a table that goes back to when it had those with these ids.

    Those that left since are among them.
    """
    left: dict[str, _Left] = json.loads(properties.get(LEFT_PROPERTY, "{}"))
    read = {topic: one["seam"] for topic, one in left.items() if ids.get(topic) == one["id"]}
    newest = Seam.from_json(properties.get(SEAM_PROPERTY, "{}"))
    # safety: rebase-ends-of-topics
    return deleted_ends(properties).merged_max(Seam.from_dict(read)).merged_max(newest)


def change_of(
    at: InLog,
    definition: LiveTable,
    properties: Mapping[str, str],
    came: Mapping[str, TopicFacts],
    gone: Sequence[str],
) -> TableChange:
    """The change after which the topics that came feed the table, and those that are gone don't.

    The table counts as drained a look earlier than before: what came may have records that are as old.
    """
    left: dict[str, _Left] = json.loads(properties.get(LEFT_PROPERTY, "{}"))
    tombstones = {topic: ms for topic, ms in at.tombstones_since_ms.items() if topic not in gone}
    noted = {topic: entry for topic, entry in left.items() if topic not in (*came, *gone)}
    noted |= {topic: _noted(at, topic) for topic in gone}
    change = replace(
        TableChange.carrying_on(at),
        seam=at.seam.without(gone),
        topic_ids={topic: of for topic, of in at.topic_ids.items() if topic not in gone},
        partition_times=(at.partition_times or PartitionTimes()).without(gone),
        # safety: topics-found-late
        drained_ms=max(0, at.drained_ms - round(1000 * LOOK_SECONDS)) if came else at.drained_ms,
        summary={
            **({SUMMARY_TOPICS_ADDED: _names(list(came))} if came else {}),
            **({SUMMARY_TOPICS_LEFT: _names(gone)} if gone else {}),
        },
        properties={
            TOMBSTONES_PROPERTY: json.dumps(tombstones),
            LEFT_PROPERTY: json.dumps(dict(list(noted.items())[-LEFT_TOPICS_MAX:])),
            DELETED_PROPERTY: deleted_ends(properties).without(gone).to_json(),
        },
        definition=replace(
            definition,
            topics=(*without(definition, gone).topics, *came),
            version=definition.version + 1,
        ),
    )
    ids = {topic: facts.topic_id for topic, facts in came.items()}
    starts = {
        (topic, partition): _start(topic, facts.topic_id, partition, left)
        for topic, facts in came.items()
        for partition in range(facts.partitions)
    }
    return change.reading(NewTopics(ids, Seam(starts)))


class _Left(TypedDict):
    """A topic that left."""

    id: str
    seam: dict[str, int]


def _start(topic: str, topic_id: str, partition: int, left: Mapping[str, _Left]) -> int:
    """The first offset; of a topic that was thought deleted and was not, where the table was in it."""
    before = left.get(topic)
    if before is None or before["id"] != topic_id:  # safety: same-topic-again
        return 0
    return before["seam"].get(str(partition), 0)


def _noted(at: InLog, topic: str) -> _Left:
    part = at.seam.without(set(at.seam.topics) - {topic}).to_dict()
    return {"id": at.topic_ids.get(topic, ""), "seam": part.get(topic, {})}


def _names(topics: Sequence[str]) -> str:
    more = len(topics) - NAMED_MAX
    return ", ".join(topics[:NAMED_MAX]) + (f" and {more:,} more" if more > 0 else "")

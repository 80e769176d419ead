"""The watch for topics that a table's patterns find: new ones feed the table, deleted ones leave it.

Before a batch is planned, the owner looks at the cluster's topics, at most every `LOOK_SECONDS`. What came
and what is gone is committed at once, all together, as an alteration of the definition. So ingest and servers
read a topic from the same snapshot on. A topic that must not be read is named in a warning and a metric, and
looked at again; the others are not kept from being read.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from thermocline.errors import TopicDeleted, TopicForbidden, TopicMissing
from thermocline.iceberg.catalog import DELETED_PROPERTY, HELD_PROPERTY
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import landed
from thermocline.ingest.commit.rotation import LOOK_SECONDS, change_of, deleted_ends, held_topics
from thermocline.ingest.owner.measures import TOPICS_PASSED_OVER
from thermocline.process.logs import fields
from thermocline.rules.deleted_topics import Known, check_drained
from thermocline.rules.identity import check_identity
from thermocline.rules.rotation import rotated
from thermocline.rules.seam import Seam
from thermocline.rules.topic_patterns import finds, found_by_pattern

if TYPE_CHECKING:
    from thermocline.ingest.owner.owner import Owner
    from thermocline.kafka.facts import OpenTransaction, TopicFacts
    from thermocline.kafka.log import Log

__all__ = ["TopicWatch"]

FAULTY_MAX: Final = 10
"""Of topics that are listed and can't be described; each may be waited for, for two seconds."""

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class TopicWatch:
    """What one owner knows of the topics that its table's patterns find. Does nothing without patterns.

    ``ends`` are those that its topics were last seen to have, what open transactions hold back included.
    ``held`` are topics of which transactions may have held records back since the table last had all of the
    log, and ``held_now`` those of which they do.
    """

    looked_at: float = float("-inf")
    is_urgent: bool = False
    ends: Seam = field(default_factory=Seam)
    properties: dict[str, str] = field(default_factory=dict)
    passed_over: dict[str, str] = field(default_factory=dict)
    held: frozenset[str] | None = None
    held_now: frozenset[str] = frozenset()

    def look(self, owner: Owner) -> None:
        """Looks, where it is time, and commits what is found.

        Raises:
            LogReplaced: another cluster answers.
            TopicDeleted: a topic was deleted, and the table may lack records of it.
            ThermoclineError: the log does not answer, or the commit did not land.
        """
        if not owner.definition.topic_patterns:
            return
        now = owner.clock.monotonic()
        if now - self.looked_at >= LOOK_SECONDS or self.is_urgent:
            self._look(owner)
            self.looked_at = now
        if self.held is None:
            self.held = held_topics(owner.table.properties)
        open_now = owner.log.open_transactions(found_by_pattern(owner.definition))
        self.held_now = frozenset(one.topic for one in open_now)
        self.held |= self.held_now

    def _look(self, owner: Owner) -> None:
        at, name = owner.position, owner.definition.name
        # Topics of another cluster are none of the table's.
        check_identity(name, at.cluster_id, {}, owner.log, ())  # safety: patterns-cluster
        found = rotated(owner.definition, owner.log)
        came = self._readable(owner, found.came)
        if found.gone:
            self._check_drained(owner, found.gone)
        if came or found.gone:
            self._land(owner, came, found.gone)

    def saw(self, ends: Seam) -> None:
        """These are the ends of all topics of the table now."""
        self.ends = ends

    def stepped(self, held: Iterable[OpenTransaction]) -> None:
        """A step is done, and this waits behind the ends for transactions; some of it may be committed."""
        beyond = Seam({(one.topic, one.partition): one.begins_at + one.held_back for one in held})
        self.ends = self.ends.merged_max(beyond)  # safety: deleted-held-back
        self.is_urgent = False

    def to_commit(self, owner: Owner, is_drained: bool) -> dict[str, str]:
        """The property that a batch commits; ``is_drained``: after it, the table has all that the log had."""
        if self.held is None:
            return {}
        self.held = self.held_now if is_drained else self.held  # safety: held-back-until-drained
        before = held_topics({**owner.table.properties, **self.properties})
        if self.held == before:
            return {}
        said = {HELD_PROPERTY: json.dumps(sorted(self.held.intersection(owner.definition.topics)))}
        self.properties |= said
        return said

    def missed(self, owner: Owner, error: TopicMissing) -> bool:
        """Whether a topic that is missing is looked for at once; False where that was done before."""
        if self.is_urgent or not finds(owner.definition.topic_patterns, error.topic):
            return False
        extra = fields(table=owner.definition.name, topic=error.topic)
        _logger.info("a topic is missing; looking at all", extra=extra)
        self.is_urgent = True
        return True

    def _check_drained(self, owner: Owner, gone: Sequence[str]) -> None:
        noted = deleted_ends({**owner.table.properties, **self.properties})
        held = self.held if self.held is not None else held_topics(owner.table.properties)
        now_ms, drained_ms_max = owner.clock.now_ms(), 1000 * owner.settings.deleted_topic_seconds
        try:
            known = Known(self.ends, noted, held)
            check_drained(owner.definition.name, gone, owner.at, known, now_ms, drained_ms_max)
        except TopicDeleted as error:
            self._note_unread(owner, error, noted)
            raise

    def _note_unread(self, owner: Owner, error: TopicDeleted, noted: Seam) -> None:
        """Commits what this process alone has seen of topics, so that the next one stops, too."""
        seen = self.ends.without(set(self.ends.topics) - set(error.topics)).merged_max(noted)
        if seen != noted:
            change = TableChange.carrying_on(owner.position)
            noting = replace(change, properties={DELETED_PROPERTY: seen.to_json()})
            landed(owner.land(noting))  # safety: deleted-unread-noted
            self.properties |= noting.properties

    def _land(self, owner: Owner, came: Mapping[str, TopicFacts], gone: Sequence[str]) -> None:
        properties = {**owner.table.properties, **self.properties}
        change = change_of(owner.position, owner.definition, properties, came, gone)
        done = landed(owner.land(change))
        self.properties |= change.properties
        # What it has of records now, the table may not have when it is deleted.
        self.ends = self.ends.without(gone).merged_max(owner.log.ends(tuple(came)))
        for what, topics in (("topics feed the table, too", came), ("topics left the table", gone)):
            if topics:
                extra = fields(table=owner.definition.name, topics=list(topics), snapshot_id=done.snapshot_id)
                _logger.info(what, extra=extra)

    def _readable(self, owner: Owner, topics: Sequence[str]) -> dict[str, TopicFacts]:
        """Those that can be read as the table is read; of the others, why not is said once."""
        found, reasons = _described(owner.log, topics)
        for topic, reason in self._refused(owner, tuple(found)):
            del found[topic]
            reasons[topic] = reason
        self._say(owner.definition.name, reasons)
        return found

    def _refused(self, owner: Owner, topics: Sequence[str]) -> Iterable[tuple[str, str]]:
        rights = owner.log.may_read(topics)
        needs_all = owner.definition.merging.needs_every_record
        configs = owner.log.configs(topics) if needs_all else {}
        for topic in topics:
            if not rights[topic]:
                yield topic, "the user of [kafka.client] may not read it"
            elif needs_all and configs[topic].is_compacted:  # safety: found-not-compacted
                yield topic, "it is compacted, and the table needs all records of a key"

    def _say(self, table: str, reasons: Mapping[str, str]) -> None:
        for topic, reason in reasons.items():
            if self.passed_over.get(topic) != reason:
                extra = fields(table=table, topic=topic, reason=reason)
                _logger.warning("a topic matches a pattern and is not read", extra=extra)
        self.passed_over = dict(reasons)
        TOPICS_PASSED_OVER.labels(table).set(len(reasons))


def _described(log: Log, topics: Sequence[str]) -> tuple[dict[str, TopicFacts], dict[str, str]]:
    """The facts of topics, asked for together, and why some have none.

    Where too many have none, as on a cluster that is still making them, all wait for the next look.
    """
    left, reasons = list(topics), dict[str, str]()
    for _ in range(FAULTY_MAX):
        try:
            return log.describe(left), reasons
        except (TopicMissing, TopicForbidden) as error:
            reasons[error.topic] = error.what
            left.remove(error.topic)
    return {}, reasons

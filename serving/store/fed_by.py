"""The log that feeds a table, as its snapshots and its hot tier name it.

Offsets mean the same records only where the cluster is the same, and the topic by its id, and where nothing
was accepted in between that the log does not hold. A topic that comes or leaves changes none of the others.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

__all__ = ["FedBy", "fed_by"]


@dataclass(frozen=True, slots=True)
class FedBy:
    """A cluster, its topics with their ids, and what stands for the gap that was accepted last."""

    cluster_id: str
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    accepted: str = ""

    def to_text(self) -> str:
        """The same text for the same log."""
        return json.dumps([self.cluster_id, dict(sorted(self.topic_ids.items())), self.accepted])

    def is_other(self, other: FedBy, topics: Collection[str]) -> bool:
        """Whether offsets of these topics mean other records there."""
        if (self.cluster_id, self.accepted) != (other.cluster_id, other.accepted):
            return True
        return any(self.topic_ids.get(topic) != other.topic_ids.get(topic) for topic in topics)

    def shared_with(self, other: FedBy) -> frozenset[str]:
        """The topics whose offsets mean the same records there."""
        if self.is_other(other, ()):
            return frozenset()
        return frozenset(topic for topic, _ in self.topic_ids.items() & other.topic_ids.items())

    def with_left(self, before: FedBy, left: Collection[str]) -> FedBy:
        """The same and these topics, which fed the table before."""
        ids = {topic: of for topic, of in before.topic_ids.items() if topic in left}
        return replace(self, topic_ids={**ids, **self.topic_ids})


@lru_cache(maxsize=64)  # of a few tables, as their topics came and went
def fed_by(text: str) -> FedBy:
    """The log of a text that `FedBy.to_text` gave; any other text is as good as a cluster of its own."""
    try:
        cluster_id, topic_ids, accepted = json.loads(text)
    except ValueError:
        return FedBy(text)
    if not isinstance(topic_ids, dict):  # as earlier releases named it
        return FedBy(text)
    return FedBy(cluster_id, topic_ids, accepted)

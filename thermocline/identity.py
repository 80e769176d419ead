"""Whether the log is the one that a snapshot was fed from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from thermocline.errors import ClusterReplaced, TopicReplaced

if TYPE_CHECKING:
    from thermocline.log import Log


def check_identity(
    table: str, cluster_id: str, topic_ids: Mapping[str, str], log: Log, topics: Sequence[str]
) -> None:
    """Compares what a snapshot recorded with what is there. A topic that it does not know is new.

    Raises:
        ClusterReplaced: offsets of this cluster say nothing about the snapshot's seam.
        TopicReplaced: nor do those of a topic that was deleted and created again.
    """
    found = log.cluster_id()
    if found != cluster_id:
        raise ClusterReplaced(table=table, recorded=cluster_id, found=found)
    for topic, facts in log.describe(topics).items():
        recorded = topic_ids.get(topic, facts.topic_id)
        if facts.topic_id != recorded:
            raise TopicReplaced(table=table, topic=topic, recorded=recorded, found=facts.topic_id)

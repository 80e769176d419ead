"""Whether the log is the one that a snapshot was fed from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from thermocline.errors import ClusterReplaced, TopicReplaced

if TYPE_CHECKING:
    from thermocline.catalog import SnapshotState
    from thermocline.log import Log


def check_identity(table: str, state: SnapshotState, log: Log, topics: Sequence[str]) -> None:
    """Compares what the snapshot recorded with what is there. A topic that it does not know is new.

    Raises:
        ClusterReplaced: offsets of this cluster say nothing about the snapshot's seam.
        TopicReplaced: nor do those of a topic that was deleted and created again.
    """
    found = log.cluster_id()
    if found != state.cluster_id:
        raise ClusterReplaced(table=table, recorded=state.cluster_id, found=found)
    for topic, facts in log.describe(topics).items():
        recorded = state.topic_ids.get(topic, facts.topic_id)
        if facts.topic_id != recorded:
            raise TopicReplaced(table=table, topic=topic, recorded=recorded, found=facts.topic_id)

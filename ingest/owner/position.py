"""The position of a table, on which its owner plans the next batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from thermocline.rules.partition_time import PartitionTimes
from thermocline.upsert.files_by_bucket import FilesByBucket, after_commit, in_buckets

if TYPE_CHECKING:
    from thermocline.iceberg.catalog import SnapshotState
    from thermocline.ingest.commit.change import TableChange
    from thermocline.ingest.commit.commit import Landed
    from thermocline.rules.seam import Seam


@dataclass(frozen=True, slots=True)
class Position:
    """A snapshot of ours, what it says of the log, and its files."""

    snapshot_id: int
    seam: Seam
    cluster_id: str
    topic_ids: Mapping[str, str]
    watermark_ms: int
    drained_ms: int
    partition_times: PartitionTimes
    tombstones_since_ms: Mapping[str, int]
    has_read: bool
    files: FilesByBucket

    @classmethod
    def of(cls, state: SnapshotState, files: FilesByBucket) -> Position:
        """The position of a snapshot that was read."""
        return cls(
            state.snapshot_id,
            state.seam,
            state.cluster_id,
            state.topic_ids,
            state.watermark_ms,
            state.drained_ms,
            state.partition_times or PartitionTimes(),
            state.tombstones_since_ms,
            state.has_read,
            files,
        )

    def after(self, landed: Landed, change: TableChange, buckets: int | None = None) -> Position:
        """The position of the snapshot that a commit of ours made; ``buckets`` is how many there were."""
        files = after_commit(self.files, change.files, landed.origins)
        if change.definition is not None and change.definition.buckets != buckets:
            files = in_buckets(files, change.definition.buckets)
        return replace(
            self,
            snapshot_id=landed.snapshot_id,
            seam=change.seam,
            topic_ids=change.topic_ids,  # safety: ids-of-topics-found
            watermark_ms=change.watermark_ms,
            drained_ms=change.drained_ms,
            partition_times=change.partition_times,
            tombstones_since_ms={
                topic: ms for topic, ms in self.tombstones_since_ms.items() if topic in change.topic_ids
            },
            has_read=self.has_read or change.accounting.read > 0,
            files=files,
        )

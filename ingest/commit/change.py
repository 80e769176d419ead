"""A change of a table by one commit: files added and removed, positions deleted, and its summary."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

from thermocline.iceberg.catalog import (
    SUMMARY_BAD_DIGEST,
    SUMMARY_BATCH,
    SUMMARY_BEGAN,
    SUMMARY_CARRIED,
    SUMMARY_CLUSTER,
    SUMMARY_DEFINITION_VERSION,
    SUMMARY_DRAINED,
    SUMMARY_EPOCH,
    SUMMARY_PARTITION_TIMES,
    SUMMARY_RECORDS,
    SUMMARY_RECORDS_TOTAL,
    SUMMARY_SEAM,
    SUMMARY_TOPIC_IDS,
    SUMMARY_WATERMARK,
)
from thermocline.ingest.batch.accounting import Accounting
from thermocline.rules.bad_digest import merged
from thermocline.rules.identity import Fed
from thermocline.rules.partition_time import PartitionTimes
from thermocline.rules.seam import PLAIN_PARTITIONS_MAX, Seam, packed
from thermocline.upsert.bucket_task import written_paths

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.upsert.bucket_task import BucketResult


ChangeKind = Literal["row-delta", "rewrite", "manifests"]
ManifestContent = Literal["data", "deletes"]
"""What the files are that a manifest lists: it has one kind alone."""


class InLog(Fed, Protocol):
    """Where a table is in the log."""

    @property
    def partition_times(self) -> PartitionTimes | None:
        """The partition times at its seam; None where it doesn't say them."""
        ...


@dataclass(frozen=True, slots=True)
class TableChange:
    """A commit, from where it is planned to where Iceberg builds it.

    A row delta changes what the table says. A rewrite says the same in other files: it keeps the seam and
    every row, and readers of changes pass over its snapshot. So does one of manifests, which names no file:
    ``buckets_together`` says of each kind of manifest that it rewrites how many buckets in a row shall share
    manifests.

    ``bad_digest`` is of the batch's bad records (`rules.bad_digest`). ``files`` are what is added, removed
    and deleted in each bucket. ``ranges`` is for people: what an error says of the batch. ``onto`` is a
    snapshot that becomes the current one first, so that the new one follows it. ``alter`` runs next, on the
    transaction of the store's library, to change the schema. ``summary`` and ``properties`` are the
    snapshot's and the table's, beside those that every commit of ours has (`ingest.commit.commit` adds them).
    ``definition`` is the table's afterwards; None leaves it as it is.
    ``expired`` are snapshots that leave the metadata with it; their files stay. ``began_ms`` is when a batch
    was planned, or a rewrite began, by ingest's clock.
    """

    seam: Seam
    cluster_id: str
    topic_ids: Mapping[str, str]
    watermark_ms: int
    drained_ms: int
    partition_times: PartitionTimes = field(default_factory=PartitionTimes)
    kind: ChangeKind = "row-delta"
    buckets_together: Mapping[ManifestContent, int] = field(default_factory=dict)
    accounting: Accounting = field(default_factory=Accounting)
    bad_digest: int = 0
    files: Sequence[BucketResult] = ()
    ranges: str = "none"
    summary: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    onto: int | None = None
    alter: Callable[[Any], None] | None = None
    definition: LiveTable | None = None
    expired: Sequence[int] = ()
    batch_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    began_ms: int | None = None

    @classmethod
    def carrying_on(cls, at: InLog) -> TableChange:
        """A change that leaves the table where it is in the log, under a batch id of its own at each call.

        What it does change is said with ``dataclasses.replace``, which keeps that batch id.
        """
        times = at.partition_times or PartitionTimes()
        return cls(at.seam, at.cluster_id, at.topic_ids, at.watermark_ms, at.drained_ms, times)

    def reading(self, new: NewTopics) -> TableChange:
        """The same, after which these topics are read, too."""
        return replace(
            self, seam=self.seam.merged_max(new.starts), topic_ids={**self.topic_ids, **new.topic_ids}
        )

    def paths(self) -> list[str]:
        """The files that were written for it, each once."""
        return written_paths(self.files)

    def rows_gained(self) -> int:
        """How many more rows are live after it."""
        return sum(part.rows_gained() for part in self.files)


@dataclass(frozen=True, slots=True)
class NewTopics:
    """Topics that a snapshot knows nothing of: their ids, and from where each partition is to be read."""

    topic_ids: Mapping[str, str] = field(default_factory=dict)
    starts: Seam = field(default_factory=Seam)


@dataclass(frozen=True, slots=True)
class Onto:
    """A snapshot of ours that shall be the current one again, ``over`` the one that is, and notes of that.

    ``new`` are the topics that the table has had since. ``definition`` is the table's from then on; None
    leaves it.
    """

    snapshot_id: int
    over: int
    summary: Mapping[str, str] = field(default_factory=dict)
    properties: Mapping[str, str] = field(default_factory=dict)
    new: NewTopics = field(default_factory=NewTopics)
    definition: LiveTable | None = None


def summary_fields(
    change: TableChange,
    epoch: int,
    definition_version: int,
    totals_before: Mapping[str, int],
    bad_digest_before: int = 0,
) -> dict[str, str]:
    """The snapshot summary of a commit of ours: what `thermocline.iceberg.catalog.state_of` reads back."""
    counts = change.accounting.counts()
    carried = sum(part.carried for part in change.files)
    return {
        SUMMARY_SEAM: change.seam.to_json(),
        SUMMARY_EPOCH: str(epoch),
        SUMMARY_BATCH: change.batch_id,
        SUMMARY_CLUSTER: change.cluster_id,
        SUMMARY_TOPIC_IDS: _ids_text(change.topic_ids),
        SUMMARY_DEFINITION_VERSION: str(definition_version),
        SUMMARY_WATERMARK: str(change.watermark_ms),
        SUMMARY_DRAINED: str(change.drained_ms),
        SUMMARY_PARTITION_TIMES: change.partition_times.to_json(),
        **{SUMMARY_RECORDS + name: str(count) for name, count in counts.items()},
        **{
            SUMMARY_RECORDS_TOTAL + name: str(totals_before.get(name, 0) + count)
            for name, count in counts.items()
        },
        SUMMARY_BAD_DIGEST: str(merged(bad_digest_before, change.bad_digest)),
        **({SUMMARY_CARRIED: str(carried)} if carried else {}),
        **({SUMMARY_BEGAN: str(change.began_ms)} if change.began_ms is not None else {}),
        **change.summary,
    }


def _ids_text(topic_ids: Mapping[str, str]) -> str:
    """JSON; of as many topics as a seam is packed for, packed as well."""
    text = json.dumps(dict(topic_ids), sort_keys=True)
    return text if len(topic_ids) <= PLAIN_PARTITIONS_MAX else packed(text)

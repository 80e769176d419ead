"""A live table without Spark: its commits carry what ingest's carry, and its log is what a test says."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from tests.partition_spec import partition_spec_of
from thermocline.iceberg.catalog import DEFINITION_PROPERTY, SUMMARY_SEAM, summary_of
from thermocline.kafka.facts import OpenTransaction, TopicConfig, TopicFacts, TopicRetention
from thermocline.rules.definition import LiveTable
from thermocline.rules.seam import Seam

DAY_MS = 86_400_000
APPENDED = TopicConfig(is_compacted=False, delete_retention_ms=DAY_MS, is_log_append_time=True)
A_WEEK = TopicRetention(kept_ms=7 * DAY_MS, is_limited_by_size=False, compaction_lag_ms=None)
CLUSTER, TOPIC_ID = "cluster", "topic-id"


def make_table(catalog: Catalog, definition: LiveTable) -> Table:
    """An empty table with that definition, of format version 2."""
    return catalog.create_table(
        definition.identifier,
        definition.iceberg_schema(),
        partition_spec=partition_spec_of(definition),
        properties={"format-version": "2", DEFINITION_PROPERTY: definition.to_json()},
    )


def commit(
    table: Table,
    definition: LiveTable,
    rows: Sequence[Mapping[str, Any]],
    seam: Seam,
    *,
    at_ms: int,
    watermark_ms: int = -1,
    cluster_id: str = CLUSTER,
    topic_ids: Mapping[str, str] | None = None,
    without_record: int = 0,
) -> int:
    """Makes the rows those of the table, as of the seam; the snapshot.

    ``at_ms`` is when it held all of the log; ``without_record`` of the offsets that it passed gave none.
    """
    schema = definition.table_schema
    data = pa.Table.from_pylist(
        [{name: row.get(name) for name in schema.names} for row in rows], schema=schema
    )
    table.refresh()
    passed = _sum(seam) - _sum(_seam_of(table))
    summary = {
        "thermocline.seam": seam.to_json(),
        "thermocline.epoch": "1",
        "thermocline.batch-id": str(uuid.uuid4()),
        "thermocline.cluster-id": cluster_id,
        "thermocline.topic-ids": json.dumps(topic_ids or dict.fromkeys(definition.topics, TOPIC_ID)),
        "thermocline.definition-version": str(definition.version),
        "thermocline.watermark-ms": str(watermark_ms),
        "thermocline.drained-ms": str(at_ms),
        "thermocline.records-read": str(passed - without_record),
        "thermocline.total-records-read": "1",
    }
    write = table.overwrite if table.scan().count() else table.append
    write(data, snapshot_properties=summary)
    snapshot = table.current_snapshot()
    assert snapshot is not None
    return snapshot.snapshot_id


def _seam_of(table: Table) -> Seam:
    """The current snapshot's; an empty one where it has none."""
    snapshot = table.current_snapshot()
    return Seam.from_json(summary_of(snapshot).get(SUMMARY_SEAM, "{}")) if snapshot else Seam()


def _sum(seam: Seam) -> int:
    return sum(offset for _, _, offset in seam.items())


@dataclass
class FakeLog:
    """Stands in for `thermocline.kafka.log.Log`: it answers what its fields say."""

    log_starts: Seam
    log_ends: Seam
    config: TopicConfig = APPENDED
    retention: TopicRetention = A_WEEK
    topic_id: str = TOPIC_ID
    cluster: str = CLUSTER
    error: Exception | None = None
    young: Seam = field(default_factory=Seam)
    open: tuple[OpenTransaction, ...] = ()

    def cluster_id(self) -> str:
        if self.error is not None:
            raise self.error
        return self.cluster

    def describe(self, topics: Sequence[str]) -> dict[str, TopicFacts]:
        return {topic: TopicFacts(self.topic_id, 1) for topic in topics}

    def bounds(self, topics: Sequence[str]) -> tuple[Seam, Seam]:
        return self.log_starts, self.log_ends

    def configs(self, topics: Sequence[str]) -> dict[str, TopicConfig]:
        return dict.fromkeys(topics, self.config)

    def retentions(self, topics: Sequence[str]) -> dict[str, TopicRetention]:
        return dict.fromkeys(topics, self.retention)

    def open_transactions(self, topics: Sequence[str]) -> tuple[OpenTransaction, ...]:
        return self.open

    def offsets_at(self, topics: Sequence[str], epoch_ms: int) -> Seam:
        return self.young

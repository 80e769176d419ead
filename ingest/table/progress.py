"""Look at a table and its log without owning it: how far it is, and what there is to be read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING

from thermocline.errors import ForeignSnapshot
from thermocline.iceberg.catalog import SnapshotState, current_state, definition_of, open_table
from thermocline.ingest.batch.open_transactions import warn
from thermocline.ingest.batch.plan import Batch, lag_of, plan_batch, records_max_of, with_new_partitions
from thermocline.ingest.commit.change import NewTopics
from thermocline.kafka.log import Log
from thermocline.process.clock import Clock, SystemClock
from thermocline.rules.identity import check_identity, check_log, kept_ms
from thermocline.rules.rotation import only_there, rotated
from thermocline.rules.seam import Seam

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings

# A table that is idle says so this often while tombstones live: then ingest may stand still for most of their
# life before anybody has to fear for them.
NOTES_PER_RETENTION = 4
# Where topics may be deleted, a table that is idle says so this often in the time for which that counts.
NOTES_PER_DELETED_TOPIC = 2


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """One partition: what the log holds and how far the table is; ``lag`` counts offsets.

    ``held_back`` counts the offsets behind ``log_end`` that wait for an open transaction, which begins there.
    None where the log does not have the partition any more.
    """

    topic: str
    partition: int
    log_start: int | None
    seam: int
    log_end: int | None
    lag: int
    held_back: int


def is_note_due(
    table_drained_ms: int, log: Log, definition: LiveTable, now_ms: int, deleted_topic_seconds: float
) -> bool:
    """Whether an idle table should say that it holds all of the log.

    Tombstones age while nothing comes; and so does what the next owner knows of topics that are deleted.
    """
    age_ms = now_ms - table_drained_ms
    if definition.topic_patterns and age_ms > 1000 * deleted_topic_seconds / NOTES_PER_DELETED_TOPIC:
        return True
    if not definition.has_key:
        return False
    kept = [kept_ms(config) for config in log.configs(definition.topics).values() if config.is_compacted]
    return bool(kept) and age_ms > min(kept) / NOTES_PER_RETENTION


def next_batch(settings: Settings, name: str, clock: Clock | None = None) -> Batch:
    """The batch that ingest would read now. Reads only; writes nothing.

    Raises what `thermocline.rules.identity.check_log` raises.
    """
    definition, state, log = _table_and_log(settings, name)
    definition = only_there(definition, log)
    starts, ends = check_log(name, state, log, definition, (clock or SystemClock()).now_ms())
    records_max = records_max_of(settings.table(name).batch_records_max, 0, bytes_per_record=None)
    seam, offsets_at = with_new_partitions(state.seam, starts), partial(log.offsets_at, definition.topics)
    return plan_batch(seam, ends, records_max, offsets_at)


def is_up_to_date(settings: Settings, name: str, clock: Clock) -> bool:
    """Whether ingest has nothing to commit now; warns of what an open transaction holds back.

    Raises what `thermocline.rules.identity.check_log` raises.
    """
    try:
        definition, state, log = _table_and_log(settings, name)
    except ForeignSnapshot:
        return False  # whether ingest can go on is found out by what takes the table
    now_ms = clock.now_ms()
    changed = rotated(definition, log)
    if changed.came or changed.gone:
        return False
    if not definition.topics:
        return True
    starts, ends = check_log(name, state, log, definition, now_ms)
    lag = lag_of(with_new_partitions(state.seam, starts), ends)
    seconds = settings.table(name).deleted_topic_seconds
    if lag or (state.has_read and is_note_due(state.drained_ms, log, definition, now_ms, seconds)):
        return False
    warn(name, log.open_transactions(definition.topics))
    return True


def offsets(settings: Settings, name: str) -> list[PartitionOffsets]:
    """Every partition of the table's topics. Reads only, and shows a seam outside the log as it is."""
    definition, state, log = _table_and_log(settings, name)
    topics = only_there(definition, log).topics
    check_identity(name, state.cluster_id, state.topic_ids, log, topics)
    starts, ends = log.bounds(topics)
    held = {(one.topic, one.partition): one for one in log.open_transactions(topics)}
    held_back = {place: one.held_back for place, one in held.items()}
    # Asked for a moment later.
    ends = ends.merged_max(Seam({place: one.begins_at for place, one in held.items()}))
    return [
        PartitionOffsets(
            topic,
            partition,
            log_start=_if_known(starts, (topic, partition)),
            seam=offset,
            log_end=_if_known(ends, (topic, partition)),
            lag=ends.get((topic, partition), offset) - offset,
            held_back=held_back.get((topic, partition), 0),
        )
        for topic, partition, offset in with_new_partitions(state.seam, starts).items()
    ]


def offsets_of(log: Log, topics: Sequence[str], where: str) -> Seam:
    """Where "earliest", "latest" or an ISO 8601 time with a zone is in each partition now."""
    if where == "earliest":
        return log.starts(topics)
    if where == "latest":
        return log.ends(topics)
    return log.offsets_at(topics, int(datetime.fromisoformat(where).timestamp() * 1000))


def new_topics(log: Log, topics: Sequence[str], start: str) -> NewTopics:
    """The topics as they are now, to be read from ``start`` on, as `offsets_of` takes it."""
    ids = {topic: facts.topic_id for topic, facts in log.describe(topics).items()}
    return NewTopics(ids, offsets_of(log, topics, start))


def _table_and_log(settings: Settings, name: str) -> tuple[LiveTable, SnapshotState, Log]:
    table = open_table(settings, name)
    return definition_of(table, name), current_state(table, name), Log(settings.kafka)


def _if_known(offsets: Seam, place: tuple[str, int]) -> int | None:
    return offsets[place] if place in offsets else None  # noqa: SIM401  where a seam has none, it says 0

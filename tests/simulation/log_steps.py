"""Steps in which the cluster is written to, or something happens to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.simulation.records import TOPICS, rotating_topic
from tests.simulation.world import TOMBSTONES_KEPT_MS

if TYPE_CHECKING:
    from tests.simulation.partitions import Partition
    from tests.simulation.records import Key
    from tests.simulation.world import World


@dataclass(frozen=True, slots=True)
class Produce:
    """Records of (place, key, what) are appended, in a transaction where a slot is given.

    ``what`` is UPSERT, DELETE, BAD or TOUCH.
    """

    records: tuple[tuple[int, int, int], ...]
    slot: int | None = None

    def run(self, world: World) -> None:
        """A record each, at the same time."""
        transaction = None
        if self.slot is not None and world.cluster.is_up:
            transaction = world.transactions.setdefault(self.slot, world.cluster.transaction())
            world.counts["in a transaction"] += 1
        for place, key, what in self.records:
            topic, partition = world.places[place % len(world.places)]
            if not _is_wounded(world, topic, partition):
                world.produce(place, key, what, transaction)


@dataclass(frozen=True, slots=True)
class EndTransaction:
    """The open transaction of a slot ends."""

    slot: int
    is_committed: bool

    def run(self, world: World) -> None:
        """With a marker in each of its partitions."""
        transaction = world.transactions.get(self.slot)
        if transaction is None or not world.cluster.is_up:
            return
        if any(_is_wounded(world, *place) for place in transaction.begins_at):
            return
        del world.transactions[self.slot]
        if self.is_committed:
            transaction.commit()
        else:
            transaction.abort()
        world.counts["transaction committed" if self.is_committed else "transaction aborted"] += 1


@dataclass(frozen=True, slots=True)
class Trim:
    """Retention takes a partition's oldest records; only such as the table has, unless it is ``early``."""

    place: int
    records: int
    is_early: bool = False

    def run(self, world: World) -> None:
        """The log begins further on."""
        topic, partition, log = _log(world, self.place)
        seam = world.committed_seam().get((topic, partition), 0)
        end = log.stable_end if self.is_early else min(seam, log.stable_end)
        to = min(log.start + self.records, end)
        if to <= log.start:
            return
        world.counts["gap"] += to > seam
        world.cluster.trim(topic, partition, to)
        world.oracle.log(world.cluster.topics[topic].topic_id, partition).start = to


@dataclass(frozen=True, slots=True)
class Compact:
    """The cleaner comes by, up to some records before the end; old tombstones go, if it ``drops`` them."""

    place: int
    spared: int
    drops: bool

    def run(self, world: World) -> None:
        """What it takes is noted in the oracle's log."""
        if not world.around.is_compacted:
            return
        topic, partition, log = _log(world, self.place)
        before = max(log.stable_end - self.spared, log.start)
        known = {record.offset for record in log.records}
        # Clocks that disagree make ingest misjudge an age by as much; so much is between us and the cleaner.
        old_ms = world.now_ms - TOMBSTONES_KEPT_MS - 2 * world.around.skew_ms_max
        world.cluster.compact(topic, partition, before, old_ms if self.drops else None)
        gone = known - {record.offset for record in log.records}
        last: dict[Key, int] = {}
        ours = world.oracle.log(world.cluster.topics[topic].topic_id, partition)
        for one in ours.between(log.start, before):
            last[one.raw_key] = one.offset
        for one in ours.records:
            if one.offset in gone and one.is_visible:
                is_last = last[one.raw_key] == one.offset
                one.is_dropped, one.is_superseded = is_last, not is_last
                world.counts["tombstone dropped" if is_last else "record compacted"] += 1


@dataclass(frozen=True, slots=True)
class LoseEnd:
    """An unclean election loses the end of a partition, some of what the table has taken in included."""

    place: int
    records: int

    def run(self, world: World) -> None:
        """Nothing under way knows of what is lost: ingest could only guess that, and so could the oracle."""
        topic, partition, log = _log(world, self.place)
        to = max(world.committed_seam().get((topic, partition), 0) - self.records, log.start)
        if to >= log.end or world.frames.stack or log.open or to == 0:
            return
        world.late.clear()
        for actor in world.actors.values():
            if hasattr(actor, "owner"):
                actor.owner = None
        world.cluster.lose_end(topic, partition, to)
        world.oracle.lost_end(world.cluster.topics[topic].topic_id, partition, to)


@dataclass(frozen=True, slots=True)
class ReplaceTopic:
    """A topic is deleted and recreated, with as many partitions."""

    topic: int

    def run(self, world: World) -> None:
        """It is empty, and has another id."""
        topic = sorted(world.cluster.topics)[self.topic % len(world.cluster.topics)]
        _forget_transactions(world)
        world.cluster.replace_topic(topic)
        world.oracle.log_generation += 1


@dataclass(frozen=True, slots=True)
class CreateTopic:
    """A topic appears that the table's pattern finds; again under a name that was deleted, maybe."""

    number: int
    partitions: int = 1

    def run(self, world: World) -> None:
        """Records go there from now on."""
        topic = rotating_topic(self.number)
        if world.around.is_rotating and topic not in world.cluster.topics:
            world.create_topic(topic, self.partitions)


@dataclass(frozen=True, slots=True)
class DeleteTopic:
    """A topic that a pattern found is deleted; where ``is_drained``, only if the table has all of it."""

    topic: int
    is_drained: bool = False

    def run(self, world: World) -> None:
        """Whatever the table has of it."""
        found = [topic for topic in sorted(world.cluster.topics) if topic not in TOPICS]
        if not found:
            return
        topic = found[self.topic % len(found)]
        seam = world.committed_seam()
        is_read = all(
            log.stable_end == log.end == seam.get(log.place) for log in world.cluster.topics[topic].partitions
        )
        if self.is_drained and not is_read:
            return
        world.counts["deleted drained" if is_read else "deleted unread"] += 1
        _forget_transactions(world)
        world.delete_topic(topic)


@dataclass(frozen=True, slots=True)
class ReplaceCluster:
    """Another cluster answers at the address."""

    def run(self, world: World) -> None:
        """Its topics have the same names, and nothing in them."""
        _forget_transactions(world)
        world.cluster.replace()
        world.oracle.log_generation += 1


@dataclass(frozen=True, slots=True)
class AddPartition:
    """A topic gains a partition."""

    topic: int

    def run(self, world: World) -> None:
        """Up to three; records go there too where keys wander, and new keys where they do not."""
        topic = sorted(world.cluster.topics)[self.topic % len(world.cluster.topics)]
        logs = world.cluster.topics[topic].partitions
        if world.around.wanders and len(logs) < 3:
            world.places.append((topic, len(logs)))
            world.cluster.add_partitions(topic, len(logs) + 1)


@dataclass(frozen=True, slots=True)
class ClusterDown:
    """No broker answers, or they do again."""

    is_up: bool

    def run(self, world: World) -> None:
        """Producers cannot write meanwhile."""
        world.cluster.is_up = self.is_up


@dataclass(frozen=True, slots=True)
class Advance:
    """Time passes."""

    seconds: int

    def run(self, world: World) -> None:
        """For everybody; who is alive says so."""
        world.advance(self.seconds)
        if world.serving is not None:
            world.serving.beat()


@dataclass(frozen=True, slots=True)
class ClockJump:
    """The clock of a process is set, by as much as clocks are wrong in this history."""

    process: str
    share: float

    def run(self, world: World) -> None:
        """Forth or back."""
        world.clock(self.process).skew_ms = round(self.share * world.around.skew_ms_max)


def _log(world: World, place: int) -> tuple[str, int, Partition]:
    topic, partition = world.places[place % len(world.places)]
    return topic, partition, world.cluster.partition(topic, partition)


def _is_wounded(world: World, topic: str, partition: int) -> bool:
    """Whether a log has lost its end below the table's seam. Grown past it again, it could not be told."""
    log = world.cluster.partition(topic, partition)
    states, current = world.oracle.states, world.table().current_id
    known = states.get(current)
    is_same = known is not None and known.topic_ids.get(topic) == world.cluster.topics[topic].topic_id
    return is_same and log.end < world.committed_seam().get((topic, partition), 0)


def _forget_transactions(world: World) -> None:
    """A producer whose topic is gone gives up."""
    for transaction in world.transactions.values():
        transaction.abort()
    world.transactions.clear()

"""The shared reading of partitions: each is fetched once, for all tails whose position is there.

A *lane* is the reading of one partition by the shared consumer. A tail joins it where it stands close to it,
and is handed all that comes from then on; what lies between, it reads by itself. A lane is paused while
enough waits for all its tails. Nobody waits for one of them that takes nothing: once too much waits for it,
it is left behind, and comes back as one that is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from confluent_kafka import TopicPartition

from thermocline.kafka.facts import Message, settle_headers
from thermocline.kafka.log import CONSUME_RECORDS_MAX, OFFSET_OUT_OF_LOG, PARTITION_END, is_forbidden

if TYPE_CHECKING:
    from thermocline.kafka.tail import Place

__all__ = ["Lanes", "Member"]

# A tail joins a lane that it is so close to: what one answer of a consumer brings.
JOIN_OFFSETS_MAX: Final = CONSUME_RECORDS_MAX


class Part(NamedTuple):
    """What came of a partition at once, events included; ``size_bytes`` are of keys and values."""

    place: Place
    messages: Sequence[Message]
    size_bytes: int

    @classmethod
    def of(cls, place: Place, messages: Sequence[Message]) -> Part:
        """With its size."""
        return cls(place, messages, sum(len(one.value() or b"") + len(one.key() or b"") for one in messages))


class Member(Protocol):
    """A tail, as the lanes know it (`thermocline.kafka.shared_tail.Share`)."""

    places: Sequence[Place]
    is_held: bool
    """Whether a lane of it is paused, or was: it says so when it has taken all."""

    @property
    def is_full(self) -> bool:
        """Whether enough waits for it."""
        ...

    @property
    def is_left(self) -> bool:
        """Whether so much waits for it that it gets no more."""
        ...

    def topic_id(self, place: Place) -> str:
        """Of which topic of its name the partition is meant."""
        ...

    def put(self, part: Part) -> None:
        """Adds what came."""
        ...

    def has_joined(self, place: Place, at: int) -> None:
        """All of the partition from there on is handed to it."""
        ...

    def falls_behind(self, place: Place) -> None:
        """It is handed nothing more of the partition, and forgets what waits of it."""
        ...


class Assignable(Protocol):
    """What of a consumer the lanes move (`confluent_kafka.Consumer`)."""

    def incremental_assign(self, partitions: list[TopicPartition]) -> Any:
        """Begins to read them at their offsets."""
        ...

    def incremental_unassign(self, partitions: list[TopicPartition]) -> Any:
        """Reads them no more."""
        ...

    def pause(self, partitions: list[TopicPartition]) -> Any:
        """Reads them no more for now."""
        ...

    def resume(self, partitions: list[TopicPartition]) -> Any:
        """Goes on to read them."""
        ...


@dataclass(slots=True)
class Lane:
    """The reading of one partition of one topic; ``next`` is the first offset that was not handed out."""

    topic_id: str
    next: int
    members: list[Member] = field(default_factory=list)
    is_paused: bool = False


class Lanes:
    """All lanes of a consumer; for the thread that polls it, but for `next_of`."""

    def __init__(self, consumer: Assignable) -> None:
        self._consumer = consumer
        self._lanes: dict[Place, Lane] = {}

    def next_of(self, place: Place) -> int | None:
        """How far the partition was handed out; None where nobody shares it. For any thread."""
        lane = self._lanes.get(place)
        return None if lane is None else lane.next

    def join(self, member: Member, positions: Mapping[Place, int]) -> None:
        """Lets a tail join the lanes that it is close to, and begins those that nobody reads.

        One that is ahead of a lane takes it along, and those that read it so far are behind. One that is
        behind stays so, as does one of another topic of the name: what the lane has is not of that.
        """
        begun, joined = [], []
        for place, at in positions.items():
            topic_id, lane = member.topic_id(place), self._lanes.get(place)
            if lane is not None and lane.topic_id != topic_id:  # safety: shared-tail-other-topic
                continue
            if lane is not None and at > lane.next + JOIN_OFFSETS_MAX:
                self._dissolve(place)
                lane = None
            if lane is None:
                lane = self._lanes[place] = Lane(topic_id, at)
                begun.append(TopicPartition(*place, at))
            if member not in lane.members and lane.next <= at + JOIN_OFFSETS_MAX:
                lane.members.append(member)
                member.has_joined(place, lane.next)
                joined.append((place, lane))
        if begun:
            self._consumer.incremental_assign(begun)
        for place, lane in joined:
            self._balance(place, lane)

    def leave(self, member: Member) -> None:
        """Hands a tail nothing more."""
        for place, lane in self._of(member):
            lane.members.remove(member)
            if lane.members:
                self._balance(place, lane)
            else:
                self._end(place)

    def hand_out(self, messages: Sequence[Message]) -> None:
        """Hands what came to all that read it; moves the lanes."""
        came: dict[Place, list[Message]] = {}
        cut: set[Place] = set()
        forbidden: set[Place] = set()
        for message in messages:
            place = (message.topic(), message.partition())
            lane = self._lanes.get(place)
            if lane is None or not _moved(lane, message):
                continue
            if _is_cut(message):
                cut.add(place)
                continue
            if _is_forbidden(message):
                forbidden.add(place)
            came.setdefault(place, []).append(message)
        self._put([Part.of(place, some) for place, some in came.items()])
        for place in cut:
            self._dissolve(place)  # each hears by itself whether the log holds what it wants
        for place in forbidden - cut:
            self._end(place)  # the consumer says it once, and nothing more of the topic

    def has_room(self, member: Member) -> None:
        """Goes on with the lanes of a tail that took all that waited for it."""
        member.is_held = False
        for place, lane in self._of(member):
            self._balance(place, lane)

    def _put(self, parts: Sequence[Part]) -> None:
        for part in parts:
            for member in self._lanes[part.place].members:
                member.put(part)
        for part in parts:
            lane = self._lanes[part.place]
            if any(member.is_full for member in lane.members):
                self._balance(part.place, lane)

    def _balance(self, place: Place, lane: Lane) -> None:
        """Pauses a lane while enough waits for all its tails; otherwise leaves those that take nothing."""
        if all(member.is_full for member in lane.members):
            if not lane.is_paused:
                lane.is_paused = True
                self._consumer.pause([TopicPartition(*place)])
            for member in lane.members:
                member.is_held = True
            return
        for member in [member for member in lane.members if member.is_left]:  # safety: shared-tail-slow
            lane.members.remove(member)
            member.falls_behind(place)
        if lane.is_paused:
            lane.is_paused = False
            self._consumer.resume([TopicPartition(*place)])

    def _dissolve(self, place: Place) -> None:
        for member in self._end(place).members:
            member.falls_behind(place)

    def _end(self, place: Place) -> Lane:
        lane = self._lanes.pop(place)
        parts = [TopicPartition(*place)]
        self._consumer.resume(parts)  # a pause outlives the assignment  # safety: shared-tail-resumed
        self._consumer.incremental_unassign(parts)
        return lane

    def _of(self, member: Member) -> list[tuple[Place, Lane]]:
        """The lanes that it reads."""
        found = [(place, self._lanes.get(place)) for place in member.places]
        return [(place, lane) for place, lane in found if lane is not None and member in lane.members]


def _moved(lane: Lane, message: Message) -> bool:
    """Whether the message is to be handed out; the lane is behind it then."""
    error = message.error()
    if error is not None:
        if error.code() == PARTITION_END:
            lane.next = max(lane.next, message.offset())
        return True
    if message.offset() < lane.next:
        return False
    lane.next = message.offset() + 1
    if len(lane.members) > 1:
        settle_headers(message)
    return True


def _is_cut(message: Message) -> bool:
    error = message.error()
    return error is not None and error.code() == OFFSET_OUT_OF_LOG


def _is_forbidden(message: Message) -> bool:
    error = message.error()
    return error is not None and is_forbidden(error)

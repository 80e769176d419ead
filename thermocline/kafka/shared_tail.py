"""One consumer for several tails of a process: many tables cost one client, and a topic is fetched once.

A thread of its own polls the consumer and hands each tail what came of its partitions (``lanes``); it alone
touches the consumer. A tail that is not where the shared consumer is has a consumer of its own until it is.
Questions for offsets and facts go through one client, and all tails ask them together (``shared_probes``).
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from confluent_kafka import TopicPartition

from thermocline.kafka.admin import admin_client, destroy_left_behind
from thermocline.kafka.facts import Message
from thermocline.kafka.lanes import JOIN_OFFSETS_MAX, Lanes, Part
from thermocline.kafka.log import CONSUME_RECORDS_MAX, PARTITION_END, consumer_of, offsets_gone, take
from thermocline.kafka.shared_probes import SharedProbes
from thermocline.kafka.tail import TAIL_CONFIG, Place

if TYPE_CHECKING:
    from confluent_kafka import Consumer

    from thermocline.errors import OffsetsGone
    from thermocline.kafka.facts import TopicFacts
    from thermocline.kafka.tail import Asked
    from thermocline.process.clock import Clock
    from thermocline.rules.seam import Seam

__all__ = ["Share", "SharedConsumer", "SharedReading"]

# For how long the thread listens before it looks for what it was told; a record ends it at once.
LISTEN_SECONDS: Final = 0.05
# Handed to a tail and not taken yet; what comes on top is one answer of the consumer, within its own bound.
WAITING_BYTES_MAX: Final = 8 << 20
# Of small records, what they take as objects counts.
WAITING_RECORDS_MAX: Final = 50_000
# Where others go on, so much of both: two answers, so that of tails of one pace none is left behind.
LEFT_AT: Final = 8
# A tail that is behind in some partitions looks so often for what it is handed of the others.
BEHIND_SECONDS_MAX: Final = 0.02
# Many tails may be behind at once, as after a start.
OWN_CONFIG: Final[dict[str, Any]] = {
    **TAIL_CONFIG,
    "queued.max.messages.kbytes": WAITING_BYTES_MAX >> 10,
}

_T = TypeVar("_T")

_kafka_logger = logging.getLogger("thermocline.kafka")


class SharedConsumer:
    """Reads for several tails; `share` gives the reader of one."""

    def __init__(self, client_config: Mapping[str, Any], clock: Clock) -> None:
        self._client_config = client_config
        self._admin = admin_client(self, {**client_config, "log_level": 0}, _kafka_logger)
        self._asked = SharedProbes(self._admin, clock)
        self._is_over = threading.Event()
        self._consumer = consumer_of(client_config, TAIL_CONFIG)
        self._reading = SharedReading(self._consumer, self)
        self._thread = threading.Thread(target=self._run, name="shared consumer", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether its thread goes on; where it does not, no tail gets anything any more."""
        return self._thread.is_alive()

    def share(self, start: Seam, facts: Mapping[str, TopicFacts]) -> Share:
        """What reads these partitions from there on, of topics of which these facts are known."""
        destroy_left_behind()  # with which the log was looked at before
        return self._reading.share(
            start, facts, self._asked.of([(topic, p) for topic, p, _ in start.items()])
        )

    def own(self) -> Consumer:
        """A consumer for a tail that is behind."""
        return consumer_of(self._client_config, OWN_CONFIG)

    def gone(self, table: str, place: Place, wanted: int) -> OffsetsGone:
        """With where the log begins now, asked beside what the others read."""
        asking = consumer_of(self._client_config, TAIL_CONFIG)
        try:
            return offsets_gone(asking, table, *place, wanted)
        finally:
            asking.close()

    def close(self) -> None:
        """Leaves the broker."""
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._reading.obey()
                self._reading.hand_out(take(self._consumer, CONSUME_RECORDS_MAX, LISTEN_SECONDS))
            self._reading.obey()
        finally:
            self._consumer.close()


class Clients(Protocol):
    """What a share reads with where it reads by itself (`SharedConsumer`)."""

    def own(self) -> Consumer:
        """A consumer for a tail that is behind."""
        ...

    def gone(self, table: str, place: Place, wanted: int) -> OffsetsGone:
        """The error, where the log was cut beyond what is wanted of a partition."""
        ...


class SharedReading:
    """The lanes of a consumer, and what their tails want of them, which the consumer's thread does."""

    def __init__(self, consumer: Consumer, clients: Clients) -> None:
        self.clients = clients
        self._lanes = Lanes(consumer)
        self._orders: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def share(self, start: Seam, facts: Mapping[str, TopicFacts], probes: Asked) -> Share:
        """What reads these partitions from there on."""
        return Share(self, start, {topic: one.topic_id for topic, one in facts.items()}, probes)

    def next_of(self, place: Place) -> int | None:
        """How far the shared reading of the partition is; None where there is none."""
        return self._lanes.next_of(place)

    def join(self, share: Share, positions: Mapping[Place, int]) -> Future[None]:
        """Lets a tail join where it is close."""
        return self._told(lambda: self._lanes.join(share, positions))

    def end(self, share: Share) -> None:
        """Hands it nothing more."""
        self._told(lambda: self._lanes.leave(share))

    def resume(self, share: Share) -> None:
        """Goes on to hand it what comes."""
        self._told(lambda: self._lanes.has_room(share))

    def obey(self) -> None:
        """Does what was told. For the consumer's thread, as `hand_out`."""
        with suppress(Empty):
            while True:
                self._orders.get_nowait()()

    def hand_out(self, messages: list[Message]) -> None:
        """Hands what came to all that read it."""
        self._lanes.hand_out(messages)

    def _told(self, do: Callable[[], _T]) -> Future[_T]:
        done: Future[_T] = Future()

        def obey() -> None:
            try:
                done.set_result(do())
            except Exception as error:
                done.set_exception(error)
                raise  # nobody knows what the consumer reads now: its process begins again

        self._orders.put(obey)
        return done


class Share:
    """The reader of one tail (`thermocline.kafka.tail.Reader`, and `lanes.Member`).

    A partition that it is behind in is read by a consumer of its own. Once that is close to the lane, the
    tail joins: the lane hands it all from some offset on, which waits until its own consumer got there.
    """

    def __init__(
        self, reading: SharedReading, start: Seam, topic_ids: Mapping[str, str], probes: Asked
    ) -> None:
        self.places: Sequence[Place] = [(topic, partition) for topic, partition, _ in start.items()]
        self._topic_ids = topic_ids
        self.probes = probes
        self.is_held = False  # the consumer's thread sets it
        self._reading = reading
        self._changed = threading.Condition()
        self._waiting: list[Part] = []
        self._waiting_bytes = self._waiting_records = 0
        # Those that it is behind in, and where a lane takes over; under the condition.
        self._behind: dict[Place, int | None] = dict.fromkeys(self.places)
        self._own: Consumer | None = None
        self._own_places: set[Place] = set()
        self._heard_of: set[Place] = set()  # by its own consumer: the log has what it wants of these
        starts = {(topic, partition): offset for topic, partition, offset in start.items()}
        self._begun = self._joining = reading.join(self, starts)

    @property
    def is_full(self) -> bool:
        """Whether enough waits for it."""
        return self._waits(1)

    @property
    def is_left(self) -> bool:
        """Whether so much waits for it that it gets no more."""
        return self._waits(LEFT_AT)

    def topic_id(self, place: Place) -> str:
        """Of which topic of its name the partition is meant."""
        return self._topic_ids.get(place[0], "")

    def put(self, part: Part) -> None:
        """Adds what came."""
        with self._changed:
            self._add(part)
            self._changed.notify()

    def has_joined(self, place: Place, at: int) -> None:
        """The lane hands it all from there on."""
        with self._changed:
            self._behind[place] = at

    def falls_behind(self, place: Place) -> None:
        """The lane hands it nothing more; what waits of it is read again, and holds no memory until then."""
        with self._changed:
            self._behind[place] = None
            self._keep([part for part in self._waiting if part.place != place])

    def take(
        self, records_max: int, timeout_seconds: float, positions: Mapping[Place, int], /
    ) -> list[Message]:
        """What was handed over, as soon as there is any, and what its own consumer has; not more at once."""
        if not self._has_begun(timeout_seconds):
            return []
        behind = self._still_behind(positions)
        messages: list[Message] = []
        if behind or self._own is not None:
            messages = self._by_itself(behind, positions, max(records_max // 2, 1), timeout_seconds)
            timeout_seconds = 0
        messages += self._handed(records_max - len(messages), timeout_seconds)
        if self.is_held and not self._waiting:
            self._reading.resume(self)
        return messages

    def gone(self, table: str, place: Place, wanted: int) -> OffsetsGone:
        """As the clients say it."""
        return self._reading.clients.gone(table, place, wanted)

    def close(self) -> None:
        """Nobody takes any more."""
        self._reading.end(self)
        self._leave_own()

    def _waits(self, times: int) -> bool:
        """Whether more waits than may, so many times."""
        many, much = times * WAITING_RECORDS_MAX, times * WAITING_BYTES_MAX
        return self._waiting_records > many or self._waiting_bytes > much

    def _has_begun(self, timeout_seconds: float) -> bool:
        """Whether it has been seen to which lanes it joins at its start; raises what that raised."""
        with suppress(TimeoutError):
            self._begun.result(timeout_seconds)
        return self._begun.done()

    def _still_behind(self, positions: Mapping[Place, int]) -> dict[Place, int | None]:
        with self._changed:
            there = [
                place
                for place, taken_over_at in self._behind.items()
                # safety: shared-tail-gap
                if taken_over_at is not None and positions[place] >= taken_over_at
            ]
            for place in there:
                del self._behind[place]
            return dict(self._behind)

    def _by_itself(
        self,
        behind: Mapping[Place, int | None],
        positions: Mapping[Place, int],
        records_max: int,
        timeout_seconds: float,
    ) -> list[Message]:
        """What its own consumer has of the partitions that it is behind in."""
        done = self._own_places - behind.keys()
        if not behind:
            self._leave_own()
            return []
        if self._own is None:
            self._own = self._reading.clients.own()
        if done:
            self._own.incremental_unassign([TopicPartition(*place) for place in done])
        if new := behind.keys() - self._own_places:
            self._own.incremental_assign([TopicPartition(*place, positions[place]) for place in new])
        self._own_places = set(behind)
        self._ask_to_join(behind, positions)
        messages = take(self._own, records_max, min(timeout_seconds, BEHIND_SECONDS_MAX))
        self._heard_of = (self._heard_of & behind.keys()) | {
            (message.topic(), message.partition())
            for message in messages
            if message.error() is None or message.error().code() == PARTITION_END
        }
        return messages

    def _ask_to_join(self, behind: Mapping[Place, int | None], positions: Mapping[Place, int]) -> None:
        if not self._joining.done():
            return
        self._joining.result()
        near = {}
        for place in self._heard_of & behind.keys():
            at = self._reading.next_of(place)
            if behind[place] is None and (at is None or positions[place] >= at - JOIN_OFFSETS_MAX):
                near[place] = positions[place]
        if near:
            self._joining = self._reading.join(self, near)

    def _leave_own(self) -> None:
        own, self._own, self._own_places, self._heard_of = self._own, None, set(), set()
        if own is not None:
            own.close()

    def _handed(self, records_max: int, timeout_seconds: float) -> list[Message]:
        """What the lanes handed over, but for what lies beyond a gap."""
        taken: list[Message] = []
        with self._changed:
            if not self._waiting and timeout_seconds:
                self._changed.wait(timeout_seconds)
            left = []
            for part in self._waiting:
                room = records_max - len(taken)
                if part.place in self._behind or not room:  # safety: shared-tail-held
                    left.append(part)
                    continue
                taken += part.messages[:room]
                if len(part.messages) > room:
                    left.append(Part.of(part.place, part.messages[room:]))
            self._keep(left)
        return taken

    def _keep(self, parts: Sequence[Part]) -> None:
        self._waiting, self._waiting_bytes, self._waiting_records = [], 0, 0
        for part in parts:
            self._add(part)

    def _add(self, part: Part) -> None:
        self._waiting.append(part)
        self._waiting_bytes += part.size_bytes
        self._waiting_records += len(part.messages)

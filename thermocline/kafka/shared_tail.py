"""One consumer for several tails of a process: many small tables cost one client, not one each.

A thread of its own polls the consumer and hands each tail what came of its partitions; it alone touches the
consumer. A tail that does not take what it got is not handed more: its partitions are paused. Questions for
offsets and facts go through one client, but each tail asks its own: a broker that is down holds up those
alone that have a partition on it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, TypeVar

from confluent_kafka import TopicPartition

from thermocline.kafka.admin import admin_client
from thermocline.kafka.facts import Message
from thermocline.kafka.log import CONSUME_RECORDS_MAX, consumer_of, offsets_gone, take
from thermocline.kafka.tail import END_PROBE_SECONDS, TAIL_CONFIG, Place, Probes, assignment

if TYPE_CHECKING:
    from thermocline.errors import OffsetsGone
    from thermocline.process.clock import Clock
    from thermocline.rules.seam import Seam

__all__ = ["SharedConsumer"]

# For how long the thread listens before it looks for what it was told; a record ends it at once.
LISTEN_SECONDS: Final = 0.05
# Handed to a tail and not taken yet; what comes on top is one answer of the consumer, within its own bound.
WAITING_BYTES_MAX: Final = 8 << 20
# Of small records, what they take as objects counts.
WAITING_RECORDS_MAX: Final = 50_000
# All tails of a process together ask for their ends about this often.
END_PROBES_PER_SECOND: Final = 25
# The thread answers between two polls; a longer silence is a fault of ours.
ORDER_SECONDS_MAX: Final = 60.0

_T = TypeVar("_T")

_kafka_logger = logging.getLogger("thermocline.kafka")
log = logging.getLogger(__name__)


class SharedConsumer:
    """Reads for up to ``tails`` tails; `share` gives the reader of one."""

    def __init__(self, client_config: Mapping[str, Any], tails: int, clock: Clock) -> None:
        self._client_config = client_config
        self._clock = clock
        self._ends_seconds = max(END_PROBE_SECONDS, tails / END_PROBES_PER_SECOND)
        self._admin = admin_client(self, {**client_config, "log_level": 0}, _kafka_logger)
        self._orders: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._shares: dict[Place, Share] = {}
        self._is_over = threading.Event()
        self._consumer = consumer_of(client_config, TAIL_CONFIG)
        self._thread = threading.Thread(target=self._run, name="shared consumer", daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether its thread goes on; where it does not, no tail gets anything any more."""
        return self._thread.is_alive()

    def share(self, start: Seam) -> Share | None:
        """What reads these partitions from there on; None where another tail reads one of them."""
        places = [(topic, partition) for topic, partition, _ in start.items()]
        probes = Probes(self._admin, places, self._clock, self._ends_seconds)
        share = Share(self, places, probes)

        def begin() -> bool:
            if not self._shares.keys().isdisjoint(places):
                return False
            self._consumer.incremental_assign(assignment(start))
            self._shares |= dict.fromkeys(places, share)
            return True

        return share if self._told(begin).result(ORDER_SECONDS_MAX) else None

    def end(self, share: Share) -> None:
        """Reads its partitions no more."""

        def end() -> None:
            places = [place for place in share.places if self._shares.get(place) is share]
            for place in places:
                del self._shares[place]
            parts = [TopicPartition(*place) for place in places]
            self._consumer.resume(parts)  # a pause outlives the assignment  # safety: shared-tail-resumed
            self._consumer.incremental_unassign(parts)

        self._told(end)

    def resume(self, share: Share) -> None:
        """Goes on to read partitions that were paused."""

        def resume() -> None:
            share.is_paused = False
            mine = [place for place in share.places if self._shares.get(place) is share]
            self._consumer.resume([TopicPartition(*place) for place in mine])

        self._told(resume)

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

    def _told(self, do: Callable[[], _T]) -> Future[_T]:
        done: Future[_T] = Future()

        def obey() -> None:
            try:
                done.set_result(do())
            except Exception as error:  # noqa: BLE001  whatever it is, it is raised by the future
                done.set_exception(error)

        self._orders.put(obey)
        return done

    def _run(self) -> None:
        try:
            while not self._is_over.is_set():
                self._obey()
                self._hand_out(take(self._consumer, CONSUME_RECORDS_MAX, LISTEN_SECONDS))
            self._obey()
        finally:
            self._consumer.close()

    def _obey(self) -> None:
        with suppress(Empty):
            while True:
                self._orders.get_nowait()()

    def _hand_out(self, messages: list[Message]) -> None:
        parts: dict[Share, list[Message]] = {}
        for message in messages:
            share = self._shares.get((message.topic(), message.partition()))
            if share is not None:  # or of a tail that ended meanwhile
                parts.setdefault(share, []).append(message)
        for share, part in parts.items():
            if share.put(part) and not share.is_paused:
                share.is_paused = True
                self._consumer.pause([TopicPartition(*place) for place in share.places])


class Share:
    """The reader of one tail (`thermocline.kafka.tail.Reader`)."""

    def __init__(self, consumer: SharedConsumer, places: list[Place], probes: Probes) -> None:
        self.places = places
        self.probes = probes
        self.is_paused = False  # the consumer's thread sets it
        self._consumer = consumer
        self._waiting: list[Message] = []
        self._waiting_bytes = 0
        self._changed = threading.Condition()

    def put(self, messages: list[Message]) -> bool:
        """Adds what came; whether more waits now than may."""
        more_bytes = sum(len(message.value() or b"") + len(message.key() or b"") for message in messages)
        with self._changed:
            self._waiting += messages
            self._waiting_bytes += more_bytes
            self._changed.notify()
            return self._waiting_bytes > WAITING_BYTES_MAX or len(self._waiting) > WAITING_RECORDS_MAX

    def take(self, records_max: int, timeout_seconds: float) -> list[Message]:
        """What was handed over, as soon as there is any; not more at once than is wanted."""
        with self._changed:
            if not self._waiting:
                self._changed.wait(timeout_seconds)
            taken, self._waiting = self._waiting[:records_max], self._waiting[records_max:]
            if not self._waiting:
                self._waiting_bytes = 0
        if self.is_paused and not self._waiting:
            self._consumer.resume(self)
        return taken

    def gone(self, table: str, place: Place, wanted: int) -> OffsetsGone:
        """As the consumer says it."""
        return self._consumer.gone(table, place, wanted)

    def close(self) -> None:
        """Nobody takes any more."""
        self._consumer.end(self)

"""A producer that never rests, and what each view may answer meanwhile: by a replay of its records."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from tests.behaviour.topic import APP, Topic
from tests.views.stacked.viewed import Written, history
from thermocline.dev.oracle import RowKey
from thermocline.settings import KafkaSettings

USERS = 30
ATTRIBUTES = ("plan", "city", "mood")
PAUSE_SECONDS = 0.05
BURST = 4
DELETED_PART = 0.3


def users() -> list[str]:
    return [f"u{number}" for number in range(USERS)]


def partition_of(user: str, partitions: int) -> int:
    return int(user.removeprefix("u")) % partitions


class Traffic:
    """Inserts, updates, deletes and inserts again, each key in its own partition, some 80 records a second.

    No value is written twice, so that an answer shows from which record it is. Every partition from
    ``partitions`` on stays idle.
    """

    def __init__(self, kafka: KafkaSettings, topic: str, partitions: int, seed: int = 1) -> None:
        self._topic = Topic(kafka, topic)
        self._partitions = partitions
        self._random = random.Random(seed)
        self._count = 0
        self._bursting = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="traffic", daemon=True)
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        self.burst()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    @property
    def ends(self) -> dict[int, int]:
        """The next offset of each partition after what is acknowledged by now."""
        return {partition: offset for _, partition, offset in self._topic.oracle.end.items()}

    def records(self) -> list[Written]:
        """All that anybody can have read by now: what is not acknowledged yet is waited for."""
        with self._bursting:
            return history(self._topic.oracle)

    def burst(self) -> None:
        """A few records; all of them are acknowledged when it returns."""
        with self._bursting:
            for _ in range(BURST):
                self._count += 1
                key = self._key()
                value = None if self._random.random() < DELETED_PART else f"{self._count}"
                self._topic.send(key, value, partition_of(key[1], self._partitions))
            self._topic.flush()

    def _key(self) -> RowKey:
        return (APP, self._random.choice(users()), self._random.choice(ATTRIBUTES))

    def _run(self) -> None:
        try:
            while not self._stop.wait(PAUSE_SECONDS):
                self.burst()
        except Exception as error:  # noqa: BLE001  it is raised at the end
            self.error = error


def by_partition(records: Sequence[Written]) -> dict[int, list[Written]]:
    """The records of each partition that has any."""
    found: dict[int, list[Written]] = {}
    for record in records:
        found.setdefault(record.partition, []).append(record)
    return found

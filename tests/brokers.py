"""Brokers that tests take and give back, so that not each module waits for one to start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from thermocline.dev.broker import LocalKafka

_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.05


class Brokers:
    """The running brokers of one test process. Tests that change or stop a broker make one of their own."""

    def __init__(self, new_folder: Callable[[], Path]) -> None:
        self._new_folder = new_folder
        self._running = ExitStack()
        self._free: list[LocalKafka] = []

    @contextmanager
    def lent(self) -> Iterator[LocalKafka]:
        """A broker without topics, which nobody else has; one that can't be emptied isn't lent again."""
        kafka = (
            self._free.pop() if self._free else self._running.enter_context(LocalKafka(self._new_folder()))
        )
        yield kafka
        _delete_topics(kafka)
        self._free.append(kafka)

    def stop(self) -> None:
        """Ends them all."""
        self._running.close()


def _delete_topics(kafka: LocalKafka) -> None:
    for name in _topics(kafka):
        kafka.delete_topic(name)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while left := _topics(kafka):
        assert time.monotonic() < deadline, left
        time.sleep(_POLL_SECONDS)


def _topics(kafka: LocalKafka) -> list[str]:
    """All but those that Kafka keeps for itself."""
    return [name for name in kafka.topics() if not name.startswith("__")]

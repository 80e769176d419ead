"""Brokers that tests take and give back, so that not each module waits for one to start."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from embedded.broker import LocalKafka

_PATIENCE_SECONDS = 60.0
_POLL_SECONDS = 0.05


class Brokers:
    """The running brokers of one test process. Tests that change or stop a broker make one of their own."""

    def __init__(self, new_folder: Callable[[], Path]) -> None:
        self._new_folder = new_folder
        self._free: list[LocalKafka] = []

    @contextmanager
    def lent(self) -> Iterator[LocalKafka]:
        """A broker without topics, which nobody else has."""
        if self._free:
            kafka = self._free.pop()
        else:
            kafka = LocalKafka(self._new_folder())
            kafka.start()
            kafka.wait()
        try:
            yield kafka
            _delete_topics(kafka)
        except BaseException:
            kafka.stop()
            raise
        self._free.append(kafka)

    def stop(self) -> None:
        """Ends those that were given back."""
        for kafka in self._free:
            kafka.stop()


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

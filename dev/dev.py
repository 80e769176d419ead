"""A broker with topics, for whoever tries Thermocline without a Kafka: it runs as long as a block of code."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException

from thermocline.dev.broker import LocalKafka
from thermocline.dev.interrupts import undisturbed
from thermocline.errors import BadParameter, ConfigInvalid, KafkaUnreachable
from thermocline.jvm.jars import Report
from thermocline.kafka.topics import CONFIG
from thermocline.process.clock import Clock

PARTITIONS: Final = 2
"""Of a topic for which nobody says how many: the fewest that show what differs between partitions."""
WATCH_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that was asked for, as it is now."""

    name: str
    partitions: int
    is_new: bool


class DevBroker:
    """A broker that answers, with the topics that were asked for."""

    def __init__(self, kafka: LocalKafka, topics: tuple[Topic, ...]) -> None:
        self._kafka = kafka
        self.topics = topics
        self.bootstrap_servers = kafka.bootstrap_servers

    def watch(self, clock: Clock) -> None:
        """Returns only by an exception, such as a KeyboardInterrupt.

        Raises:
            KafkaUnreachable: the broker ended by itself; with the end of its log.
        """
        while True:
            self._kafka.check()
            clock.sleep(WATCH_SECONDS)


@contextmanager
def dev_broker(
    port: int, data: Path | None, topics: Mapping[str, int | None], report: Report
) -> Iterator[DevBroker]:
    """A broker on this port for as long as the block lasts, with these topics and their partitions.

    Its log stays in the folder ``data``; without one, it goes with the broker, unless that fails. A topic
    that is there already is left as it is.

    Raises:
        DependencyMissing: no Java that fits, or jars that could not be fetched.
        PortTaken: another process listens there.
        KafkaUnreachable: the broker did not start.
        BadParameter: a broker runs in the folder ``data`` already.
        ConfigInvalid: it does not create one of the topics.
    """
    with _folder(data) as folder, _alone_in(folder):
        kafka = LocalKafka(folder, port=port, report=report)
        try:
            kafka.start()
            kafka.wait()
            yield DevBroker(kafka, _create(kafka, topics))
        finally:
            with undisturbed():
                kafka.stop()


@contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    if data is not None:
        yield data
        return
    folder = Path(tempfile.mkdtemp(prefix="thermocline-dev-"))
    is_kept = False
    try:
        yield folder
    except KafkaUnreachable:
        is_kept = True  # the error names the broker's log in it
        raise
    finally:
        if not is_kept:
            with undisturbed():
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Kafka's own lock comes too late: a second broker writes into the log of the first before it looks."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("wb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            problem = f"a broker runs in {folder} already: use that one, stop it, or choose another folder"
            raise BadParameter(name="--data", problem=problem) from error
        yield


def _create(kafka: LocalKafka, topics: Mapping[str, int | None]) -> tuple[Topic, ...]:
    there = kafka.topics()
    made = []
    for name, partitions in topics.items():
        is_new = name not in there
        count = (partitions or PARTITIONS) if is_new else there[name]
        if is_new:
            try:
                kafka.create_topic(name, count, CONFIG)
            except KafkaException as error:
                detail = str(error.args[0].str())
                raise ConfigInvalid(of=f"of the topic {name}", problems=(detail,)) from error
        made.append(Topic(name, count, is_new))
    return tuple(made)

"""The source of the tailer's records: questions to the log, and a tail of it; Kafka in the product."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from thermocline.kafka.log import Log
from thermocline.kafka.tail import Tail

if TYPE_CHECKING:
    from collections.abc import Mapping

    from thermocline.kafka.facts import TopicFacts
    from thermocline.kafka.shared_tail import SharedConsumer
    from thermocline.process.clock import Clock
    from thermocline.rules.seam import Seam
    from thermocline.settings import KafkaSettings


class LogSource(Protocol):
    """The log of a table."""

    def log(self) -> Log:
        """What answers questions about it, on a new connection."""
        ...

    def tail(self, start: Seam, facts: Mapping[str, TopicFacts]) -> Tail:
        """Follows it from there on; to be closed. ``facts`` are those of the topics that are meant."""
        ...


class KafkaSource:
    """The log of a table in a Kafka cluster."""

    def __init__(
        self, settings: KafkaSettings, table: str, clock: Clock, shared: SharedConsumer | None = None
    ) -> None:
        """``shared`` reads for other tables of this process, too."""
        self._shared = shared
        self._settings = settings
        self._table = table
        self._clock = clock

    def log(self) -> Log:
        """A new client of the cluster."""
        return Log(self._settings)

    def tail(self, start: Seam, facts: Mapping[str, TopicFacts]) -> Tail:
        """A new consumer that begins there, or a share of the one that reads for several tables."""
        share = None if self._shared is None else self._shared.share(start, facts)
        return Tail(self._settings.client_config(), start, self._table, self._clock, share)

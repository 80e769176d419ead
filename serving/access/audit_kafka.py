"""The audit log in a Kafka topic: a record for each line, keyed by the client's name."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from thermocline.kafka.append import TopicAppender

if TYPE_CHECKING:
    from thermocline.process.clock import Clock
    from thermocline.serving.access.audit_sink import Line
    from thermocline.settings import KafkaSettings

__all__ = ["KafkaSink"]

# Brokers acknowledge within milliseconds. If they take longer, that is said, and they are waited for again.
ACKNOWLEDGED_SECONDS_MAX: Final = 2.0


class KafkaSink:
    """Appends to a topic of the configured cluster."""

    def __init__(self, kafka: KafkaSettings, topic: str, clock: Clock) -> None:
        """Raises `ConfigInvalid` where no client can be made of the settings."""
        self._appender = TopicAppender(kafka.client_config(), topic, clock)

    def write(self, lines: Sequence[Line]) -> None:
        """See `Sink`. What is written, all replicas have."""
        if self._appender.is_idle:
            records = [(one.client.encode() if one.client else None, one.text.rstrip()) for one in lines]
            self._appender.append(records, ACKNOWLEDGED_SECONDS_MAX)
        else:
            self._appender.resume(ACKNOWLEDGED_SECONDS_MAX)

    def close(self) -> None:
        """See `Sink`."""
        self._appender.close()

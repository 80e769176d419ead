"""The rights of the user of [kafka.client] on topics, as the brokers say them. Changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaException, TopicCollection

from thermocline.errors import ConfigInvalid, KafkaUnreachable
from thermocline.kafka.admin import admin_client
from thermocline.kafka.client_settings import reworded
from thermocline.kafka.log import REQUEST_TIMEOUT_SECONDS, is_forbidden, is_topic_missing

if TYPE_CHECKING:
    from thermocline.settings import KafkaSettings

__all__ = ["READING", "WRITING", "TopicRights"]

READING: Final = ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")
"""What reading a table's topic takes."""
WRITING: Final = ("WRITE", "DESCRIBE")


class TopicRights:
    """Asks brokers what the user may do. Raises `KafkaUnreachable`, and `ConfigInvalid` as `Log` does."""

    def __init__(self, kafka: KafkaSettings) -> None:
        self._bootstrap_servers = kafka.bootstrap_servers
        try:
            self._admin = admin_client(self, {**kafka.client_config(), "log_level": 0})
        except KafkaException as error:
            raise ConfigInvalid(of="[kafka.client]", problems=(reworded(error.args[0].str()),)) from error

    def of(self, topics: Sequence[str]) -> dict[str, frozenset[str] | None]:
        """By topic: the operations that are allowed, by Kafka's names; None where a broker doesn't say.

        A topic that does not exist is left out.
        """
        futures = self._admin.describe_topics(
            TopicCollection(list(topics)),
            include_authorized_operations=True,
            request_timeout=REQUEST_TIMEOUT_SECONDS,
        )
        found: dict[str, frozenset[str] | None] = {}
        for topic in topics:
            try:
                described = futures[topic].result(timeout=REQUEST_TIMEOUT_SECONDS + 1)
            except KafkaException as error:
                if is_forbidden(error.args[0]):
                    found[topic] = frozenset()
                elif not is_topic_missing(error):
                    raise self._unreachable(error.args[0].str()) from error
            except TimeoutError as error:
                raise self._unreachable(f"no answer within {REQUEST_TIMEOUT_SECONDS:.0f} s") from error
            else:
                allowed = described.authorized_operations
                found[topic] = None if allowed is None else frozenset(one.name for one in allowed)
        return found

    def _unreachable(self, detail: str) -> KafkaUnreachable:
        return KafkaUnreachable(bootstrap_servers=self._bootstrap_servers, detail=detail)

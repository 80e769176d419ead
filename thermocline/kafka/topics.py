"""Create topics: what would be set, and setting it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic  # type: ignore[attr-defined]  # public, though its __all__ is missing

from thermocline.errors import ConfigInvalid, KafkaUnreachable
from thermocline.kafka.admin import admin_client
from thermocline.kafka.client_settings import reworded

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from confluent_kafka.admin import ClusterMetadata  # type: ignore[attr-defined]

    from thermocline.process.clock import Clock
    from thermocline.settings import KafkaSettings

PARTITIONS: Final = 6
"""Where nobody says how many. Some to spare cost little; with more of them later, keys change partitions."""
REPLICAS_MAX: Final = 3
"""Where nobody says how many, and there are as many brokers: one can fail while another is maintained."""
CONFIG: Final[Mapping[str, str]] = {
    # The table keeps the newest row of each key; the log has to outlast whatever stops ingest or a server.
    "cleanup.policy": "delete",
    "retention.ms": str(7 * 24 * 60 * 60 * 1000),
    # With the broker's clock a live view in Trino ends by time alone; see docs/operate-views.md.
    "message.timestamp.type": "LogAppendTime",
}
_REQUEST_SECONDS: Final = 10.0
# A cluster takes a moment for many partitions.
_CREATE_SECONDS: Final = 30.0
_KNOWN_SECONDS_MAX: Final = 5.0
_KNOWN_POLL_SECONDS: Final = 0.05
# What says that nobody answered; all else is a broker's refusal.
_UNANSWERED: Final = (
    KafkaError._TRANSPORT,  # noqa: SLF001  librdkafka's local errors have no other name
    KafkaError._TIMED_OUT,  # noqa: SLF001
    KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
    KafkaError.REQUEST_TIMED_OUT,
)


@dataclass(frozen=True, slots=True)
class PlannedTopic:
    """A topic as it would be created; one that exists has its own partitions and replicas, and no config."""

    name: str
    partitions: int
    replicas: int
    config: Mapping[str, str]
    exists: bool = False


class TopicAdmin:
    """Plans and creates topics. Raises `KafkaUnreachable` when no broker answers in time."""

    def __init__(self, kafka: KafkaSettings, clock: Clock) -> None:
        self._clock = clock
        self._bootstrap_servers = kafka.bootstrap_servers
        try:
            self._admin = admin_client(self, {**kafka.client_config(), "log_level": 0})
        except KafkaException as error:  # librdkafka refuses a name or a value
            raise ConfigInvalid(of="[kafka.client]", problems=(reworded(error.args[0].str()),)) from error

    def partitions(self) -> dict[str, int]:
        """The topics of the cluster that are not Kafka's own, with their numbers of partitions."""
        topics = self._cluster().topics
        return {name: len(topics[name].partitions) for name in sorted(topics) if not name.startswith("__")}

    def plan(
        self, names: Sequence[str], partitions: int | None, replicas: int | None, config: Mapping[str, str]
    ) -> tuple[PlannedTopic, ...]:
        """What would be created, and what is there. ``config`` goes over `CONFIG`."""
        cluster = self._cluster()
        planned = []
        for name in names:
            if name in cluster.topics:
                there = list(cluster.topics[name].partitions.values())
                planned.append(PlannedTopic(name, len(there), _replicas_of(there), {}, exists=True))
            else:
                count = replicas or min(REPLICAS_MAX, len(cluster.brokers))
                planned.append(PlannedTopic(name, partitions or PARTITIONS, count, {**CONFIG, **config}))
        return tuple(planned)

    def create(self, topics: Sequence[PlannedTopic], only_check: bool = False) -> None:
        """Create those that don't exist; with ``only_check``, the brokers say whether they would.

        Raises `ConfigInvalid` for the first topic that they refuse; those before it are there.
        """
        new = [topic for topic in topics if not topic.exists]
        for topic in new:
            self._create(topic, only_check)
        if not only_check:
            self._wait_until_known({topic.name for topic in new})

    def _cluster(self) -> ClusterMetadata:
        try:
            return self._admin.list_topics(timeout=_REQUEST_SECONDS)
        except KafkaException as error:
            raise self._unreachable(error) from error

    def _wait_until_known(self, names: AbstractSet[str]) -> None:
        """Until the brokers know what the controller has created, which takes them a moment."""
        deadline = self._clock.monotonic() + _KNOWN_SECONDS_MAX
        while names - self._cluster().topics.keys() and self._clock.monotonic() < deadline:
            self._clock.sleep(_KNOWN_POLL_SECONDS)

    def _create(self, topic: PlannedTopic, only_check: bool) -> None:
        new = NewTopic(
            topic.name,
            num_partitions=topic.partitions,
            replication_factor=topic.replicas,
            config=dict(topic.config),
        )
        asked = self._admin.create_topics(
            [new],
            operation_timeout=_CREATE_SECONDS,
            request_timeout=_CREATE_SECONDS,
            validate_only=only_check,
        )
        try:
            asked[topic.name].result(_CREATE_SECONDS + 1)
        except KafkaException as error:
            refusal: KafkaError = error.args[0]
            if refusal.code() in _UNANSWERED:
                raise self._unreachable(error) from error
            raise ConfigInvalid(of=f"of the topic {topic.name}", problems=(refusal.str(),)) from error
        except TimeoutError as error:
            raise self._unreachable(error) from error

    def _unreachable(self, error: KafkaException | TimeoutError) -> KafkaUnreachable:
        detail = (
            error.args[0].str()
            if isinstance(error, KafkaException)
            else f"no answer within {_CREATE_SECONDS:g} s"
        )
        return KafkaUnreachable(bootstrap_servers=self._bootstrap_servers, detail=detail)


def _replicas_of(partitions: Sequence[object]) -> int:
    return min((len(one.replicas) for one in partitions), default=0)  # type: ignore[attr-defined]

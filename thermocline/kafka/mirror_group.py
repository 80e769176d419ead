"""A consumer group that is told where a table's seam is, for tools that show the lag of groups.

It is never joined and never read back: what it says decides nothing.
"""

from __future__ import annotations

import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition

from thermocline.errors import ConfigInvalid, KafkaUnreachable
from thermocline.kafka.admin import admin_client
from thermocline.kafka.client_settings import reworded
from thermocline.kafka.log import REQUEST_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from thermocline.rules.seam import Seam
    from thermocline.settings import KafkaSettings

__all__ = ["GroupHasMembers", "GroupRefused", "MirrorGroup"]

# So brokers refuse offsets from outside for a group that has members: one that joined since it was looked at.
_NOT_EMPTY: Final = (
    KafkaError.UNKNOWN_MEMBER_ID,
    KafkaError.ILLEGAL_GENERATION,
    KafkaError.REBALANCE_IN_PROGRESS,
)

_NO_COORDINATOR: Final = (
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
)
COORDINATOR_SECONDS: Final = 10.0
"""So long a cluster that has no coordinators of groups yet is waited for: it makes them when first asked."""
_PAUSE_SECONDS: Final = 0.2


class GroupHasMembers(Exception):
    """Others consume in that group: its offsets are theirs, and stay as they are."""

    def __init__(self, group: str) -> None:
        super().__init__(f'the group "{group}" has members of its own: give ingest.mirror_group another name')


class GroupRefused(Exception):
    """A broker did not take the offsets of a group."""


class MirrorGroup:
    """Sets the offsets of one group. Raises `ConfigInvalid` as `Log` does."""

    def __init__(self, kafka: KafkaSettings, group: str) -> None:
        self._bootstrap_servers, self._group = kafka.bootstrap_servers, group
        try:
            self._admin = admin_client(self, {**kafka.client_config(), "log_level": 0})
        except KafkaException as error:
            raise ConfigInvalid(of="[kafka.client]", problems=(reworded(error.args[0].str()),)) from error

    def write(self, seam: Seam) -> None:
        """Sets the offset of each partition that the seam has.

        Raises:
            GroupHasMembers: somebody consumes in the group; nothing was changed.
            GroupRefused: a broker did not take it all, such as for want of rights.
            KafkaUnreachable: no broker answered in time.
        """
        places = [TopicPartition(topic, partition, offset) for topic, partition, offset in seam.items()]
        if self._has_members():  # asked for an empty seam, too: a new cluster then makes its coordinators
            raise GroupHasMembers(self._group)
        if not places:
            return
        wanted = ConsumerGroupTopicPartitions(self._group, places)
        futures = self._admin.alter_consumer_group_offsets([wanted], request_timeout=REQUEST_TIMEOUT_SECONDS)
        for place in self._answer(futures[self._group]).topic_partitions:
            if place.error is not None:  # safety: mirror-refusals-counted
                raise self._refused(place.error, f"{place.topic}/{place.partition}: ")

    def _has_members(self) -> bool:
        deadline = time.monotonic() + COORDINATOR_SECONDS
        while True:
            groups = [self._group]
            futures = self._admin.describe_consumer_groups(groups, request_timeout=REQUEST_TIMEOUT_SECONDS)
            try:
                return bool(self._answer(futures[self._group]).members)
            except GroupRefused as error:
                code = error.__cause__.args[0].code() if isinstance(error.__cause__, KafkaException) else None
                if code == KafkaError.GROUP_ID_NOT_FOUND:
                    return False  # it is made with its first offsets
                if code not in _NO_COORDINATOR or time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_SECONDS)

    def _answer(self, future: Future[Any]) -> Any:
        try:
            return future.result(timeout=REQUEST_TIMEOUT_SECONDS + 1)
        except KafkaException as error:
            if error.args[0].code() < 0:  # the client's own errors, when no broker answered
                raise self._unreachable(error.args[0].str()) from error
            raise self._refused(error.args[0]) from error
        except TimeoutError as error:
            raise self._unreachable(f"no answer within {REQUEST_TIMEOUT_SECONDS:.0f} s") from error

    def _refused(self, error: KafkaError, of: str = "") -> GroupHasMembers | GroupRefused:
        if error.code() in _NOT_EMPTY:
            return GroupHasMembers(self._group)
        return GroupRefused(
            f'the offsets of the group "{self._group}" were refused: {of}{error.name()}, {error.str()}'
        )

    def _unreachable(self, detail: str) -> KafkaUnreachable:
        return KafkaUnreachable(bootstrap_servers=self._bootstrap_servers, detail=detail)

"""A test's own producer: single records to chosen partitions, remembered by an oracle once acknowledged."""

from __future__ import annotations

import json

from confluent_kafka import Producer

from thermocline.dev.oracle import Oracle, RowKey
from thermocline.settings import KafkaSettings

APP = 7
ANY_PARTITION = -1  # the partitioner chooses
UPDATED_AT = "2026-03-01T12:00:00.123Z"


def key_bytes(row: RowKey) -> bytes:
    return json.dumps(dict(zip(("app_id", "user_id", "key"), row, strict=True))).encode()


def value_bytes(value: str | None) -> bytes | None:
    if value is None:
        return None
    return json.dumps({"value": value, "updated_at": UPDATED_AT}).encode()


class Topic:
    def __init__(self, kafka: KafkaSettings, name: str) -> None:
        self.name = name
        self.oracle = Oracle()
        self._producer = Producer(
            {**kafka.client_config(), "enable.idempotence": True, "linger.ms": 0, "log_level": 0}
        )

    def send(self, row: RowKey, value: str | None, partition: int | None = None) -> None:
        """One good record; None is a tombstone."""
        self._producer.produce(
            self.name,
            value_bytes(value),
            key_bytes(row),
            partition=ANY_PARTITION if partition is None else partition,
            on_delivery=self.oracle.on_delivery,
        )

    def send_raw(
        self,
        key: bytes | None,
        value: bytes | None,
        partition: int = 0,
        headers: list[tuple[str, str | bytes | None]] | None = None,
    ) -> None:
        """Any bytes; the oracle doesn't hear of them."""
        self._producer.produce(self.name, value, key, partition=partition, headers=headers)

    def flush(self) -> str:
        """Wait until the broker has all of it; the ``Thermocline-Read-After`` that asks for it."""
        assert self._producer.flush(30) == 0
        assert not self.oracle.refused
        return ",".join(f"{topic}/{p}@{offset - 1}" for topic, p, offset in self.oracle.end.items())

"""Writes single records, good and bad, each acknowledged before the next."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from thermocline.dev.oracle import Oracle, RowKey
from thermocline.dev.workload import FLUSH_SECONDS_MAX, PRODUCER_CONFIG
from thermocline.errors import KafkaUnreachable
from thermocline.process.clock import Clock


@dataclass(frozen=True, slots=True)
class Written:
    """Where a record is in the log, and when the broker had acknowledged it (monotonic seconds)."""

    place: tuple[str, int]
    offset: int
    acknowledged_at: float


class Writer:
    """A producer of its own, for one thread; it puts a key into the same partition as the workload's does."""

    def __init__(self, client_config: Mapping[str, Any], topic: str, oracle: Oracle, clock: Clock) -> None:
        self._bootstrap_servers = str(client_config["bootstrap.servers"])
        self._producer = Producer({**PRODUCER_CONFIG, **client_config, "linger.ms": 0})
        self._topic = topic
        self._oracle = oracle
        self._clock = clock

    def write(self, row: RowKey, value: str | None) -> Written:
        """Sets a row's value, or deletes the row; the oracle hears of it.

        Raises:
            KafkaUnreachable: the broker did not acknowledge it; then the oracle is no longer exact.
        """
        message, written = self._send(key_bytes(row), self._value(value))
        self._oracle.on_delivery(None, message)
        return written

    def write_raw(self, key: bytes | None, value: bytes | None) -> Written:
        """Writes any bytes; the oracle does not hear of them. Raises as ``write``."""
        return self._send(key, value)[1]

    def _send(self, key: bytes | None, value: bytes | None) -> tuple[Message, Written]:
        delivered: list[tuple[KafkaError | None, Message, float]] = []
        self._producer.produce(
            self._topic,
            value,
            key,
            on_delivery=lambda error, message: delivered.append((error, message, self._clock.monotonic())),
        )
        self._producer.flush(FLUSH_SECONDS_MAX)
        error = delivered[0][0] if delivered else None
        if error is not None or not delivered:
            detail = error.str() if error else f"no acknowledgement within {FLUSH_SECONDS_MAX:.0f} s"
            raise KafkaUnreachable(bootstrap_servers=self._bootstrap_servers, detail=detail)
        _, message, acknowledged_at = delivered[0]
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        return message, Written((self._topic, partition), offset, acknowledged_at)

    def _value(self, value: str | None) -> bytes | None:
        if value is None:
            return None
        updated_at = datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(
            timespec="milliseconds"
        )
        return json.dumps({"value": value, "updated_at": updated_at}).encode()


def garbage_about(row: RowKey) -> Sequence[tuple[bytes | None, bytes | None]]:
    """Key and value of records that no row can be made of; most carry the key of the row."""
    key = key_bytes(row)
    return (
        (b"\xff\xfe\x00\x01", b"\x80\x81"),  # no text
        (key, b'{"value":"brok'),
        (key, b'{"value":"a","updated_at":null}\n{"value":"b"}'),
        (key, b'{"value":1}'),
        (key, b'{"value":"x","updated_at":"2026-01-01T00:00:00"}'),  # a time without a zone
        (b'{"app_id":7,"key":"plan"}', b'{"value":"x"}'),
    )


def key_bytes(row: RowKey) -> bytes:
    """The record key of a row; always the same bytes, so that its records stay in one partition."""
    return json.dumps(dict(zip(("app_id", "user_id", "key"), row, strict=True))).encode()

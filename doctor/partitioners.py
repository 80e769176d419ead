"""Partitioners of Kafka's clients, to tell which of them put a key where it is."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from thermocline.doctor.sample import Place

__all__ = ["murmur2", "partitioner_of"]

_MULTIPLIER: Final = 0x5BD1E995
_SEED: Final = 0x9747B28C
_WORD: Final = 0xFFFFFFFF


def partitioner_of(raw: bytes | None, place: Place, partitions: Mapping[str, int]) -> str:
    """Whose default put a key there; empty where it is nobody's, or where both would have."""
    count = partitions.get(place.topic, 0)
    if raw is None or count < 2:
        return ""
    is_java = (murmur2(raw) & 0x7FFFFFFF) % count == place.partition
    is_librdkafka = zlib.crc32(raw) % count == place.partition
    if is_java == is_librdkafka:
        return ""
    return "as Java's clients choose" if is_java else "as librdkafka chooses by default"


def murmur2(data: bytes) -> int:
    """The hash by which Kafka's Java client chooses a partition. Source: Kafka's ``Utils.murmur2``."""
    length = len(data)
    found = (_SEED ^ length) & _WORD
    whole = length - length % 4
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MULTIPLIER & _WORD
        word = (word ^ word >> 24) * _MULTIPLIER & _WORD
        found = found * _MULTIPLIER & _WORD ^ word
    if whole < length:
        found = (found ^ int.from_bytes(data[whole:], "little")) * _MULTIPLIER & _WORD
    found = (found ^ found >> 13) * _MULTIPLIER & _WORD
    return found ^ found >> 15

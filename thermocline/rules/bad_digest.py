"""A digest of bad records by their places, which tells whether two readers of a log found the same ones bad.

Whether a record is bad may change while it stays in the log: its schema is deleted from the registry, or a
limit is lowered. So a snapshot carries the digest of all that ingest found bad up to its seam.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

__all__ = ["digest_of", "merged"]

_BYTES: Final = 8
_MODULUS: Final = 1 << (8 * _BYTES)


def digest_of(topic: str, partition: int, offsets: Iterable[int]) -> int:
    """The digest of records of one partition; 0 of none. In [0, 2**64)."""
    return merged(*(_of_place(f"{topic}/{partition}@{offset}") for offset in offsets))


def merged(*digests: int, without: int = 0) -> int:
    """The digest of all records together that have these digests, less those of ``without``."""
    return (sum(digests) - without) % _MODULUS


def _of_place(place: str) -> int:
    return int.from_bytes(blake2b(place.encode(), digest_size=_BYTES).digest(), "big")

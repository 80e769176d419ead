"""The record that wins among those of one key, said in the plainest way: an oracle for what folds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar


class Hit(Protocol):
    """Where one record of a key was found."""

    @property
    def partition_time_ms(self) -> int:
        """The greatest time among the records of the partition so far."""
        ...

    @property
    def topic(self) -> str:
        """The topic."""
        ...

    @property
    def partition(self) -> int:
        """The partition."""
        ...

    @property
    def offset(self) -> int:
        """The offset in the partition."""
        ...


H = TypeVar("H", bound=Hit)


def newest(hits: Iterable[H]) -> H:
    """The winner among the records of one key; there must be at least one."""
    last: dict[tuple[str, int], H] = {}
    for hit in hits:
        place = (hit.topic, hit.partition)
        if place not in last or hit.offset > last[place].offset:
            last[place] = hit
    return max(last.values(), key=lambda hit: (hit.partition_time_ms, hit.topic, hit.partition))

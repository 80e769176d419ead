"""A cache that keeps what was used last, up to a total weight."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Bounded(Generic[K, V]):
    """What was used last, up to ``weight_max`` in the caller's unit. Several threads may use it at once."""

    def __init__(self, weight_max: int) -> None:
        self._weight_max = weight_max
        self._weight = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: K) -> V | None:
        """The value kept under the key, which is now the one used last."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, weight: int) -> V:
        """Keeps the value, and lets go of what was used longest ago; the value itself."""
        with self._lock:
            _, replaced = self._entries.pop(key, (None, 0))
            self._entries[key] = (value, weight)
            self._weight += weight - replaced
            while self._weight > self._weight_max:
                self._weight -= self._entries.popitem(last=False)[1][1]
        return value

    def keep_only(self, keys: AbstractSet[K]) -> None:
        """Lets go of all but what is kept under these keys."""
        with self._lock:
            for key in self._entries.keys() - keys:
                self._weight -= self._entries.pop(key)[1]

    def values(self) -> list[V]:
        """All that is kept, that which was used last at the end."""
        with self._lock:
            return [value for value, _ in self._entries.values()]

    def __len__(self) -> int:
        return len(self._entries)

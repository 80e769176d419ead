"""How long things took: percentiles over all of them, and over one window after the other."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Summary:
    """Of some timings; ``windows_ms`` has the 99th percentile of each window that had any."""

    count: int = 0
    p50_ms: float = math.nan
    p99_ms: float = math.nan
    max_ms: float = math.nan
    windows_ms: tuple[float, ...] = ()


class Timings:
    """Collects seconds. One thread adds; another one closes windows and asks."""

    def __init__(self) -> None:
        self._seconds: list[float] = []
        self._window_start = 0
        self._windows_ms: list[float] = []

    @classmethod
    def of(cls, parts: Iterable[Timings]) -> Self:
        """All that others have so far."""
        together = cls()
        for part in parts:
            together._seconds.extend(part._seconds)  # noqa: SLF001  of our own kind
        return together

    def __len__(self) -> int:
        return len(self._seconds)

    def add(self, seconds: float) -> None:
        """One more."""
        self._seconds.append(seconds)

    def close_window(self) -> None:
        """Ends a window and begins the next one."""
        window = self._seconds[self._window_start :]
        self._window_start += len(window)
        if window:
            self._windows_ms.append(percentile(sorted(window), 0.99) * 1000)

    def summary(self) -> Summary:
        """Of all so far."""
        if not self._seconds:
            return Summary()
        ordered = sorted(self._seconds)
        return Summary(
            len(ordered),
            percentile(ordered, 0.5) * 1000,
            percentile(ordered, 0.99) * 1000,
            ordered[-1] * 1000,
            tuple(self._windows_ms),
        )


def percentile(ordered: Sequence[float], share: float) -> float:
    """The least value that at least this share of them does not exceed (nearest rank); they are sorted."""
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)]

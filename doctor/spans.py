"""Times and sizes as people read them."""

from __future__ import annotations

from rich.filesize import decimal

__all__ = ["shown_bytes", "shown_ms"]

_UNITS = ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "second"))


def shown_ms(milliseconds: float) -> str:
    """``7 days``, ``1 minute``, ``90 seconds``: the largest unit that it has two of, or exactly one."""
    for size, unit in _UNITS:
        if milliseconds == size:
            return f"1 {unit}"
        if milliseconds >= 2 * size:
            count = milliseconds / size
            return f"{count:,.0f} {unit}s" if count >= 100 else f"{count:.3g} {unit}s"
    return f"{milliseconds:g} ms"


def shown_bytes(count: float) -> str:
    """``1.2 MB``."""
    return decimal(int(count))

"""Numbers and times in the words of people."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

__all__ = [
    "NOT_KNOWN",
    "ago",
    "bytes_text",
    "count",
    "duration",
    "iso_moment",
    "moment",
    "plural",
    "share",
    "until",
]

NOT_KNOWN: Final = "not known"
_STEPS: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))
_BYTES: Final = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))


def duration(seconds: float | None) -> str:
    """Such as ``40 ms``, ``1.2 s``, ``12 s``, ``5 min``, ``3 h 20 min``."""
    if seconds is None:
        return NOT_KNOWN
    if seconds < 1:
        return f"{round(seconds * 1000)} ms" if seconds >= 0.001 else "0 s"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for place, (size, unit) in enumerate(_STEPS):
        if whole >= size:
            rest = _rest(whole % size, place) if whole < 10 * size else ""
            return f"{whole // size} {unit}{rest}"
    return "0 s"


def _rest(left: int, place: int) -> str:
    """What comes after the largest unit: hours after days, minutes after hours."""
    if place > 1:
        return ""
    size, unit = _STEPS[place + 1]
    return f" {left // size} {unit}" if left >= size else ""


def ago(then_ms: float | None, now_ms: int) -> str:
    """Such as ``12 s ago``."""
    if then_ms is None:
        return NOT_KNOWN
    seconds = (now_ms - then_ms) / 1000
    if seconds < 10:
        return f"{int(seconds)} s ago" if seconds >= 1 else "just now"
    return f"{duration(seconds)} ago"


def until(then_ms: float | None, now_ms: int) -> str:
    """Such as ``in 40 s``, or ``due for 3 min``."""
    if then_ms is None:
        return NOT_KNOWN
    seconds = (then_ms - now_ms) / 1000
    if abs(seconds) < 1:
        return "due now"
    return f"in {duration(seconds)}" if seconds > 0 else f"due for {duration(-seconds)}"


def moment(at_ms: float | None) -> str:
    """Such as ``2026-01-31 12:00:00 UTC``."""
    if at_ms is None:
        return NOT_KNOWN
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return NOT_KNOWN


def iso_moment(text: str) -> str:
    """The same of a time in ISO 8601; the text itself where it is none."""
    try:
        return moment(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return text


def count(number: float | None) -> str:
    """Such as ``1,234``."""
    return NOT_KNOWN if number is None else f"{number:,}"


def plural(number: int, one: str, many: str = "") -> str:
    """Such as ``1 record`` or ``1,234 records``."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def share(part: float) -> str:
    """Such as ``12 %``; no share that is there is 0 %."""
    percent = 100 * part
    return "under 1 %" if 0 < percent < 1 else f"{round(percent)} %"


def bytes_text(number: int | None) -> str:
    """Such as ``1.2 MB``."""
    if number is None:
        return NOT_KNOWN
    for size, unit in _BYTES:
        if number >= size:
            return f"{number / size:.1f} {unit}"
    return f"{number} B"

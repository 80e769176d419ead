"""Pictures of the status as SVG within the page, each with a title for those who don't see it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal

from markupsafe import Markup

from thermocline.serving.status.words import NOT_KNOWN, bytes_text, count, duration, moment, plural, share
from thermocline.serving.tail.recent_ages import MINUTES

if TYPE_CHECKING:
    from thermocline.serving.status.document import BucketStatus, CommitBar, Freshness

__all__ = ["age_line", "bucket_bars", "commit_bars", "commit_peak"]

_LINE: Final = (120, 24)
_PLACES: Final = tuple(
    (f"{x:.1f}", f"{x + 0.1:.1f}") for x in ((place + 0.5) * _LINE[0] / MINUTES for place in range(MINUTES))
)
"""Of each minute of the hour in the line, and a bit further, so that a single one is seen."""
_BARS: Final = (960, 120)
_DAY: Final = (960, 64)
_DAY_BARS: Final = 96
_BAR_MS: Final = 900_000
BUCKETS_SHOWN_MAX: Final = 256
"""More are no picture; the worst are shown."""
Shown = Literal["records", "deleted_rows", "seconds_max"]
_SAID: Final[Mapping[Shown, str]] = {
    "records": "Records",
    "deleted_rows": "Deleted rows",
    "seconds_max": "The longest commits",
}
_SVG: Final = Markup(
    '<svg class="{kind}" viewBox="0 0 {width} {height}" role="img" preserveAspectRatio="none">'
)
_TITLE: Final = Markup("<title>{}</title>")
_BAR: Final = Markup('<rect class="{}" x="{:.1f}" y="{:.1f}" width="{:.1f}" height="{:.1f}">')


def age_line(freshness: Freshness) -> Markup:
    """The ages of the last hour; where nothing is known of a minute, the line has a gap."""
    width, height = _LINE
    known = [age for age in freshness.minutes if age is not None]
    if not known:
        return Markup("")
    top = max(*known, freshness.stale_after_seconds)
    first = MINUTES - len(freshness.minutes)
    parts, points = [], ""
    for place, age in enumerate(freshness.minutes):
        if age is None:
            parts.append(points)
            points = ""
        else:
            (x, beside), y = _PLACES[first + place], f"{height - 2 - (height - 4) * age / top:.1f}"
            points += f"{x},{y} {beside},{y} "
    said = (
        f"Last hour: at most {duration(max(known))} old, stale from {duration(freshness.stale_after_seconds)}"
    )
    limit = height - 2 - (height - 4) * freshness.stale_after_seconds / top
    lines = Markup("").join(
        Markup('<polyline points="{}"/>').format(one.strip()) for one in [*parts, points] if one
    )
    return (
        _SVG.format(kind="age-line", width=width, height=height)
        + _TITLE.format(said)
        + Markup('<line class="limit" x1="0" x2="{}" y1="{:.1f}" y2="{:.1f}"/>').format(width, limit, limit)
        + lines
        + Markup("</svg>")
    )


def commit_bars(bars: Sequence[CommitBar], now_ms: int, what: Shown) -> Markup:
    """One of the figures of each quarter of an hour of the last day, with its own scale."""
    width, height = _DAY
    first_ms = now_ms // _BAR_MS * _BAR_MS - (_DAY_BARS - 1) * _BAR_MS
    shown = [bar for bar in bars if bar.begins_ms >= first_ms]
    numbers = [getattr(bar, what) for bar in shown]
    top = max(numbers, default=0) or 1
    step = width / _DAY_BARS

    def drawn() -> Iterator[Markup]:
        for bar, number in zip(shown, numbers, strict=True):
            if not number:
                continue
            x = (bar.begins_ms - first_ms) / _BAR_MS * step
            tall = max((height - 4) * number / top, 1.0)
            yield _BAR.format(what, x + 0.75, height - tall, step - 1.5, tall)
            yield _TITLE.format(
                f"{moment(bar.begins_ms)}: {plural(bar.commits, 'commit')}, {plural(bar.records, 'record')}, "
                f"{plural(bar.deleted_rows, 'row')} deleted, longest {duration(bar.seconds_max)}"
            )
            yield Markup("</rect>")

    said = f"{_SAID[what]} of the last day: {_peak(what, max(numbers, default=0))}; the table below has them"
    return (
        _SVG.format(kind="bars", width=width, height=height)
        + _TITLE.format(said)
        + Markup("").join(drawn())
        + Markup("</svg>")
    )


def commit_peak(bars: Sequence[CommitBar], what: Shown) -> str:
    """The greatest of a figure, which is as tall as its picture."""
    return _peak(what, max((getattr(bar, what) for bar in bars), default=0))


def _peak(what: Shown, number: float) -> str:
    if what == "seconds_max":
        return f"at most {duration(number)}" if number else NOT_KNOWN
    return f"at most {count(number)}"


def bucket_bars(buckets: Sequence[BucketStatus]) -> Markup:
    """Each bucket's rows, dead ones on top; a bad bucket is marked."""
    width, height = _BARS
    worst = sorted(buckets, key=lambda one: (not one.is_bad, -(one.rows + one.dead_rows)))[:BUCKETS_SHOWN_MAX]
    shown = sorted(worst, key=lambda one: one.bucket)
    top = max((one.rows + one.dead_rows for one in shown), default=0) or 1
    step = width / max(len(shown), 16)
    room = height - 16  # above the bars, for marks

    def drawn() -> Iterator[Markup]:
        for place, one in enumerate(shown):
            x, wide = place * step + step * 0.1, step * 0.8
            total = one.rows + one.dead_rows
            said = (
                f"Bucket {one.bucket}{' (bad)' if one.is_bad else ''}: {plural(one.files, 'file')}, "
                f"{bytes_text(one.bytes)}, {plural(one.rows, 'row')}, {count(one.dead_rows)} dead "
                f"({share(one.dead_rows / total if total else 0)})"
            )
            live, dead = room * one.rows / top, room * one.dead_rows / top
            yield Markup('<g class="bucket{}">').format(" bad" if one.is_bad else "") + _TITLE.format(said)
            yield _BAR.format("live", x, height - live, wide, live) + Markup("</rect>")
            yield _BAR.format("dead", x, height - live - dead, wide, dead) + Markup("</rect>")
            if one.is_bad:
                tip, middle = height - live - dead - 4, x + wide / 2
                yield Markup('<path class="mark" d="M{:.1f} {:.1f}l-5 -9h10z"/>').format(middle, tip)
            yield Markup("</g>")

    bad = sum(one.is_bad for one in buckets)
    said = f"Rows of {plural(len(buckets), 'bucket')}, {bad} of them bad; the table below has them"
    return (
        _SVG.format(kind="buckets", width=width, height=height)
        + _TITLE.format(said)
        + Markup("").join(drawn())
        + Markup("</svg>")
    )

"""The words of ``thermocline lookup --explain``: each row, and the record and the file it came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from thermocline.cli.output import counted
from thermocline.process.clock import iso_time
from thermocline.text.shown import Columns

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["count_of", "places_of", "seconds_of"]


def places_of(rows: Sequence[Mapping[str, Any]], shown: Callable[[object], Text]) -> RenderableType:
    """The rows one below the other, each with where it came from and what it replaced."""
    grid = Table(box=None, show_header=False, pad_edge=False)
    grid.add_column()
    grid.add_column(overflow="fold")
    for number, one in enumerate(rows, start=1):
        deleted = one["row"] is None
        grid.add_row(Text(f"row {number:,}{', deleted' if deleted else ''}", style="bold"))
        for name, value in (one["replaced"] if deleted else one["row"]).items():
            grid.add_row(Text(name), shown(value))
        for label, text in _places(one):
            grid.add_row(Text(label, style="cyan"), Text(text))
    return grid


def count_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """Such as ``2 rows and 1 deleted``."""
    deleted = sum(one["row"] is None for one in rows)
    return counted(len(rows) - deleted, "row") + (f" and {deleted:,} deleted" if deleted else "")


def seconds_of(seconds: Mapping[str, float]) -> str:
    """How long each step took, in milliseconds."""
    steps = (f"{name.replace('_', ' ')} {1_000 * value:,.2f} ms" for name, value in seconds.items())
    return ", ".join(steps)


def _places(one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    row, hot, cold, replaced = one["row"], one["hot"], one["cold"], one["replaced"]
    if hot is not None:
        yield "from record", f"{_record(hot)}, not committed yet"
    elif row is None:
        yield "from record", "a tombstone, not committed yet"
    if cold is not None and replaced is None:
        yield from _cold("from", cold)
    if replaced is not None:
        if row is not None:
            yield "replaced", _changed(replaced, row)
        if cold is not None:
            yield from _cold("replaced", cold)


def _changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    """What the row had before, where it is not the same."""
    other = {name: value for name, value in before.items() if value != after.get(name)}
    return str(Columns(other)) if other else "a row with the same values"


def _cold(what: str, cold: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if cold["record"] is not None:
        yield f"{what} record", _record(cold["record"])
    commit = "" if cold["commit"] is None else f", of commit {cold['commit']}"
    yield f"{what} file", f"{cold['file']}, row group {cold['row_group']}, row {cold['position']}{commit}"


def _record(place: Mapping[str, Any]) -> str:
    at = f"{place['topic']}/{place['partition']}@{place['offset']}"
    try:
        return f"{at} of {iso_time(place['timestamp_ms'])}"
    except (ValueError, OverflowError, OSError):  # a producer may set any time
        return f"{at} of {place['timestamp_ms']} ms"

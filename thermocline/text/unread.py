"""Fields that no column is read from, as people read of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from thermocline.text.shown import json_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["declaring", "each_field"]

SHOWN_MAX: Final = 10


def each_field(
    names: Mapping[str, int], others: int, values: int, shown_max: int = SHOWN_MAX
) -> Iterator[str]:
    """Each of ``names`` with the number of sampled values that have it; then the rest together."""
    for name, count in list(names.items())[:shown_max]:
        yield f"field {json_text(name)} in {count:,} of {values:,} sampled values"
    if (left := len(names) - shown_max) > 0:
        yield f"{left} more fields"
    if others:
        yield f"other fields, {others:,} times"


def declaring(table: str) -> str:
    """What to type so that columns are read from such fields; a shell takes it."""
    return (
        f"# declare those that you want in [tables.{table}.columns], with ingest stopped; then\n"
        f"thermocline table alter {table}"
    )

"""A caller's wish: columns of a table, rows that match a condition, and at most so many of them.

`Selection` checks it. A command that asks a server needs this alone, and starts without what reads tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thermocline.serving.read.caller import EVERYONE, Caller

if TYPE_CHECKING:
    from thermocline.rules.read_point import ReadPoint
    from thermocline.serving.where.predicate import Predicate


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a caller asks for; by default all.

    ``where`` is a condition, as `parse_where` reads it or gives it. ``limit`` rows are any of those that
    match it. With ``since``, only what changed since that read point. ``caller`` is who wants it.
    """

    columns: Sequence[str] | None = None
    where: str | Predicate | None = None
    limit: int | None = None
    since: ReadPoint | None = None
    caller: Caller = EVERYONE

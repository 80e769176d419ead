"""The views in Trino by now, by their comments, and whether one has to be replaced. Decides, does nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from thermocline.rules.seam import Seam

if TYPE_CHECKING:
    from thermocline.views.plan import PlannedView

__all__ = ["PublishedView", "ViewAction", "verdict"]


class ViewAction(StrEnum):
    """What to do with a view."""

    REPLACE = "replace"
    KEEP = "keep"
    """It shows the same, and for long enough."""
    NEWER = "newer"
    """It shows more than we know of: another publisher made it."""


@dataclass(frozen=True, slots=True)
class PublishedView:
    """A view of ours as its comment tells.

    A withdrawn one has a reason and neither snapshot nor digest; one of the server's live table has no
    snapshot. ``digest`` and ``table`` are empty where a comment has none.
    """

    mode: str
    table: str
    snapshot_id: int | None
    digest: str
    end: Seam | None
    until_ms: int | None
    withdrawn: str | None
    definition_version: int

    @classmethod
    def parse(cls, comment: str | None) -> PublishedView | None:
        """From the comment of a view; None where it is none of ours."""
        try:
            fields: Mapping[str, Any] = json.loads(comment or "")["thermocline"]
            snapshot_id, end, until = (fields.get(name) for name in ("snapshot_id", "end", "expires_at"))
            return cls(
                mode=str(fields["mode"]),
                table=str(fields.get("table", "")),
                snapshot_id=None if snapshot_id is None else int(snapshot_id),
                digest=str(fields.get("digest", "")),
                end=None if end is None else Seam.from_dict(end),
                until_ms=None if until is None else round(datetime.fromisoformat(until).timestamp() * 1000),
                withdrawn=fields.get("withdrawn"),
                definition_version=int(fields["definition_version"]),
            )
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def verdict(
    found: PublishedView | None, planned: PlannedView, now_ms: int, number_of: Callable[[int], int | None]
) -> ViewAction:
    """Whether the view that was found has to be replaced by the planned one.

    ``number_of`` gives the sequence number of a snapshot of the table, as it was loaded *after* the view was
    found; None where the table does not have it (any more). A view is published after its commit, so what the
    table does not have is older, or of a table that was here before. The log, too, was asked after the view
    was found: one that ends beyond the log's end is not newer, it reads a log that has lost its end.
    """
    if found is None or found.withdrawn is not None:
        return ViewAction.REPLACE
    if _is_newer(found, planned, number_of):  # safety: views-newer
        return ViewAction.NEWER
    if found.digest != planned.digest or _ends_too_soon(found.until_ms, planned.until_ms, now_ms):
        return ViewAction.REPLACE
    return ViewAction.KEEP


def _is_newer(found: PublishedView, planned: PlannedView, number_of: Callable[[int], int | None]) -> bool:
    if found.snapshot_id is None:
        return False
    theirs, ours = number_of(found.snapshot_id), number_of(planned.plan.snapshot_id)
    return theirs is not None and ours is not None and theirs > ours  # safety: views-beyond-the-log


def _ends_too_soon(found_ms: int | None, planned_ms: int | None, now_ms: int) -> bool:
    """Whether the view must be replaced for its end: it is too late, or half of its life is over."""
    if planned_ms is None or found_ms is None:
        return planned_ms != found_ms
    # safety: views-shorter, views-in-time
    return found_ms > planned_ms or found_ms - now_ms < (planned_ms - now_ms) / 2

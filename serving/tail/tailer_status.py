"""A tailer's own report in ``tailer.json``, which the API workers and ``/status`` read."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from thermocline.failpoints import failpoint
from thermocline.serving.store.layout import TAILER_STATUS

if TYPE_CHECKING:
    from thermocline.errors import ThermoclineError
    from thermocline.process.clock import Clock
    from thermocline.serving.hot.tier import HotTier
    from thermocline.serving.tail.feed import Feed
    from thermocline.serving.tail.follower import Follower


def shown(problem: ThermoclineError | None) -> dict[str, str] | None:
    """A problem as the status has it."""
    return None if problem is None else {"code": problem.code, "what": problem.what, "next": problem.next}


def follower_status(follower: Follower) -> dict[str, Any]:
    """What is known of the table: its newest published snapshot, and what is wrong with the catalog.

    Nothing is said of the catalog before the first look at it.
    """
    status: dict[str, Any] = {"catalog_problem": shown(follower.problem)} if follower.has_looked else {}
    if follower.newest is not None:
        state = follower.newest.state
        status |= {"snapshot_id": str(state.snapshot_id), "seam": state.seam.to_dict()}
    return status


def tier_status(tier: HotTier, feed: Feed, clock: Clock) -> dict[str, Any]:
    """What the hot tier holds, and what was read into it by this process."""
    return {
        "definition_version": tier.definition_version,
        "start": tier.start.to_dict(),
        "positions": tier.end.to_dict(),
        "lag_seconds": tier.age_seconds(clock.monotonic()),
        "records": feed.records,
        "bad": dict(feed.bad),
        "hot_records": tier.records,
        "hot_bytes": tier.hot_bytes,
        "generations": tier.generations,
    }


def forget_status(folder: Path) -> None:
    """What an earlier tailer said of itself, such as that it had caught up, is not said of the next one."""
    (folder / TAILER_STATUS).unlink(missing_ok=True)


def write_status(folder: Path, table: str, clock: Clock, status: dict[str, Any]) -> None:
    """Replaces the status: whoever reads finds the old one or the new one, whole.

    Makes the folder where it is not there. Raises OSError when the disk fails or is full.
    """
    said = {"table": table, "pid": os.getpid(), "updated_ms": clock.now_ms(), **status}
    failpoint("tailer.status")
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / f"{TAILER_STATUS}.new"
    scratch.write_bytes(msgspec.json.encode(said))
    scratch.replace(folder / TAILER_STATUS)

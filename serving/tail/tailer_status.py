"""A tailer's own report in ``tailer.json``, which the API workers and ``/status`` read."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from thermocline.errors import StorageFailed
from thermocline.failpoints import failpoint
from thermocline.process.logs import fields
from thermocline.serving.store.layout import TAILER_STATUS
from thermocline.serving.tail.recent_ages import RecentAges

if TYPE_CHECKING:
    from thermocline.errors import ThermoclineError
    from thermocline.process.clock import Clock
    from thermocline.rules.seam import Seam
    from thermocline.serving.hot.tier import HotTier
    from thermocline.serving.tail.feed import Feed
    from thermocline.serving.tail.follower import Follower

log = logging.getLogger(__name__)


def shown(problem: ThermoclineError | None) -> dict[str, str] | None:
    """A problem as the status has it."""
    return None if problem is None else {"code": problem.code, "what": problem.what, "next": problem.next}


def follower_status(follower: Follower, reached: Callable[[Seam], Seam]) -> dict[str, Any]:
    """What is known of the table: its newest published snapshot, and what is wrong with the catalog.

    ``reached`` says how far beyond the seam nothing waits to be committed.

    Nothing is said of the catalog before the first look at it.
    """
    status: dict[str, Any] = {"catalog_problem": shown(follower.problem)} if follower.has_looked else {}
    if follower.newest is not None:
        state = follower.newest.state
        status |= {
            "snapshot_id": str(state.snapshot_id),
            "seam": state.seam.to_dict(),
            "reached": reached(state.seam).to_dict(),
        }
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
        "filtered": feed.filtered,
        "hot_records": tier.records,
        "hot_bytes": tier.hot_bytes,
        "generations": tier.generations,
    }


def forget_status(folder: Path) -> None:
    """What an earlier tailer said of itself, such as that it had caught up, is not said of the next one."""
    (folder / TAILER_STATUS).unlink(missing_ok=True)


class StatusFile:
    """The status of one tailer, with the ages of the last hour, in a file that is replaced as a whole."""

    def __init__(self, folder: Path, table: str, clock: Clock) -> None:
        self._folder = folder
        self._table = table
        self._clock = clock
        self._ages = RecentAges()
        self._has_said = True  # whether the last status could be written

    def say(self, status: dict[str, Any]) -> None:
        """Writes the status where it can be written. A failure is logged once."""
        try:
            self.write(status)
        except OSError as error:
            if self._has_said:
                extra = fields(table=self._table, code=StorageFailed.code, detail=str(error))
                log.error("the status cannot be written", extra=extra)  # noqa: TRY400
            self._has_said = False
        else:
            self._has_said = True

    def write(self, status: dict[str, Any]) -> None:
        """Replaces the status: whoever reads finds the old one or the new one, whole.

        Makes the folder where it is not there. Raises OSError when the disk fails or is full.
        """
        now_ms = self._clock.now_ms()
        self._ages.note(now_ms, status.get("lag_seconds", math.inf))
        said = {"table": self._table, "pid": os.getpid(), "updated_ms": now_ms, **status}
        failpoint("tailer.status")
        replace_json(self._folder / TAILER_STATUS, {**said, "recent_ages": self._ages.to_dict()})


def replace_json(path: Path, document: Any) -> None:
    """Puts a document in place of the one before, as JSON; makes its folder. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f"{path.name}.new")
    scratch.write_bytes(msgspec.json.encode(document))
    scratch.replace(path)

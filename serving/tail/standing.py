"""The standing of a served table in its log: how old what is not committed is, and what is not read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from thermocline.kafka.log import Log
from thermocline.kafka.standing import oldest_after, standing_at
from thermocline.process.repeated import Repeated

if TYPE_CHECKING:
    from thermocline.process.clock import Clock
    from thermocline.rules.headroom import Oldest, Standing
    from thermocline.rules.seam import Seam
    from thermocline.serving.tail.follower import Follower
    from thermocline.serving.tail.tailer import Tailer
    from thermocline.settings import KafkaSettings

__all__ = ["ServedStanding"]

LOOK_SECONDS: Final = 15.0
"""As ingest looks. With many tables in a process, each is looked at less often: one of them a second."""
_UNKNOWN: Final = {
    "ingest_lag_seconds": None,
    "lag_time_from": None,
    "headroom_seconds": None,
    "headroom_limit": "unknown",
    "retention_seconds": None,
    "tailer_lag_seconds": None,
    "log_start": None,
}


class ServedStanding:
    """Looks at the log beside the tailer, which says in its status what was found."""

    def __init__(
        self,
        kafka: KafkaSettings,
        follower: Follower,
        tailer: Tailer,
        clock: Clock,
        tables: int = 1,
        log: Log | None = None,
    ) -> None:
        """``tables`` are tailed by this process, and share the ``log``."""
        self._kafka, self._follower, self._tailer, self._clock = kafka, follower, tailer, clock
        self._log = log
        self._found: tuple[Standing, Oldest, Seam] | None = None
        self._repeated = Repeated("the look at the log", self.look, max(LOOK_SECONDS, tables))

    def start(self) -> None:
        """Begins to look."""
        self._repeated.start()

    def close(self) -> None:
        """Looks no more."""
        self._repeated.close()

    def said(self) -> dict[str, Any]:
        """What was found last, in seconds as of now; nothing is known before the first look."""
        if self._found is None:
            return dict(_UNKNOWN)
        (standing, unread, starts), now_ms = self._found, self._clock.now_ms()
        return {
            **standing.document(now_ms),
            "tailer_lag_seconds": unread.lag_seconds(now_ms),
            "log_start": starts.to_dict(),
        }

    def look(self) -> None:
        """Looks once. Raises what `standing_at` raises; nothing is known then."""
        newest = self._follower.newest
        if newest is None:
            return
        config = self._kafka.client_config()
        try:
            self._log = self._log or Log(self._kafka, self._clock)
            starts, ends = self._log.bounds(newest.definition.topics)
            end = self._tailer.end  # after the log's: what comes meanwhile does not count as unread
            unread = oldest_after(config, ends, newest.seam if end is None else end, self._clock)
            state = replace(newest.state, seam=self._tailer.reached(newest.seam))
            standing = standing_at(self._log, config, newest.definition, state, self._clock)
        except BaseException:
            self._found = None
            raise
        self._found = standing, unread, starts

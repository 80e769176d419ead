"""The tailer: one process per table that reads the log from the seam on into the hot tier.

Each round takes what has arrived, decodes it, appends it in one transaction, and does what is due: seals that
pins wait for, eviction behind the readers, a step of a merge. Bad records are counted and skipped; ingest
quarantines them. At the byte budget it pauses: the ends stand still, nothing is dropped.

What goes wrong stops the reading, not the process: what is held stays readable with frozen ends and grows
old, pins get their seals, and the tailer tries again. When the log no longer holds what comes next, it begins
anew at the newest snapshot's seam if the log still reaches back to that; if not, it says so until it does.
"""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import msgspec

from serving.feed import Feed
from serving.follower import Follower, Published
from serving.hot.tier import HotTier
from serving.layout import COLD, HOT, TAILER_STATUS
from thermocline.clock import SystemClock
from thermocline.errors import OffsetsGone, PartitionsShrunk, SeamBeyondLog, ThermoclineError
from thermocline.identity import check_identity
from thermocline.log import CONSUME_RECORDS_MAX, Log, Tail, TopicFacts
from thermocline.logs import fields
from thermocline.seam import Seam, check_against_log

if TYPE_CHECKING:
    import threading

    from thermocline.clock import Clock
    from thermocline.settings import Settings

# One transaction each: a record waits 10 ms on average, and the rounds take a few percent of a core.
ROUND_SECONDS: Final = 0.02
# What failed is tried again after this: soon after an outage, rarely enough to burden nobody.
RETRY_SECONDS: Final = 2.0
STATUS_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


def run_tailer(settings: Settings, table_name: str, stop: threading.Event) -> None:
    """Tails a table until it is told to stop. Its state is in ``<state_dir>/<table>``."""
    folder = settings.serving.state_dir / table_name
    folder.mkdir(parents=True, exist_ok=True)
    identifier = settings.table(table_name).identifier
    follower = Follower(settings.catalog, table_name, identifier, folder / COLD)
    tailer = Tailer(settings, table_name, folder, follower, stop, SystemClock())
    follower.start()
    try:
        tailer.run()
    finally:
        follower.stop()
        tailer.close()


class Tailer:
    """Keeps the hot tier of one table at the log's end. For one thread."""

    def __init__(
        self,
        settings: Settings,
        table: str,
        folder: Path,
        follower: Follower,
        stop: threading.Event,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._table = table
        self._folder = folder
        self._follower = follower
        self._stop = stop
        self._clock = clock
        self._under: Published | None = None  # what the tier was opened under
        self._tier: HotTier | None = None
        self._feed: Feed | None = None
        self._facts: dict[str, TopicFacts] = {}  # of the topics that are being tailed
        self._goal: Seam | None = None  # the log's ends that have to be passed once before it is ready
        self._is_caught_up = False
        self._is_paused = False
        self._problem: ThermoclineError | None = None
        self._status_at = float("-inf")

    def run(self) -> None:
        """Tails until told to stop; tries again after whatever goes wrong."""
        while not self._stop.is_set():
            try:
                self._begin()
                self._tail()
            except ThermoclineError as error:
                self._note(error)
                self._stand_still()

    def close(self) -> None:
        """Lets the tier go and writes the last status."""
        self._write_status("stopped")
        if self._tier is not None:
            self._tier.close()
        self._tier = None

    def _begin(self) -> None:
        """Waits for a first snapshot and opens the tier, or another where the newest snapshot asks for it."""
        while self._follower.newest is None and not self._stop.is_set():
            self._keep_up()
            self._stop.wait(ROUND_SECONDS)
        newest = self._follower.newest
        if newest is not None and self._needs_tier(newest):
            if self._tier is not None:
                self._check_reach(newest)  # what is held answers for longer than a tier that can't be filled
            self._open_tier(newest, may_continue=True)

    def _check_reach(self, newest: Published) -> None:
        """Makes sure that a new tier can be filled from the snapshot's seam on; raises as ``_check_log``."""
        kafka, topics = Log(self._settings.kafka), newest.definition.topics
        check_identity(self._table, newest.state.cluster_id, newest.state.topic_ids, kafka, topics)
        check_against_log(self._table, newest.state.seam, kafka.starts(topics), kafka.ends(topics))

    def _needs_tier(self, newest: Published) -> bool:
        """Whether there is no tier, or another log's or definition's, or one that begins beyond the seam."""
        if self._tier is None or self._under is None:
            return True
        if newest is self._under:
            return False
        return not self._is_of(newest) or not newest.state.seam.at_least(self._tier.start)

    def _is_of(self, newest: Published) -> bool:
        """Whether the tier's records come from the snapshot's log and were decoded by its definition."""
        under = self._under
        assert under is not None
        return (newest.source, newest.definition) == (under.source, under.definition)

    def _open_tier(self, newest: Published, may_continue: bool) -> None:
        if self._tier is not None:
            self._tier.close()
            self._tier = None
        self._goal = None
        self._is_caught_up = False
        # What the tier before had caught up to must not be said of this one.
        self._write_status(self._state())
        self._tier = HotTier.open(
            self._folder / HOT,
            newest.definition,
            newest.state.seam,
            self._clock,
            may_continue,
            newest.source,
        )
        self._feed = Feed(self._tier, newest.definition)
        self._under = newest
        log.info(
            "hot tier opened",
            extra=fields(
                table=self._table,
                definition_version=newest.definition.version,
                start=self._tier.start.to_dict(),
                end=self._tier.end.to_dict(),
            ),
        )
        self._write_status(self._state())

    def _tail(self) -> None:
        """Reads on from the tier's end until stopped, or until something has to begin anew."""
        if self._stop.is_set():
            return
        assert self._tier is not None
        self._check_log()
        config = self._settings.kafka.client_config()
        tail = Tail(config, self._tier.end, self._table, self._clock)
        self._problem = None
        try:
            while not self._stop.is_set() and not self._must_begin_anew(tail):
                self._round(tail)
        finally:
            tail.close()

    def _must_begin_anew(self, tail: Tail) -> bool:
        """Where a snapshot asks for another tier, or a topic is another one or has grown."""
        newest, tier = self._follower.newest, self._tier
        assert newest is not None
        assert tier is not None
        if any(found != self._facts.get(topic) for topic, found in tail.facts().items()):
            return True
        if newest is self._under:
            return False
        topics = newest.definition.topics
        places = [(topic, partition) for topic, partition, _ in newest.state.seam.items() if topic in topics]
        if self._needs_tier(newest) or not all(place in tier.end for place in places):
            return True
        self._under = newest
        return False

    def _check_log(self) -> None:
        """Makes sure that the log is the one that feeds the table, and holds what comes next.

        Takes up partitions that are new. Begins anew at the newest seam where the log was cut beyond the
        tier's end, or ends before it.

        Raises:
            KafkaUnreachable, TopicMissing, ClusterReplaced, TopicReplaced: the log can't be read now.
            OffsetsGone, PartitionsShrunk, SeamBeyondLog: nor does it hold what follows the newest seam.
        """
        newest = self._follower.newest
        assert newest is not None
        assert self._tier is not None
        kafka, topics = Log(self._settings.kafka), newest.definition.topics
        check_identity(self._table, newest.state.cluster_id, newest.state.topic_ids, kafka, topics)
        self._facts = kafka.describe(topics)
        starts, ends = kafka.starts(topics), kafka.ends(topics)
        self._take_up(starts, newest)
        try:
            check_against_log(self._table, self._tier.end, starts, ends)
        except (OffsetsGone, PartitionsShrunk, SeamBeyondLog):
            check_against_log(self._table, newest.state.seam, starts, ends)
            self._open_tier(newest, may_continue=False)
            self._take_up(starts, newest)
        if self._goal is None:
            self._goal = ends

    def _take_up(self, starts: Seam, newest: Published) -> None:
        assert self._tier is not None
        places = [(topic, partition) for topic, partition, _ in starts.items()]
        new = {place: newest.state.seam.get(place) for place in places if place not in self._tier.end}
        if new:
            self._tier.extend(Seam(new))

    def _round(self, tail: Tail) -> None:
        assert self._tier is not None
        assert self._feed is not None
        began_at = self._clock.monotonic()
        self._is_paused = self._tier.is_full(self._settings.serving.hot_bytes_max)
        read = 0
        if not self._is_paused:
            chunks = tail.poll(ROUND_SECONDS)
            self._feed.take(chunks, tail.positions(), tail.reached_end_at())
            read = sum(len(chunk.offsets) for chunk in chunks)
            if self._goal is not None and not self._is_caught_up:
                self._is_caught_up = self._tier.end.at_least(self._goal)
        self._keep_up()
        if read < CONSUME_RECORDS_MAX // 2:  # more is not waiting: collect for the rest of the round
            self._stop.wait(max(0.0, ROUND_SECONDS - (self._clock.monotonic() - began_at)))

    def _stand_still(self) -> None:
        """Keeps what is held readable until it is time to try again."""
        until = self._clock.monotonic() + RETRY_SECONDS
        while not self._stop.is_set() and self._clock.monotonic() < until:
            self._keep_up()
            self._stop.wait(ROUND_SECONDS)

    def _keep_up(self) -> None:
        newest = self._follower.newest
        if self._tier is not None:
            self._tier.tend(newest.state.seam if newest is not None else None)
        now = self._clock.monotonic()
        if now - self._status_at >= STATUS_SECONDS:
            self._status_at = now
            self._write_status(self._state())

    def _note(self, problem: ThermoclineError) -> None:
        if self._problem is None or self._problem.what != problem.what:
            log.error(
                "the log cannot be read; answers grow old",
                extra=fields(table=self._table, code=problem.code, detail=problem.what, next=problem.next),
            )
        self._problem = problem

    def _state(self) -> str:
        if self._problem is not None:
            return "waiting" if self._problem.retryable else "failed"
        if self._is_paused:
            return "paused"
        return "running" if self._goal is not None else "starting"

    def _write_status(self, state: str) -> None:
        newest, tier, feed = self._follower.newest, self._tier, self._feed
        status: dict[str, Any] = {
            "table": self._table,
            "pid": os.getpid(),
            "updated_ms": self._clock.now_ms(),
            "state": state,
            "paused": self._is_paused,
            "caught_up_to_start_ends": self._is_caught_up,
            "problem": _shown(self._problem),
            "catalog_problem": _shown(self._follower.problem),
            "hot_bytes_max": self._settings.serving.hot_bytes_max,
        }
        if newest is not None:
            status["snapshot_id"] = str(newest.state.snapshot_id)
            status["seam"] = newest.state.seam.to_dict()
        if tier is not None and feed is not None:
            status |= {
                "definition_version": tier.definition_version,
                "start": tier.start.to_dict(),
                "positions": tier.end.to_dict(),
                "lag_seconds": tier.age_seconds(self._clock.monotonic()),
                "records": feed.records,
                "bad": dict(feed.bad),
                "hot_records": tier.records,
                "hot_bytes": tier.hot_bytes,
                "generations": tier.generations,
            }
        scratch = self._folder / f"{TAILER_STATUS}.new"
        scratch.write_bytes(msgspec.json.encode(status))
        scratch.replace(self._folder / TAILER_STATUS)


def _shown(problem: ThermoclineError | None) -> dict[str, str] | None:
    return None if problem is None else {"code": problem.code, "what": problem.what, "next": problem.next}

"""The tailer of a table, which reads the log from the seam on into the hot tier.

Each round takes what has arrived, decodes it, appends it in one transaction, and does what is due: seals that
pins wait for, eviction behind the readers, a step of a merge. Bad records are counted and skipped; ingest
quarantines them. At the byte budget it pauses: the ends stand still, nothing is dropped.

What goes wrong stops the reading, not the process: what is held stays readable with frozen ends and grows
old, and the tailer tries again. While the log is down, pins get their seals. When it no longer holds what
comes next, the tailer begins again at the newest snapshot's seam if the log still reaches back to that; if
not, it says so until it does. When the disk fails or is full, a change of the hot tier may be half done: the
tier is closed, and opened again as after a kill, by what is on disk.

`Tailer.step` is one turn of its loop and does not wait by itself: `run` takes one after the other until it is
told to stop, and whoever else takes them (a simulation) decides what happens in between.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from thermocline.errors import (
    LogReplaced,
    OffsetsGone,
    RegistryUnreachable,
    StorageFailed,
    ThermoclineError,
    TombstonesGone,
    TopicForbidden,
)
from thermocline.failpoints import failpoint, failstep
from thermocline.kafka.log import CONSUME_RECORDS_MAX
from thermocline.process.logs import fields
from thermocline.rules.identity import (
    check_has_topics,
    check_identity,
    check_log,
    check_not_compacted,
    check_tombstones,
)
from thermocline.rules.seam import Seam, check_against_log
from thermocline.serving.hot.compatibility import cannot_go_on
from thermocline.serving.hot.tier import BEGUN_EARLIER_SECONDS, HotTier
from thermocline.serving.store.layout import HOT
from thermocline.serving.store.storage import STORAGE_ERRORS, storage_failed
from thermocline.serving.tail.feed import Feed
from thermocline.serving.tail.follower import PublishedSnapshot
from thermocline.serving.tail.tailer_status import StatusFile, follower_status, shown, tier_status

if TYPE_CHECKING:
    import threading

    from thermocline.kafka.facts import TopicFacts
    from thermocline.kafka.log import Log
    from thermocline.kafka.tail import Tail
    from thermocline.process.clock import Clock
    from thermocline.schemas.registry import SchemaRegistry
    from thermocline.serving.tail.follower import Follower
    from thermocline.serving.tail.source import LogSource
    from thermocline.settings import ServingSettings

# One transaction each: a record waits 10 ms on average, and the rounds take a few percent of a core.
ROUND_SECONDS: Final = 0.02
# What failed is tried again after this: soon after an outage, rarely enough to burden nobody.
RETRY_SECONDS: Final = 2.0
STATUS_SECONDS: Final = 1.0
# A tailer that is behind asks this often whether it may still read on: half of the shortest time for which
# tombstones count as kept (``identity.KEPT_MS_MIN``).
RECHECK_SECONDS: Final = 300.0
NO_TIMES: Final[Mapping[str, int]] = {}

log = logging.getLogger(__name__)


class Tailer:
    """Keeps the hot tier of one table at the log's end. For one thread.

    ``wait`` is told for how many seconds nothing needs to be done; it may return sooner. A round in which
    nothing comes lasts ``idle_seconds``. While its state is the same, the status is written every
    ``status_seconds``.
    """

    def __init__(
        self,
        settings: ServingSettings,
        table: str,
        folder: Path,
        follower: Follower,
        source: LogSource,
        clock: Clock,
        wait: Callable[[float], object],
        registry: SchemaRegistry | None = None,
    ) -> None:
        self.idle_seconds = ROUND_SECONDS
        self.status_seconds = STATUS_SECONDS
        self._registry = registry
        self._settings = settings
        self._table = table
        self._folder = folder
        self._follower = follower
        self._source = source
        self._clock = clock
        self._wait = wait
        self._under: PublishedSnapshot | None = None  # what the tier was opened under
        self._tier: HotTier | None = None
        self._feed: Feed | None = None
        self._tail: Tail | None = None  # while the log is read
        self._facts: dict[str, TopicFacts] = {}  # of the topics that are being tailed
        self._reached_end_at: Mapping[tuple[str, int], float] = {}  # what the log said last
        self._goal: Seam | None = None  # the log's ends that have to be passed once before it is ready
        self._is_caught_up = False
        self._is_paused = False
        # As the snapshot has it, of a tier that was opened without rows: its own were all read after that.
        self._tombstones_since_ms: Mapping[str, int] = NO_TIMES
        self._empty_at = float("-inf")  # when the tier was last known to hold no row
        self._problem: ThermoclineError | None = None
        self._problem_since = float("-inf")
        self._checked_at = float("-inf")
        self._retry_at = float("-inf")  # what failed is not tried again before
        self._status_at = float("-inf")
        self._said = ("", False)  # the state then, and whether it had caught up
        self.standing: Callable[[], Mapping[str, object]] = dict  # what is said of the log beside this
        self._status_file = StatusFile(folder, table, clock)

    def run(self, stop: threading.Event) -> None:
        """Tails until told to stop; tries again after whatever goes wrong."""
        while not stop.is_set():
            self.step()

    def step(self) -> None:
        """One turn: a round of reading, or what has to come before it, or keeping what is held readable."""
        try:
            self._turn()
        except ThermoclineError as error:
            self._stand_still(error)
        except STORAGE_ERRORS as error:
            log.debug("where it came from", exc_info=error)
            self._close_tier()  # safety: tier-opened-again
            # Without the error itself, whose traceback would keep the tier's files open.
            self._stand_still(storage_failed(self._table, error), str(error))

    @property
    def end(self) -> Seam | None:
        """Up to where the log was read; None before that began."""
        tier = self._tier
        return None if tier is None else tier.end

    def reached(self, seam: Seam) -> Seam:
        """See `Feed.reached`; for any thread."""
        tier, feed = self._tier, self._feed
        return seam if tier is None or feed is None else feed.reached(seam)

    def close(self) -> None:
        """Lets the log and the tier go and writes the last status."""
        self._leave_log()
        self._say("stopped")
        self._close_tier()

    def _turn(self) -> None:
        if self._clock.monotonic() < self._retry_at or self._follower.newest is None:
            self._keep_up()
            self._wait(self.idle_seconds)
        elif self._tail is None:
            self._begin(self._follower.newest)
        elif self._must_begin_again(self._tail):
            self._leave_log()
        else:
            self._round(self._tail)

    def _stand_still(self, problem: ThermoclineError, cause: str = "") -> None:
        self._leave_log()
        self._note(problem, cause or problem.cause)
        self._retry_at = self._clock.monotonic() + RETRY_SECONDS

    def _close_tier(self) -> None:
        tier, self._tier = self._tier, None
        if tier is not None:
            tier.close()

    def _begin(self, newest: PublishedSnapshot) -> None:
        """Opens the tier, or another where the newest snapshot asks for it, and reads on from its end."""
        if self._needs_tier(newest):
            if self._tier is not None:
                # What is held answers for longer than a tier that can't be filled.
                self._check_newest(newest, self._source.log())  # safety: tier-kept
            self._open_tier(newest, may_continue=True)
        assert self._tier is not None
        if self._is_other_definition(newest, self._tier):
            self._follow(newest, self._tier)
        if self._is_left_behind(newest):  # safety: hot-left-behind
            self._check_newest(newest, self._source.log())
            self._open_tier(newest, may_continue=False)
        self._check_log(newest)
        self._tail = self._source.tail(self._tier.end, self._facts)
        self._recover(self._tail)

    def _leave_log(self) -> None:
        if self._tail is not None:
            self._tail.close()
        self._tail = None

    def _check_newest(self, newest: PublishedSnapshot, log_now: Log) -> None:
        """Makes sure that a new tier can be filled from the snapshot's seam on; raises as ``_check_log``."""
        check_log(self._table, newest.state, log_now, newest.definition, self._clock.now_ms())

    def _needs_tier(self, newest: PublishedSnapshot) -> bool:
        """Whether there is no tier, or one that can't go on under the snapshot."""
        return self._tier is None or (
            # safety: hot-complete-running
            newest is not self._under and cannot_go_on(newest, self._tier) is not None
        )

    def _is_other_definition(self, newest: PublishedSnapshot, tier: HotTier) -> bool:
        """Whether topics came or left since the tier was opened; nothing else may have changed."""
        return newest is not self._under and tier.definition_version != newest.definition.version

    def _follow(self, newest: PublishedSnapshot, tier: HotTier) -> None:
        """Keeps what the tier holds, under a definition with other topics."""
        before = tier.end.topics
        tier.follow(newest.definition, newest.source)
        self._under = newest
        if self._goal is not None:
            self._goal = self._goal.only(newest.definition.topics)  # safety: goal-without-topics-that-left
        came = [topic for topic in newest.definition.topics if topic not in before]
        left = [topic for topic in before if topic not in newest.definition.topics]
        log.info(
            "the hot tier goes on with other topics",
            extra=fields(table=self._table, definition_version=tier.definition_version, came=came, left=left),
        )

    def _is_left_behind(self, newest: PublishedSnapshot) -> bool:
        """Whether the table went past a tier that was never at the log's end.

        Nothing is known then of what compaction dropped between the tier's end and the snapshot's seam: an
        older snapshot would lack it. What lies there need not be read, either.
        """
        assert self._tier is not None
        is_unread = math.isinf(self._tier.age_seconds(self._clock.monotonic()))
        return is_unread and not self._tier.end.at_least(newest.state.seam)

    def _open_tier(self, newest: PublishedSnapshot, may_continue: bool) -> None:
        self._close_tier()
        self._goal = None
        self._is_caught_up = False  # safety: tier-not-caught-up
        # What the tier before had caught up to must not be said of this one: without it, none is opened.
        self._status_file.write(self._status(self._state()))  # safety: status-before-tier
        self._tier = HotTier.open(
            self._folder / HOT,
            newest.definition,
            newest.state.seam,
            self._clock,
            may_continue,
            newest.source,
            newest.tombstones_from_ms,
            newest.state.partition_times,
        )
        self._feed = Feed(self._tier, newest.definition, self._registry)
        is_empty = not self._tier.records
        # safety: tailer-tombstones-given-up-before-start
        self._tombstones_since_ms = newest.state.tombstones_since_ms if is_empty else NO_TIMES
        self._empty_at = self._clock.monotonic() - BEGUN_EARLIER_SECONDS if is_empty else float("-inf")
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
        self._say(self._state())

    def _must_begin_again(self, tail: Tail) -> bool:
        """Where a snapshot asks for another tier, or a topic is another one or has grown."""
        newest, tier = self._follower.newest, self._tier
        assert newest is not None
        assert tier is not None
        if self._is_other_log(tail):
            return True
        if newest is self._under:
            return False
        topics = newest.definition.topics
        places = [(topic, partition) for topic, partition, _ in newest.state.seam.items() if topic in topics]
        is_other = self._needs_tier(newest) or self._is_other_definition(newest, tier)
        if is_other or not all(place in tier.end for place in places):
            return True
        self._under = newest
        return False

    def _is_other_log(self, tail: Tail) -> bool:
        """Whether a topic was made again, or has grown, since the log was looked at."""
        return any(found != self._facts.get(topic) for topic, found in tail.facts().items())

    def _check_log(self, newest: PublishedSnapshot) -> None:
        """Makes sure that the log is the one that feeds the table, and holds what comes next.

        Takes up partitions that are new. Begins again at the newest seam where the log was cut beyond the
        tier's end, or ends before it, or may have dropped tombstones that the tier has not seen.

        Raises:
            KafkaUnreachable, TopicMissing, TopicsUnmatched: the log can't be read now.
            LogReplaced, OffsetsGone, TombstonesGone: nor does it hold all that follows the newest seam.
        """
        assert self._tier is not None
        failpoint("tailer.check")
        began_at = self._clock.monotonic()  # the answers may have come long after: the process may have slept
        check_has_topics(newest.definition)  # safety: tailer-of-no-topic
        log_now, topics = self._source.log(), newest.definition.topics
        # In this order: a topic that is made again in between is another one than these facts say.
        self._facts = log_now.describe(topics)  # safety: facts-before-identity
        check_identity(self._table, newest.state.cluster_id, newest.state.topic_ids, log_now, topics)
        check_not_compacted(newest.definition, log_now)
        starts, ends = log_now.bounds(topics)
        try:
            wanted = self._tier.end.merged_max(self._new_in(starts, newest))
            check_against_log(self._table, wanted, starts, ends)
            self._check_tombstones(newest, ends, log_now)  # safety: tailer-tombstones
        except (LogReplaced, OffsetsGone, TombstonesGone):
            self._check_newest(newest, log_now)
            self._open_tier(newest, may_continue=False)
        # Not before the checks: a tier that has read nothing of a partition was never at the end of all.
        new = self._new_in(starts, newest)
        if new:
            self._tier.extend(new, newest.state.partition_times)
        self._checked_at = began_at  # safety: tailer-checked-before
        if self._goal is None:
            self._goal = ends

    def _check_tombstones(self, newest: PublishedSnapshot, ends: Seam, log_now: Log) -> None:
        """Makes sure that the tier has not been behind for longer than the log keeps tombstones.

        Snapshot and tier together hold what the log held when the tier was last at its end. One that never
        was has read up to the seam at least, and what follows was appended after the snapshot had all of it;
        or, where the table has no row that could miss its tombstone, what the tier itself has read.
        Partitions that the tier does not have yet were made since it was at its end.
        """
        tier, now_ms = self._tier, self._clock.now_ms()
        assert tier is not None
        if not newest.definition.has_key:
            return
        now = self._clock.monotonic()
        # safety: tailer-tombstones-of-its-own-rows
        own_seconds = math.inf if newest.state.has_read else now - self._empty_at
        behind_seconds = min(tier.age_seconds(now), own_seconds)
        if math.isfinite(behind_seconds):
            # From when on tombstones matter to the table says nothing of rows that the tier had before.
            # safety: tombstones-of-the-tier
            drained_ms, since_ms = now_ms - math.ceil(behind_seconds * 1000), NO_TIMES
        else:
            # safety: tailer-tombstones-given-up
            drained_ms, since_ms = newest.state.drained_ms, self._tombstones_since_ms
        held = replace(
            newest.state,
            seam=tier.end,
            watermark_ms=-1,
            drained_ms=drained_ms,
            tombstones_since_ms=since_ms,
        )
        check_tombstones(newest.definition, held, ends, log_now, now_ms)

    def _is_check_due(self) -> bool:
        """Whether the tier has been behind for so long that the log may have dropped tombstones."""
        assert self._tier is not None
        assert self._under is not None
        if not self._under.definition.has_key:
            return False
        now = self._clock.monotonic()
        return min(now - self._checked_at, self._tier.age_seconds(now)) > RECHECK_SECONDS

    def _is_news(self, positions: Seam, reached: Mapping[tuple[str, int], float]) -> bool:
        """Whether the log has said anything: a frozen process must not take "at the end" as it is, either."""
        assert self._tier is not None
        known = self._reached_end_at
        # safety: tailer-tombstones-of-a-new-partition
        return positions != self._tier.end or any(at > known.get(place, 0.0) for place, at in reached.items())

    def _new_in(self, starts: Seam, newest: PublishedSnapshot) -> Seam:
        """Where to begin to read the partitions that the tier does not have yet."""
        assert self._tier is not None
        places = [(topic, partition) for topic, partition, _ in starts.items()]
        return Seam({place: newest.state.seam.get(place) for place in places if place not in self._tier.end})

    def _round(self, tail: Tail) -> None:
        assert self._tier is not None
        assert self._feed is not None
        began_at = self._clock.monotonic()
        self._is_paused = self._tier.is_full(self._settings.hot_bytes_max)
        read = 0
        if not self._is_paused:
            with failstep("tailer.poll"):
                chunks = tail.poll(self.idle_seconds)
            silence = tail.silence()
            if silence is None:
                self._recover(tail)
            else:
                self._note(silence, silence.cause)
            positions, reached = tail.positions(), tail.reached_end_at()
            # safety: other-topic-not-taken, tailer-tombstones-again
            if self._is_other_log(tail) or (self._is_news(positions, reached) and self._is_check_due()):
                # What came may be of another topic, or lack tombstones: none is taken. Where nothing came,
                # the log may be unavailable, and asking it would keep pins waiting for their seals.
                self._leave_log()
                return
            self._feed.take(chunks, positions, reached)
            if chunks and isinstance(self._problem, RegistryUnreachable):
                self._recovered()
            self._reached_end_at = reached
            read = sum(len(chunk.offsets) for chunk in chunks)
            if self._goal is not None and not self._is_caught_up:
                self._is_caught_up = self._tier.end.at_least(self._goal)
        self._keep_up()
        if read < CONSUME_RECORDS_MAX // 2:  # more is not waiting: collect for the rest of the round
            self._wait(max(0.0, ROUND_SECONDS - (self._clock.monotonic() - began_at)))

    def _keep_up(self) -> None:
        newest = self._follower.newest
        if self._tier is not None:
            self._tier.tend(newest.state.seam if newest is not None else None)
        now, state = self._clock.monotonic(), (self._state(), self._is_caught_up)
        if now - self._status_at >= (self.status_seconds if state == self._said else STATUS_SECONDS):
            self._status_at, self._said = now, state
            self._say(self._state())

    def _note(self, problem: ThermoclineError, cause: str) -> None:
        """Logs a problem once; what passes by itself may be worded differently each time."""
        before = self._problem
        if before is None:
            self._problem_since = self._clock.monotonic()
        if before is None or (before.code, _worded(before)) != (problem.code, _worded(problem)):
            subject = (
                "hot tier cannot be written" if isinstance(problem, StorageFailed) else "log cannot be read"
            )
            extra = fields(
                table=self._table, code=problem.code, detail=problem.what, cause=cause, next=problem.next
            )
            log.error("the %s; answers are getting older", subject, extra=extra)
        self._problem = problem

    def _recover(self, tail: Tail) -> None:
        # That the log answers says nothing of the registry; the records that it held back come again.
        match self._problem:
            case RegistryUnreachable():
                return
            case TopicForbidden(topic=topic) if not tail.has_read(topic):
                return
        self._recovered()

    def _recovered(self) -> None:
        problem, self._problem = self._problem, None
        if problem is not None:
            seconds = round(self._clock.monotonic() - self._problem_since, 1)
            extra = fields(table=self._table, code=problem.code, seconds=seconds)
            log.info("reading continues", extra=extra)

    def _state(self) -> str:
        if self._problem is not None:
            return "waiting" if self._problem.retryable else "failed"
        if self._is_paused:
            return "paused"
        return "running" if self._goal is not None else "starting"

    def _offsets_to_ready(self) -> int:
        """How many offsets lie before the ends that it has to pass once."""
        if self._goal is None or self._tier is None or self._is_caught_up:
            return 0
        end = self._tier.end
        return sum(max(goal - end.get((topic, p)), 0) for topic, p, goal in self._goal.items())

    def _say(self, state: str) -> None:
        """Writes the status where it can be written: reading goes on without it."""
        self._status_file.say(self._status(state))

    def _status(self, state: str) -> dict[str, Any]:
        tier, feed = self._tier, self._feed
        status = {
            "state": state,
            "paused": self._is_paused,
            "caught_up_to_start_ends": self._is_caught_up,
            "offsets_to_ready": self._offsets_to_ready(),
            "problem": shown(self._problem),
            "hot_bytes_max": self._settings.hot_bytes_max,
            **follower_status(self._follower, self.reached),
            **self.standing(),
        }
        if tier is not None and feed is not None:
            status |= tier_status(tier, feed, self._clock)
        return status


def _worded(problem: ThermoclineError) -> str:
    """What of its words tells a problem from another one of its code."""
    return "" if problem.retryable else problem.what

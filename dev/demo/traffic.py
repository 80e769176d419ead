"""The traffic and all that goes with it, from the first message to the last, each in a thread."""

from __future__ import annotations

import random
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

from thermocline.dev.demo.figures import Scene, Served, Timings, commits_in, served_in
from thermocline.dev.demo.lookups import Entity, LookupConnection
from thermocline.dev.demo.site import Site
from thermocline.dev.demo.story import Probe, Story, Witness
from thermocline.dev.demo.views import ViewProbe
from thermocline.dev.stack import TOPIC
from thermocline.dev.workload import Event, produce
from thermocline.errors import EngineFailed, NotReady, ServerUnreachable
from thermocline.process.clock import Clock

TICK_SECONDS: Final = 0.25
"""Between looks at the threads and the processes, and so between frames."""
WINDOW_SECONDS: Final = 1.0
"""One column of each sparkline; as often, the server's status and ingest's log are read."""
# The story needs one commit after its first step; a busy machine takes half a minute for the first ones.
STORY_SECONDS_MAX: Final = 180.0
# Each step asks Trino, too.
STORY_WITH_VIEWS_SECONDS_MAX: Final = 600.0
# A tenth of what one core answers: the two cores of a small machine are for ingest and serving.
LOOKUPS_PER_SECOND: Final = 200
# The last ones, where the demo runs for longer than two minutes: 1 to 2 kB each.
KEPT_MAX: Final = 30_000
RETRY_SECONDS: Final = 0.05

Kept = tuple[Entity, bytes]
"""An entity, and the answer as it came."""


class Readers:
    """Looks up one user after the other, at a steady rate; the answers are kept, to be judged afterwards."""

    def __init__(
        self,
        lookups: LookupConnection,
        entities: Sequence[Entity],
        seed: int,
        clock: Clock,
        per_second: float = LOOKUPS_PER_SECOND,
    ) -> None:
        self.timings = Timings()
        self.kept: deque[Kept] = deque(maxlen=KEPT_MAX)
        self.refused = 0
        self._lookups = lookups
        self._entities = entities
        self._random = random.Random(seed)
        self._clock = clock
        self._per_second = per_second

    def run(self, stop: threading.Event) -> None:
        """Until told to stop. A server that does not answer is counted and asked again."""
        due_at = self._clock.monotonic()
        while not stop.is_set():
            entity = self._random.choice(self._entities)
            try:
                content, seconds = self._lookups.entity_bytes(entity)
            except (NotReady, ServerUnreachable):
                self.refused += 1
                stop.wait(RETRY_SECONDS)
            else:
                self.timings.add(seconds)
                self.kept.append((entity, content))
            # What was missed is not caught up with: a slow server is not to be asked all the more.
            due_at = max(due_at + 1 / self._per_second, self._clock.monotonic())
            stop.wait(due_at - self._clock.monotonic())


class Traffic:
    """Writes, looks up, measures and tells the story; ``run`` watches over that."""

    def __init__(self, site: Site, events: Iterable[Event], entities: Sequence[Entity]) -> None:
        self._site = site
        self._clock = clock = site.clock
        self._events = events
        self._loaded = len(site.oracle)
        seed = site.options.seed
        urls = site.stack.urls
        # Where there are several servers, all are asked: the story is told by another one than the probe.
        self._witnesses = [Witness(site.writer(), site.connection(url), clock) for url in (urls[0], urls[-1])]
        self._probe = Probe(self._witnesses[0], seed)
        self._story_views, self._view_probe = None, None
        if site.stack.trino:
            margin_seconds = site.stack.settings.views.margin_seconds
            self._story_views = site.views()
            self._view_probe = ViewProbe(site.writer(), site.views(), margin_seconds, seed, clock)
        self._story = Story(self._witnesses[1], self._story_views)
        self.readers = [
            Readers(site.connection(url), entities, seed, clock, LOOKUPS_PER_SECOND / len(urls))
            for url in urls
        ]
        self._lookups = site.connection(site.stack.url)
        self._served = Served()
        self._messages_per_second: list[float] = []
        self._lookups_per_second = 0.0
        self._counted = (0, 0)
        self._began_at = self._window_at = clock.monotonic()

    def run(self, check: Callable[[], None], show: Callable[[Scene], None]) -> Scene:
        """Until the time is over and the story told; all that was written is acknowledged then.

        ``check`` raises when a process has ended; ``show`` gets the scene, four times a second.

        Raises:
            EngineFailed: no commit came, or a process ended.
            VerdictBad: an answer was wrong.
            ThermoclineError: what else ended a thread.
        """
        works = [self._produce, self._probe.run, self._story.run, *(some.run for some in self.readers)]
        works += [self._view_probe.run] if self._view_probe else []
        stop = threading.Event()
        self._began_at = self._window_at = self._clock.monotonic()
        with ThreadPoolExecutor(len(works)) as pool:
            try:
                threads = [pool.submit(work, stop) for work in works]
                while not self._is_over():
                    check()
                    for thread in threads:
                        if thread.done():
                            thread.result()
                    self._observe()
                    show(self._scene())
                    self._clock.sleep(TICK_SECONDS)
            finally:
                stop.set()
        for thread in threads:
            thread.result()
        self._look()
        return self._scene()

    def _scene(self) -> Scene:
        probe, views = self._probe, self._story_views
        lookups = Timings(*(some.timings for some in self.readers))
        log = self._site.ingest_log.read_text(errors="replace")
        return Scene(
            elapsed_seconds=self._clock.monotonic() - self._began_at,
            total_seconds=self._site.options.seconds,
            messages=len(self._site.oracle) - self._loaded,
            freshness=probe.timings.summary(),
            lookups=lookups.summary(),
            lookups_per_second=self._lookups_per_second,
            windows=(self._messages_per_second, probe.timings.windows_ms, self.readers[0].timings.windows_ms),
            answers_checked=sum(witness.answers_checked for witness in self._witnesses),
            refused=sum(some.refused for some in self.readers)
            + sum(witness.answers_refused for witness in self._witnesses),
            served=self._served,
            commits=commits_in(log.splitlines()),
            story=tuple(self._story.steps),
            garbage=self._story.garbage,
            views=self._view_probe.figures(views) if self._view_probe and views else None,
        )

    def _produce(self, stop: threading.Event) -> None:
        site = self._site
        rate = site.options.rate
        produce(site.client_config, TOPIC, self._events, site.oracle, rate=rate, stop=stop)

    def _is_over(self) -> bool:
        elapsed_seconds = self._clock.monotonic() - self._began_at
        story_seconds_max = STORY_WITH_VIEWS_SECONDS_MAX if self._view_probe else STORY_SECONDS_MAX
        if elapsed_seconds > self._site.options.seconds + story_seconds_max:
            since = f"{elapsed_seconds:.0f} s ago"
            detail = f"no commit of what was written {since}; its log: {self._site.ingest_log}"
            raise EngineFailed(engine="`thermocline ingest run`", detail=detail)
        return elapsed_seconds >= self._site.options.seconds and self._story.is_told

    def _observe(self) -> None:
        """Once a window; closes it."""
        now = self._clock.monotonic()
        seconds = now - self._window_at
        if seconds < WINDOW_SECONDS:
            return
        self._window_at = now
        before = self._counted
        answered = sum(len(some.timings) for some in self.readers)
        self._counted = (len(self._site.oracle) - self._loaded, answered)
        self._messages_per_second.append((self._counted[0] - before[0]) / seconds)
        self._lookups_per_second = (self._counted[1] - before[1]) / seconds
        for timings in (self._probe.timings, *(some.timings for some in self.readers)):
            timings.close_window()
        self._look()

    def _look(self) -> None:
        with suppress(NotReady, ServerUnreachable):  # what was known stays on the screen
            self._served = served_in(self._lookups.get("/status"), self._served)

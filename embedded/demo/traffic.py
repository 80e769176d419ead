"""The traffic and all that goes with it, from the first message to the last."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from typing import Final

from embedded.demo.background import Background
from embedded.demo.commits import Commit, Commits
from embedded.demo.freshness import PROBE, Probe
from embedded.demo.lookups import Entity
from embedded.demo.options import DemoOptions
from embedded.demo.readers import Kept, Readers
from embedded.demo.scene import Reading, Scene, reading_of
from embedded.demo.site import Site
from embedded.demo.story import ADA, Story
from embedded.demo.view_door import Seen
from embedded.demo.view_traffic import ViewTraffic
from embedded.demo.witness import Witness
from embedded.workload import Event, produce
from thermocline.errors import EngineFailed, NotReady, ServerUnreachable
from thermocline.process.clock import Clock

TICK_SECONDS: Final = 0.25
"""Between looks at the threads and the processes, and so between frames."""
WINDOW_SECONDS: Final = 1.0
"""One column of each sparkline; as often, the server's status and the catalog are asked."""
# The story needs one commit after its first step; a busy machine takes half a minute for the first ones.
STORY_SECONDS_MAX: Final = 180.0
# Each step asks Trino, too.
STORY_WITH_VIEWS_SECONDS_MAX: Final = 600.0


class Traffic:
    """Writes, looks up, measures and tells the story, each in a thread; ``run`` watches over them."""

    def __init__(
        self, options: DemoOptions, site: Site, events: Iterable[Event], entities: Sequence[Entity]
    ) -> None:
        self._options = options
        self._site = site
        self._clock: Clock = site.clock
        self._events = events
        self._entities = entities
        self._loaded = len(site.oracle)
        self._witnesses = [Witness(site.writer(), site.lookups(), site.table, site.clock) for _ in range(2)]
        self._probe = Probe(self._witnesses[0], options.seed)
        self._views = ViewTraffic(site, entities, options.seed) if site.connect else None
        door = self._views.story_door if self._views else None
        self._story = Story(self._witnesses[1], site.clock, door)
        self._readers = Readers(site.lookups(), entities, options.seed, site.clock)
        self._lookups = site.lookups()
        self._commits = Commits(site.stack.settings, site.table, site.ingest_log)
        self._batches: Sequence[Commit] = ()
        self._reading = Reading()
        self._messages_per_second: list[float] = []
        self._lookups_per_second = 0.0
        self._counted = (0, 0)
        self._began_at = self._clock.monotonic()
        self._window_at = self._began_at

    @property
    def entities(self) -> list[Entity]:
        """All that may have rows."""
        of_views = self._views.entities if self._views else ()
        return sorted({*self._entities, ADA, PROBE, *of_views})

    @property
    def kept(self) -> Sequence[Kept]:
        """The answers that were given."""
        return tuple(self._readers.kept)

    @property
    def seen(self) -> Sequence[Sequence[Seen]]:
        """The answers that Trino gave, session by session."""
        return self._views.kept if self._views else ()

    @property
    def refused_by_trino(self) -> int:
        """Queries that it did not answer."""
        return self._views.figures().refused if self._views else 0

    @property
    def garbage(self) -> list[tuple[str, int, int]]:
        """Where the bad records were put: topic, partition, offset."""
        return [(*written.place, written.offset) for written in self._story.garbage]

    def run(self, check: Callable[[], None], show: Callable[[Scene], None]) -> None:
        """Until the time is over and the story told; all that was written is acknowledged then.

        ``check`` raises when a process has ended; ``show`` gets the scene, four times a second.

        Raises:
            EngineFailed: no commit came, or a process ended.
            VerdictBad: an answer was wrong.
            ThermoclineError: what else ended a thread.
        """
        self._began_at = self._window_at = self._clock.monotonic()
        with ExitStack() as running:
            threads = [
                running.enter_context(Background(name, work))
                for name, work in {
                    "traffic": self._produce,
                    "readers": self._readers.run,
                    "freshness": self._probe.run,
                    "story": self._story.run,
                    **(self._views.works if self._views else {}),
                }.items()
            ]
            while not self._is_over():
                check()
                for thread in threads:
                    thread.check()
                self._observe()
                show(self.scene())
                self._clock.sleep(TICK_SECONDS)
            for thread in threads:
                thread.finish()
        self._look()
        show(self.scene())

    def scene(self) -> Scene:
        """As of the last observation."""
        return Scene(
            elapsed_seconds=self._clock.monotonic() - self._began_at,
            total_seconds=self._options.seconds,
            messages=len(self._site.oracle) - self._loaded,
            messages_per_second=tuple(self._messages_per_second),
            freshness=self._probe.timings.summary(),
            lookups=self._readers.timings.summary(),
            lookups_per_second=self._lookups_per_second,
            answers_checked=sum(witness.answers_checked for witness in self._witnesses),
            refused=self._readers.refused + sum(witness.answers_refused for witness in self._witnesses),
            reading=self._reading,
            commits=self._batches,
            story=tuple(self._story.steps),
            garbage=len(self._story.garbage),
            views=self._views.figures() if self._views else None,
        )

    def look(self) -> Sequence[Commit]:
        """The commits, now."""
        self._commits.look()
        return self._commits.batches()

    def _produce(self, stop: threading.Event) -> None:
        rate = self._options.rate
        site = self._site
        produce(site.client_config, site.topic, self._events, site.oracle, rate=rate, stop=stop)

    def _is_over(self) -> bool:
        elapsed_seconds = self._clock.monotonic() - self._began_at
        story_seconds_max = STORY_WITH_VIEWS_SECONDS_MAX if self._views else STORY_SECONDS_MAX
        if elapsed_seconds > self._options.seconds + story_seconds_max:
            detail = (
                f"no commit of what was written {elapsed_seconds:.0f} s ago; its log: {self._site.ingest_log}"
            )
            raise EngineFailed(engine="`thermocline ingest run`", detail=detail)
        return elapsed_seconds >= self._options.seconds and self._story.is_told

    def _observe(self) -> None:
        """Once a window; closes it."""
        now = self._clock.monotonic()
        seconds = now - self._window_at
        if seconds < WINDOW_SECONDS:
            return
        self._window_at = now
        before = self._counted
        self._counted = (len(self._site.oracle) - self._loaded, len(self._readers.timings))
        self._messages_per_second.append((self._counted[0] - before[0]) / seconds)
        self._lookups_per_second = (self._counted[1] - before[1]) / seconds
        self._probe.timings.close_window()
        self._readers.timings.close_window()
        self._look()

    def _look(self) -> None:
        with suppress(NotReady, ServerUnreachable):  # what was known stays on the screen, growing old
            self._reading = reading_of(self._lookups.status(), self._reading)
        self._batches = self.look()

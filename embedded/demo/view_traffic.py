"""All that asks the views while the traffic runs, and what has come of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from embedded.demo.analysts import Analysts
from embedded.demo.lookups import Entity
from embedded.demo.scene import ViewFigures
from embedded.demo.site import Site
from embedded.demo.timings import Timings
from embedded.demo.view_door import Seen, View, ViewDoor
from embedded.demo.view_freshness import VIEW_PROBE, ViewProbe


class ViewTraffic:
    """Analysts, a probe, and a door for the story; each has its own session."""

    def __init__(self, site: Site, entities: Sequence[Entity], seed: int) -> None:
        self.story_door, analysts_door, probe_door = (site.view_door() for _ in range(3))
        self._doors: Sequence[ViewDoor] = (self.story_door, analysts_door, probe_door)
        self._analysts = Analysts(analysts_door, entities, seed)
        margin_seconds = site.stack.settings.views.margin_seconds
        self._probe = ViewProbe(site.writer(), probe_door, margin_seconds, seed, site.clock)

    @property
    def entities(self) -> Sequence[Entity]:
        """Of its own rows."""
        return (VIEW_PROBE,)

    @property
    def works(self) -> Mapping[str, Callable[[threading.Event], None]]:
        """What to do in a thread each, by name."""
        return {"analysts": self._analysts.run, "freshness by view": self._probe.run}

    @property
    def kept(self) -> Sequence[Sequence[Seen]]:
        """The answers that were given; those to one session stand in their order."""
        return [tuple(door.kept) for door in self._doors]

    def figures(self) -> ViewFigures:
        """As of now."""
        return ViewFigures(
            by_key=self._probe.timings[View.BY_KEY].summary(),
            live=self._probe.timings[View.LIVE].summary(),
            by_key_queries=self._queries(View.BY_KEY).summary(),
            live_queries=self._queries(View.LIVE).summary(),
            answers=sum(door.answers for door in self._doors),
            refused=sum(door.refused for door in self._doors),
        )

    def _queries(self, view: View) -> Timings:
        return Timings.of(door.timings[view] for door in self._doors)

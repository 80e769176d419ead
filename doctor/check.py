"""A check, and what checks share: the settings, and the sources that earlier checks have opened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from thermocline.doctor.finding import Finding
from thermocline.rules.topic_patterns import finds

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from thermocline.doctor.sample import Sample
    from thermocline.iceberg.catalog import SnapshotState
    from thermocline.kafka.log import Log
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings

__all__ = ["CHECK_SECONDS_MAX", "CONFIGURATION", "Check", "Examination"]

CHECK_SECONDS_MAX: Final = 20.0
"""For each check; what is well takes a second at most, but for the sampled ones."""
CONFIGURATION: Final = "configuration"


@dataclass(slots=True)
class Examination:
    """What is examined, and what of it is known by now.

    ``tables`` are those to look at. ``log``, ``catalog``, ``loaded`` and ``states`` are there once their
    checks found them; there may be no catalog yet (``is_catalog_known``). ``topics`` are those that exist and
    that the user may describe.
    """

    file: Path | None
    clock: Clock
    tables: tuple[str, ...] = ()
    read_settings: Settings | None = None
    log: Log | None = None
    topics: tuple[str, ...] = ()
    catalog: Catalog | None = None
    is_catalog_known: bool = False
    loaded: dict[str, Table] = field(default_factory=dict)
    states: dict[str, SnapshotState] = field(default_factory=dict)
    samples: dict[str, Sample] = field(default_factory=dict)

    @property
    def settings(self) -> Settings:
        """The settings, for checks that need the configuration."""
        assert self.read_settings is not None, "a check needs the configuration and does not say so"
        return self.read_settings

    def definition(self, name: str) -> LiveTable:
        """The table's own definition; that of the file where it isn't there."""
        from thermocline.iceberg.catalog import definition_of  # noqa: PLC0415  (slow)

        if name in self.loaded:
            return definition_of(self.loaded[name], name)
        return self.settings.table(name).definition(name)

    def topics_of(self, name: str) -> tuple[str, ...]:
        """The topics that feed a table, as far as they can be asked for."""
        table = self.settings.table(name)
        found = [topic for topic in self.topics if finds(table.topic_patterns, topic)]
        return (*(topic for topic in table.topic_names if topic in self.topics), *found)

    def by_topic(self) -> Mapping[str, Sequence[str]]:
        """The tables by the topics that feed them, as far as these can be asked for."""
        found: dict[str, list[str]] = {}
        for name in self.tables:
            for topic in self.topics_of(name):
                found.setdefault(topic, []).append(name)
        return found


@dataclass(frozen=True, slots=True)
class Check:
    """One check: its name, what it asks, and the function that looks.

    ``needs`` are checks without which it can't look: where one of them found nothing to look at, neither
    does this one. ``is_open`` says of such a check, once it ran, whether others can go on.
    """

    name: str
    asks: str
    look: Callable[[Examination], Sequence[Finding]]
    needs: tuple[str, ...] = (CONFIGURATION,)
    is_open: Callable[[Examination], bool] = field(default=lambda _: True)
    seconds_max: float = CHECK_SECONDS_MAX

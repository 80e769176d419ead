"""Runs the tailer of a table with all that it needs: its follower, the log, and what looks at the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from thermocline.iceberg.catalog import quarantine_identifier
from thermocline.process.clock import SystemClock
from thermocline.serving.cold.folder import ColdPublisher
from thermocline.serving.store.layout import COLD
from thermocline.serving.tail.bad_keeper import BadKeeper
from thermocline.serving.tail.facts_keeper import FactsKeeper
from thermocline.serving.tail.follower import CatalogTable, Follower
from thermocline.serving.tail.source import KafkaSource
from thermocline.serving.tail.standing import ServedStanding
from thermocline.serving.tail.tailer import ROUND_SECONDS, STATUS_SECONDS, Tailer

if TYPE_CHECKING:
    import threading

    from pyiceberg.table import Table

    from thermocline.kafka.log import Log
    from thermocline.kafka.shared_tail import SharedConsumer
    from thermocline.settings import Settings

__all__ = ["Together", "run_tailer"]

# Where nothing comes, a round of one of many tables in a process lasts up to this. A record ends it at once;
# an extract that pins the hot tier waits for its end.
IDLE_SECONDS_MAX: Final = 0.25
# Of all tables of a process: a file is replaced each time, which is most of what an idle table costs.
STATUSES_PER_SECOND: Final = 10
STATUS_SECONDS_MAX: Final = 5.0


@dataclass(frozen=True, slots=True)
class Together:
    """What the tailers of a process have in common; ``log`` answers where their tables stand."""

    consumer: SharedConsumer
    log: Log
    tables: int


def run_tailer(
    settings: Settings, table_name: str, stop: threading.Event, together: Together | None = None
) -> None:
    """Tails a table until it is told to stop. Its state is in ``<state_dir>/<table>``."""
    consumer, log = (None, None) if together is None else (together.consumer, together.log)
    tables = 1 if together is None else together.tables
    folder = settings.serving.state_dir / table_name
    clock = SystemClock()
    identifier = settings.table(table_name).identifier
    companion = CatalogTable(settings.catalog, table_name, quarantine_identifier(identifier))
    facts = FactsKeeper(folder, settings.table(table_name).commit_interval_seconds, clock)
    bad = BadKeeper(folder, companion, clock)

    def note(table: Table) -> None:
        facts.look(table)
        bad.look(table)

    follower = Follower(
        table_name,
        CatalogTable(settings.catalog, table_name, identifier),
        ColdPublisher(folder / COLD),
        tables,
        note,
    )
    source = KafkaSource(settings.kafka, table_name, clock, consumer)
    registry = settings.registry.client()
    tailer = Tailer(settings.serving, table_name, folder, follower, source, clock, stop.wait, registry)
    tailer.idle_seconds = min(ROUND_SECONDS * tables, IDLE_SECONDS_MAX)
    tailer.status_seconds = min(max(tables / STATUSES_PER_SECOND, STATUS_SECONDS), STATUS_SECONDS_MAX)
    standing = ServedStanding(settings.kafka, follower, tailer, clock, tables, log)
    tailer.standing = standing.said
    follower.start()
    standing.start()
    try:
        tailer.run(stop)
    finally:
        standing.close()
        follower.stop()
        tailer.close()

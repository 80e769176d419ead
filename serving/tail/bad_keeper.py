"""Keeps what a table's quarantine holds, for whoever looks at the table's status.

The quarantine is a table of its own, which takes requests to the catalog and the store. So it is looked at
only while somebody looks, once for all who do, up to a bound, and in a thread of its own: following does not
wait for it.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from thermocline.errors import TableMissing, ThermoclineError
from thermocline.iceberg.catalog import definition_of
from thermocline.iceberg.newest_rows import newest_rows
from thermocline.process.logs import fields
from thermocline.serving.store.layout import WANTED_CLOSELY
from thermocline.serving.tail.bad_facts import BAD_FACTS, GROUPS_MAX, BadFacts, BadRecord, grouped
from thermocline.serving.tail.beside import Beside, Run, in_thread, is_wanted
from thermocline.serving.tail.tailer_status import replace_json

if TYPE_CHECKING:
    from pathlib import Path

    from pyiceberg.table import Table

    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.serving.tail.follower import Loader

__all__ = ["BadKeeper", "facts_of"]

LOOK_MS: Final = 30_000
"""How old an answer gets before the quarantine is asked for again."""
RECORDS_MAX: Final = 5_000
"""Of the quarantine, the newest."""
_COLUMNS: Final = ("topic", "topic_id", "partition", "offset", "timestamp", "stage", "reason")
"""Never key, value or headers."""

log = logging.getLogger(__name__)


class BadKeeper:
    """What the quarantine of one table holds."""

    def __init__(
        self,
        folder: Path,
        loader: Loader,
        clock: Clock,
        run: Run = in_thread,
    ) -> None:
        """``loader`` loads the companion table; ``run`` does what takes long."""
        self._folder = folder
        self._loader = loader
        self._clock = clock
        self._beside = Beside(run)
        self._looked_ms: int | None = None
        self._known: tuple[tuple[str, int], BadFacts] | None = None

    def look(self, table: Table) -> None:
        """Looks at the quarantine of a table if somebody wants to know. Raises nothing."""
        now_ms = self._clock.now_ms()
        if self._is_due(now_ms) and self._beside.begin(lambda: self._keep(table)):
            self._looked_ms = now_ms

    def _is_due(self, now_ms: int) -> bool:
        if self._looked_ms is not None and 0 <= now_ms - self._looked_ms < LOOK_MS:
            return False
        return is_wanted(self._folder / WANTED_CLOSELY, now_ms)  # safety: quarantine-read-while-wanted

    def _keep(self, table: Table) -> None:
        try:
            replace_json(self._folder / BAD_FACTS, self._facts(table))
        except Exception as error:  # noqa: BLE001  the disk may fail, and a client of the catalog, too
            log.warning("bad records for the status not kept", extra=fields(detail=str(error)))

    def _facts(self, table: Table) -> BadFacts:
        now_ms = self._clock.now_ms()
        try:
            quarantine = self._loader.load()
            definition = definition_of(table, self._folder.name)
            version = quarantine.metadata_location, definition.version
            if self._known is None or self._known[0] != version:
                self._known = version, facts_of(quarantine, definition, now_ms)
            return msgspec.structs.replace(self._known[1], as_of_ms=now_ms)
        except TableMissing:
            return BadFacts(now_ms, problem="the quarantine is missing; ingest makes it again, empty")
        except ThermoclineError as error:
            self._loader.reconnect()
            return self._known_with(now_ms, error.what)
        except Exception as error:  # noqa: BLE001  a store raises what it likes
            log.warning("the quarantine can't be read", extra=fields(detail=str(error)))
            return self._known_with(now_ms, f"the quarantine can't be read: {type(error).__name__}")

    def _known_with(self, now_ms: int, problem: str) -> BadFacts:
        last = self._known[1] if self._known is not None else BadFacts(now_ms)
        return msgspec.structs.replace(last, problem=problem)


def facts_of(quarantine: Table, definition: LiveTable, now_ms: int) -> BadFacts:
    """What a quarantine holds. Raises `CatalogUnreachable`."""
    rows, is_all = newest_rows(quarantine, _COLUMNS, RECORDS_MAX)
    records = _records(rows)
    groups = grouped(records, definition)
    return BadFacts(
        now_ms,
        groups=tuple(groups[:GROUPS_MAX]),
        more_groups=max(len(groups) - GROUPS_MAX, 0),
        looked_at=len(records),
        is_all=is_all,
    )


def _records(rows: Sequence[dict[str, Any]]) -> list[BadRecord]:
    """Each record once: a crash of ingest leaves repeats."""
    found = {
        (row["topic_id"], row["partition"], row["offset"]): BadRecord(
            topic=row["topic"],
            partition=row["partition"],
            offset=row["offset"],
            stage=row["stage"],
            reason=row["reason"],
            at_ms=int(1000 * row["timestamp"].timestamp()),
        )
        for row in rows
    }
    return list(found.values())

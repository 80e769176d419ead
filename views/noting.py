"""Leaves what each view shows beside the table (`thermocline.iceberg.view_notes`), after a publication."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from thermocline.errors import first_line
from thermocline.iceberg.view_notes import ViewNote, ViewNotes, write_view_notes
from thermocline.process.logs import fields
from thermocline.views.leases import RENEWED_SECONDS
from thermocline.views.published import ViewAction
from thermocline.views.render_view import view_name

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.errors import ThermoclineError
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.views.plan import PlannedView
    from thermocline.views.published import PublishedView
    from thermocline.views.render import Mode

__all__ = ["ViewNoter", "published_notes", "withdrawn_notes"]

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ViewNoter:
    """Writes the notes of one table where they changed, and again now and then."""

    name: str
    clock: Clock
    _views: tuple[ViewNote, ...] = ()
    _at: float = -inf

    def note(self, table: Table, views: Iterable[ViewNote]) -> None:
        """Leave these. A store that refuses them is logged, and holds up no publication."""
        new, now = tuple(views), self.clock.monotonic()
        if new == self._views and now - self._at < RENEWED_SECONDS:
            return
        try:
            write_view_notes(table.io, table.location(), ViewNotes(self.clock.now_ms(), new))
        except Exception as error:  # noqa: BLE001  a store raises what it likes, and nothing hangs on a note
            extra = fields(table=self.name, detail=first_line(error))
            _logger.warning("notes of the views not left: next time", extra=extra)
        else:
            self._views, self._at = new, now


def published_notes(
    verdicts: Mapping[PlannedView, ViewAction], found: Mapping[str, PublishedView | None]
) -> Iterable[ViewNote]:
    """Of views that were published; ``found`` is what stood there before."""
    for one, what in verdicts.items():
        schema, view = one.schema_and_name
        name, standing = f"{schema}.{view}", found.get(view.lower())
        plan = one.plan
        snapshot_id = None if plan.live is not None else plan.snapshot_id
        until_ms, version = one.until_ms, plan.definition.version
        if what is not ViewAction.REPLACE and standing is not None:
            snapshot_id, until_ms = standing.snapshot_id, standing.until_ms
            version = standing.definition_version
        yield ViewNote(name, str(plan.mode), snapshot_id, until_ms, version)


def withdrawn_notes(
    definition: LiveTable, stops: Mapping[Mode, ThermoclineError], withdrawn: Iterable[str]
) -> Iterable[ViewNote]:
    """Of views that refuse to answer since then, by why."""
    names = set(withdrawn)
    for mode, stop in stops.items():
        name = ".".join(view_name(definition, mode))
        if name in names:
            yield ViewNote(name, str(mode), None, None, definition.version, f"[{stop.code}] {stop.what}")

"""Drop a table's views, and nothing else that stands beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from thermocline.iceberg.catalog import find_table
from thermocline.iceberg.view_notes import forget_view_notes
from thermocline.views.leases import held_views, release
from thermocline.views.publish import find_all_views
from thermocline.views.render import Mode
from thermocline.views.render_view import drop_view, view_name
from thermocline.views.view_status import pinned_names

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings
    from thermocline.views.published import PublishedView
    from thermocline.views.trino_client import Trino

__all__ = ["drop_views"]


def drop_views(
    settings: Settings, name: str, catalog: Catalog, trino: Trino, pinned: str | None = None
) -> list[str]:
    """Drop all views of a table, or one pinned view; the names of those that were there, or had a lease.

    Their leases are released, and with them those of views that are gone already, as after a DROP VIEW in
    Trino, or if the store failed when they were dropped. Where Trino does not list the table itself, nothing
    says that they are gone. The table need not exist any more. What has the name of a view and is not ours
    stays.

    Raises:
        QueryError: Trino is unavailable, or refuses.
        StorageFailed: a lease could not be released; to be repeated.
    """
    definition = settings.table(name).definition(name)
    table = find_table(catalog, definition.identifier)
    # Before the views are looked for: of what somebody pins meanwhile, none or all is dropped (`pin_view`).
    held = [] if table is None else held_views(table)
    found = find_all_views(settings, name, trino)
    gone = _gone(definition, held, found)
    if pinned is not None:
        gone = [view for view in gone if view == ".".join(view_name(definition, Mode.PINNED, pinned))]
    dropped = []
    for mode, called in _there(definition, found):
        if pinned is not None and (mode, called) != (Mode.PINNED, pinned):
            continue
        view = ".".join(view_name(definition, mode, called))
        trino.rows(drop_view(definition, settings.views.lake, mode, called), view)
        dropped.append(view)
    if table is not None:
        for view in (*dropped, *gone):
            release(table, view)
        if pinned is None:
            forget_view_notes(table.io, table.location())
    return [*dropped, *gone]


def _gone(definition: LiveTable, held: Sequence[str], found: Mapping[str, PublishedView | None]) -> list[str]:
    """The views that have a lease and are not there, where Trino lists the table."""
    schema, _, own = definition.identifier.rpartition(".")
    return [
        view
        for view in held
        if own.lower() in found  # safety: views-drop-listed
        and view.rpartition(".")[0] == schema
        and view.rpartition(".")[2].lower() not in found
    ]


def _there(definition: LiveTable, found: Mapping[str, PublishedView | None]) -> Iterator[tuple[Mode, str]]:
    """The mode of each view that is there, and what a pinned one is called."""
    for called in pinned_names(definition, found):
        yield Mode.PINNED, called
    for mode in (Mode.LIVE, Mode.LIVE_BY_KEY, Mode.COLD):
        if found.get(view_name(definition, mode)[1].lower()) is not None:
            yield mode, ""

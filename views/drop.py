"""Drop a table's views, and nothing else that stands beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thermocline.iceberg.catalog import find_table
from views.leases import release
from views.publish import find_all_views
from views.render import Mode
from views.render_view import drop_view, view_name
from views.view_status import pinned_names

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog

    from thermocline.settings import Settings
    from views.trino_client import Trino

__all__ = ["drop_views"]


def drop_views(
    settings: Settings, name: str, catalog: Catalog, trino: Trino, pinned: str | None = None
) -> list[str]:
    """Drop all views of a table, or one pinned view; the names of those that were there.

    The table need not exist any more. What has the name of a view and is not ours stays.

    Raises:
        QueryError: Trino is away, or refuses.
    """
    definition = settings.table(name).definition(name)
    found = find_all_views(settings, name, trino)
    kinds = [(Mode.PINNED, one) for one in pinned_names(definition, found) if pinned in (None, one)]
    if pinned is None:
        kinds += [
            (mode, "")
            for mode in (Mode.LIVE, Mode.LIVE_BY_KEY, Mode.COLD)
            if found.get(view_name(definition, mode)[1].lower()) is not None
        ]
    table = find_table(catalog, definition.identifier)
    dropped = []
    for mode, called in kinds:
        view = ".".join(view_name(definition, mode, called))
        trino.rows(drop_view(definition, settings.views.lake, mode, called), view)
        if table is not None:
            release(table, view)
        dropped.append(view)
    return dropped

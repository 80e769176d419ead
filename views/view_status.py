"""The status of a table's views: which there are, what each reflects, and whether that is the newest."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thermocline.process.clock import iso_time
from thermocline.views.plan import modes_of
from thermocline.views.render import Mode
from thermocline.views.render_view import view_name

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import TableSettings
    from thermocline.views.published import PublishedView

__all__ = ["StandingView", "pinned_names", "standing_views"]


@dataclass(frozen=True, slots=True)
class StandingView:
    """One of the views that a table should have.

    ``problem`` says why it does not answer as of the newest snapshot, or as of now; empty where it does.
    ``snapshot_id`` is None of a view of a live table. ``ends_at`` is empty where nothing ends it. One that is
    withdrawn refuses until the log can be trusted again.
    """

    view: str
    snapshot_id: int | None
    ends_at: str
    problem: str
    is_withdrawn: bool = False


def standing_views(
    table: TableSettings,
    definition: LiveTable,
    newest_id: int,
    found: Mapping[str, PublishedView | None],
    now_ms: int,
    hot: str = "kafka",
) -> Iterator[StandingView]:
    """The table's views, in the order of the settings; ``found`` is what `publish.find_views` gives.

    ``hot`` is as `ViewsSettings.hot` says it.
    """
    for mode in modes_of(table, definition, hot):
        schema, name = view_name(definition, mode)
        snapshot_id = None if hot == "server" and mode is not Mode.COLD else newest_id
        published = found.get(name.lower())
        until_ms = published.until_ms if published else None
        yield StandingView(
            f"{schema}.{name}",
            published.snapshot_id if published else None,
            "" if until_ms is None else iso_time(until_ms),
            _problem(published, name.lower() in found, _Wanted(definition, snapshot_id), now_ms),
            published is not None and published.withdrawn is not None,
        )


def pinned_names(definition: LiveTable, found: Mapping[str, PublishedView | None]) -> list[str]:
    """The names of the table's pinned views, what comes after TABLE_at_."""
    start = view_name(definition, Mode.PINNED, "")[1].lower()
    return [
        name.removeprefix(start)
        for name, published in sorted(found.items())
        if published and published.mode == Mode.PINNED and published.table == definition.identifier
    ]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """What a view should reflect; of a live table no snapshot of its own."""

    definition: LiveTable
    snapshot_id: int | None


def _problem(published: PublishedView | None, is_there: bool, wanted: _Wanted, now_ms: int) -> str:
    if published is None:
        return "something that Thermocline did not publish" if is_there else "not there"
    if published.withdrawn is not None:
        return f"withdrawn: {published.withdrawn}"
    if published.until_ms is not None and published.until_ms <= now_ms:
        return "it has ended, and refuses to answer"
    if (published.snapshot_id is None) != (wanted.snapshot_id is None):
        return "it reads hot rows from elsewhere than views.hot says"
    if published.snapshot_id != wanted.snapshot_id:
        return "older: right, as of a snapshot before the newest"
    if published.snapshot_id is None and published.definition_version != wanted.definition.version:
        return "older: of the table's definition before the newest"
    return ""

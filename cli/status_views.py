"""The part of ``thermocline status`` about views in Trino, where they are enabled."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from thermocline.cli.output import error_document
from thermocline.errors import DependencyMissing, ThermoclineError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from thermocline.iceberg.catalog import SnapshotState
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings
    from thermocline.views.trino_client import Trino


def ask_trino(settings: Settings) -> tuple[Trino | None, dict[str, Any]]:
    """Trino, where it answers, and what to say of it."""
    answer: dict[str, Any] = {"at": settings.views.url}
    try:
        from thermocline.views.trino_client import Trino
    except ModuleNotFoundError:  # as where only serving is installed: the rest is told
        missing = DependencyMissing.of_extra("the Python package trino", "views")
        return None, answer | {"error": error_document(missing)}
    try:
        trino = Trino(settings.views)
        return trino, answer | {"version": trino.rows("SELECT version()")[0][0]}
    except ThermoclineError as error:
        return None, answer | {"error": error_document(error)}


def views_of(
    settings: Settings, name: str, definition: LiveTable, state: SnapshotState, trino: Trino
) -> list[dict[str, Any]]:
    """The table's views; where Trino refuses to tell, one entry that says so."""
    from thermocline.process.clock import SystemClock
    from thermocline.views.publish import find_views
    from thermocline.views.view_status import standing_views

    try:
        found = find_views(settings, name, trino)
    except ThermoclineError as error:
        problem = f"[{error.code}] {error.what}"
        return [{"view": name, "snapshot_id": None, "ends_at": "", "problem": problem}]
    now_ms = SystemClock().now_ms()
    standing = standing_views(
        settings.table(name), definition, state.snapshot_id, found, now_ms, settings.views.hot
    )
    return [
        asdict(one) | {"snapshot_id": None if one.snapshot_id is None else str(one.snapshot_id)}
        for one in standing
    ]


def rows_of(report: dict[str, Any]) -> Iterator[tuple[object, ...]]:
    """A line for each view."""
    for entry in report["tables"]:
        for view in entry.get("views", ()):
            yield (
                view["view"],
                view["snapshot_id"],
                view["ends_at"],
                view["problem"] or ("as of the newest snapshot" if view["snapshot_id"] else "as of now"),
            )

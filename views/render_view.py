"""The statements that make a view: its name, its comment, which carries the read point, and its query."""

from __future__ import annotations

import json
from typing import Final

from thermocline.rules.definition import LiveTable
from thermocline.views import sql
from thermocline.views.render import Mode, ViewPlan, query

__all__ = ["create_view", "drop_view", "view_comment", "view_name", "withdrawn_view"]

TIME_TRAVEL: Final = (
    "Trino ignores FOR TIMESTAMP AS OF and FOR VERSION AS OF on views: for earlier rows, use a pinned view"
)
"""Nothing that a view can evaluate tells it of the clause; see docs/decisions-views.md."""


def view_name(definition: LiveTable, mode: Mode, pinned: str = "") -> tuple[str, str]:
    """Schema and name of a table's view, beside the table; ``pinned`` tells pinned ones apart."""
    *namespace, table = definition.identifier.split(".")
    ending = f"at_{pinned}" if mode is Mode.PINNED else str(mode)
    return ".".join(namespace), f"{table}_{ending}"


def create_view(plan: ViewPlan, pinned: str = "", comment: str = "") -> str:
    """The statement that makes or replaces the view of a plan; by default its comment is `view_comment`.

    The view runs with the rights of its owner, so that its readers need none on the Kafka catalog.
    """
    name = sql.qualified(plan.catalog, *view_name(plan.definition, plan.mode, pinned))
    return _statement(name, comment or view_comment(plan), query(plan))


def view_comment(plan: ViewPlan) -> str:
    """What a view reflects, as JSON; equal for plans that make the same view.

    One of a live table reflects no snapshot of its own.
    """
    fields: dict[str, object] = {"mode": plan.mode}
    if plan.live is not None:
        fields["live"] = plan.live
    else:
        fields["snapshot_id"] = str(plan.snapshot_id)
    if plan.mode is not Mode.COLD and plan.live is None:
        fields["seam"] = plan.window.seam.to_dict()
        if plan.window.end is not None:
            fields["end"] = plan.window.end.to_dict()
        if plan.window.margin_ms is not None:
            fields["margin_ms"] = plan.window.margin_ms
    if plan.expires_at is not None:
        fields["expires_at"] = plan.expires_at.isoformat(timespec="milliseconds")
    fields |= {"definition_version": plan.definition.version, "time_travel": TIME_TRAVEL}
    return json.dumps({"thermocline": fields}, separators=(",", ":"))


def withdrawn_view(definition: LiveTable, catalog: str, mode: Mode, reason: str) -> str:
    """The statement that makes a view whose every query fails with the reason.

    Its columns hang on random numbers: a constant one would let Trino see that a condition on it is never
    met, and answer with no rows rather than fail.
    """
    name = sql.qualified(catalog, *view_name(definition, mode))
    columns = [
        f"IF(random() < 2, CAST(NULL AS {column.type.trino})) AS {sql.name(column.name)}"
        for column in definition.columns
    ]
    body = f"""\
{sql.comment("Withdrawn: each query fails with the reason.")}
{sql.select(columns, "(VALUES 1)")}
WHERE CAST(fail({sql.literal(reason)}) AS boolean)"""
    comment = {"mode": mode, "withdrawn": reason, "definition_version": definition.version}
    return _statement(name, json.dumps({"thermocline": comment}, separators=(",", ":")), body)


def drop_view(definition: LiveTable, catalog: str, mode: Mode, pinned: str = "") -> str:
    """The statement that drops a view, if it is there."""
    return f"DROP VIEW IF EXISTS {sql.qualified(catalog, *view_name(definition, mode, pinned))}"


def _statement(name: str, comment: str, body: str) -> str:
    return f"""\
CREATE OR REPLACE VIEW {name}
COMMENT {sql.literal(comment)}
SECURITY DEFINER AS
{body}"""

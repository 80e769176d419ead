"""Hot rows from the server in a view's query: scans of the catalog on Trino's Thrift connector.

The server lays records over each other by ``thermocline.rules``, so nothing of them is said again here. All
scans of a query carry the same token, a literal that Trino makes of the query's own time, and so find the
same state of the hot rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from thermocline.rules import hot_columns as hot
from thermocline.rules.column_types import ColumnType
from thermocline.rules.definition import LiveTable
from thermocline.views import sql

__all__ = ["served_rows"]

TOKEN: Final = "CAST(to_unixtime(current_timestamp(6)) * 1e6 AS bigint)"  # noqa: S105
"""The query's time in microseconds: one literal wherever it stands in a query."""


def served_rows(
    definition: LiveTable,
    catalog: str,
    snapshot_id: int,
    *,
    servers: int,
    scans: int,
    wanted: Collection[str],
    others: Mapping[str, str],
) -> str:
    """A query that gives the wanted columns of the hot rows, and other expressions by name.

    ``scans`` is how often the view reads hot rows: after that the server need not keep their state.
    ``servers`` is the `group_of` those that answer together.
    """
    columns = [
        f"{_value(one.column.type, sql.name(one.name))} AS {sql.name(one.column.name)}"
        for one in hot.hot_columns(definition)
        if one.column.name in wanted
    ]
    listed = sql.select(
        [*columns, *(f"{says} AS {name}" for name, says in others.items())],
        sql.qualified(catalog, hot.SCHEMA, hot.hot_table(definition)),
    )
    # safety: render-token, render-servers
    return f"""\
{listed}
WHERE {hot.SNAPSHOT} = {snapshot_id} AND {hot.SCANS} = {scans} AND {hot.SERVERS} = {servers}
  AND {hot.ASKED} = {TOKEN}"""


def _value(of: ColumnType, found: str) -> str:
    """A column of the declared type, from what the connector has of it (`serving.trino.blocks.as_served`)."""
    form = of.entry.hot
    assert form is not None, "a table that the connector can't have"
    return form.cast.format(of=of, found=found)

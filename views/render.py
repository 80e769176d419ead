"""The queries of a live table's views: the cold rows of one snapshot, overlaid with the log beyond its seam.

The rules are those of ``thermocline.rules.decode`` and ``thermocline.rules.fold``, in SQL: a record that is
bad for one is bad for the other, and of several records of a key the same one wins. Names are fully
qualified, columns are listed, provenance stays hidden.
"""

# ruff: noqa: S608  (what stands in a statement is quoted by views.sql, or an operator's own condition)

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

from thermocline.rules.column_types import Kind
from thermocline.rules.definition import Column, LiveTable
from thermocline.views import sql
from thermocline.views.render_records import DELETED, GOOD, good_records
from thermocline.views.render_window import LogWindow

__all__ = ["Mode", "ViewPlan", "query"]

BETWEEN_PARTITIONS: Final = "_timestamp DESC, _topic DESC, _partition_id DESC"  # safety: sql-between
"""``fold.order_of``, the greatest first: what decides between the last records of a key's partitions.

The broker's times are partition times, as they don't go back. Producers' times may, and their greatest so far
would take a pass over all records of a partition: where a key is met in several of them, the query fails.
"""


class Mode(StrEnum):
    """The kinds of view."""

    LIVE = "live"
    LIVE_BY_KEY = "live_by_key"
    COLD = "cold"
    PINNED = "pinned"


@dataclass(frozen=True, slots=True)
class ViewPlan:
    """What one view is made from.

    ``catalog`` is Trino's name of the Iceberg catalog. After ``expires_at`` every query on the view fails:
    from then on the log may lack records that the snapshot does not have. ``row_filter`` is a condition in
    SQL on the declared columns, as ``app_id = current_user``, that an operator gives. With ``live``, Trino's
    name of the catalog of the server's live tables, the view reads the table there, as of now.
    ``has_append_times``: all topics have the broker's times.
    """

    mode: Mode
    definition: LiveTable
    catalog: str
    snapshot_id: int
    window: LogWindow
    expires_at: datetime | None = None
    row_filter: str | None = None
    live: str | None = None
    has_append_times: bool = False

    def __post_init__(self) -> None:
        if self._reads_twice and not self.window.is_bounded:  # safety: render-bound
            raise ValueError("a view that reads the log twice needs an end or a margin, the same for both")
        # safety: render-transactions
        if self._reads_twice and self.definition.transactional and self.window.end is None:
            raise ValueError("a transaction's records come to light after their time: it takes an end")
        if self.mode is Mode.PINNED and self.window.end is None:
            raise ValueError("a pinned view needs its end")
        if self.mode is Mode.LIVE_BY_KEY and not self.definition.has_key:
            raise ValueError("a table without a key has no view by key")

    @property
    def _reads_twice(self) -> bool:
        return self.mode in {Mode.LIVE, Mode.PINNED} and self.definition.has_key and self.live is None


def query(plan: ViewPlan) -> str:
    """The view's query, with comments that say what each part does."""
    if plan.live is not None:
        return _filtered(plan, _as_of_now(plan, plan.live))  # safety: render-filter-live
    records = None if plan.mode is Mode.COLD else plan.window.records()
    if records is None:
        return _filtered(plan, _cold(plan))  # safety: render-filter-cold
    if not plan.definition.has_key:
        body = _appended(plan)
    elif plan.mode is Mode.LIVE_BY_KEY:
        body = _ranked(plan)
    else:
        body = _overlaid(plan)
    parts = good_records(plan.definition, records)
    if plan.definition.has_key:
        parts.append(sql.part("_last", _LAST_OF_PARTITIONS, _last_of_partitions(plan.definition)))
    return "WITH\n" + ",\n".join(parts) + "\n" + _filtered(plan, body)  # safety: render-filter


_LAST_OF_PARTITIONS: Final = """\
Of each key the record with the highest offset in each partition. Only between these, of a key that stood in
several partitions, do times decide."""


def _last_of_partitions(definition: LiveTable) -> str:
    columns = f"{_columns(definition)}, {DELETED}, _topic, _partition_id, _timestamp"
    key = f"{_key(definition)}, _topic, _partition_id"
    return f"SELECT {columns}\n{_first_of(columns, key, '_partition_offset DESC', GOOD)}"  # safety: sql-order


def _filtered(plan: ViewPlan, body: str) -> str:
    if plan.row_filter is None:
        return body
    return f"""\
{sql.comment("Only the rows that the operator's filter lets this user see.")}
SELECT {_columns(plan.definition)}
FROM (
{sql.indented(body)}
)
WHERE ({plan.row_filter}
)"""


def _cold(plan: ViewPlan) -> str:
    return f"""\
{sql.comment(f"Cold: the rows of snapshot {plan.snapshot_id}.")}
SELECT {_columns(plan.definition)}
FROM {_snapshot(plan)}"""


def _appended(plan: ViewPlan) -> str:
    """Without a key no row replaces another."""
    return f"""\
{_cold(plan)}
UNION ALL
{sql.comment("Hot: each good record that the snapshot lacks is a row.")}
SELECT {_columns(plan.definition)}
FROM {GOOD}"""


def _overlaid(plan: ViewPlan) -> str:
    """Cold rows less every key that the log mentions, and the log's winners: ``fold.overlay``.

    Trino runs a named part once for each mention, so this reads the log twice. Both reads must find the same
    records, or a row shows twice or not at all: hence the bound that ``ViewPlan`` asks for.
    """
    columns, key = _columns(plan.definition), _key(plan.definition)
    # safety: sql-anti-join
    return f"""\
{sql.comment(f"Cold: the rows of snapshot {plan.snapshot_id}, less every key that the log mentions.")}
SELECT {", ".join(f"cold.{sql.name(column.name)}" for column in plan.definition.columns)}
FROM {_snapshot(plan)} AS cold
LEFT JOIN (SELECT DISTINCT {key}, true AS _is_mentioned FROM {GOOD}) AS hot
  ON {_matches(plan.definition)}
WHERE hot._is_mentioned IS NULL
UNION ALL
{sql.comment("Hot: the last record of each key, unless it deletes the row.")}
SELECT {columns}
{_won(plan, f"{columns}, {DELETED}", BETWEEN_PARTITIONS, "_last", "true")}"""


def _as_of_now(plan: ViewPlan, catalog: str) -> str:
    """The server's live table, of which one query reads one snapshot, however often.

    The text names the definition's version, so a view is replaced when the table is altered.
    """
    definition = plan.definition
    *namespace, table = definition.identifier.split(".")
    return f"""\
{sql.comment(f"As of now: the live table of the server, by version {definition.version} of its definition.")}
SELECT {", ".join(map(_declared, definition.columns))}
FROM {sql.qualified(catalog, ".".join(namespace), table)}"""


def _declared(column: Column) -> str:
    """The column with its declared type, where the server may still have a narrower one for a moment.

    Else Trino would keep that one as the view's, and refuse the view once the server has the wider one.
    """
    name = sql.name(column.name)
    is_widened = column.type.kind in {Kind.LONG, Kind.DECIMAL}
    return f"CAST({name} AS {column.type.trino}) AS {name}" if is_widened else name  # safety: render-widened


def _ranked(plan: ViewPlan) -> str:
    """Cold rows and the log's last records together, of which a record wins over a row.

    It reads the log once, so it needs no bound. All cold rows take part in the ranking, save those that a
    condition on the key leaves out before.
    """
    columns = _columns(plan.definition)
    place = "CAST(NULL AS timestamp(3)) AS _timestamp, CAST(NULL AS varchar) AS _topic, NULL AS _partition_id"
    both = f"""\
(
{sql.indented(sql.comment(f"Cold: the rows of snapshot {plan.snapshot_id}."))}
  SELECT {columns}, false AS {DELETED}, false AS _is_hot, {place}
  FROM {_snapshot(plan)}
  UNION ALL
{sql.indented(sql.comment("Hot: the last records."))}
  SELECT {columns}, {DELETED}, true AS _is_hot, _timestamp, _topic, _partition_id
  FROM _last
)"""
    order = f"_is_hot DESC, {BETWEEN_PARTITIONS}"  # safety: sql-hot-wins
    return f"""\
{sql.comment("Of each key the last record, or else the cold row; no row where that record deletes it.")}
SELECT {columns}
{_won(plan, f"{columns}, {DELETED}, _is_hot", order, both, "_is_hot")}"""


def _won(plan: ViewPlan, columns: str, order: str, source: str, is_record: str) -> str:
    """From where to select, of each key, what stands first in the order, unless it deletes the row.

    Where producers give the times, two records of a key (what ``is_record``) are in two partitions.
    """
    key = _key(plan.definition)
    if plan.has_append_times:
        return f"{_first_of(columns, key, order, source)} AND NOT {DELETED}"  # safety: sql-tombstone
    reason = (
        f"a key of {plan.definition.identifier} has new records in several partitions, and producers' times "
        'do not order them in SQL: use lookups, extracts or views with hot = "server", or ask again after '
        "the next commit"
    )
    # safety: sql-contested, sql-tombstone-by-producers-times
    return f"""\
{_first_of(columns, key, order, source, 2)}
  AND IF(_nth = 1, NOT {DELETED}, IF({is_record}, CAST(fail({sql.literal(reason)}) AS boolean), false))"""


def _first_of(columns: str, key: str, order: str, source: str, count: int = 1) -> str:
    """From where to select, of each key, what stands first in the order; or the first so many."""
    return f"""\
FROM (
  SELECT {columns},
    row_number() OVER (PARTITION BY {key} ORDER BY {order}) AS _nth
  FROM {sql.moved_in(source, 1)}
)
WHERE _nth {"=" if count == 1 else "<="} {count}"""


def _snapshot(plan: ViewPlan) -> str:
    """The table as of the snapshot, until the view expires.

    The expiry stands in the version because that is evaluated when a query is analysed: also a query that
    would find no row to evaluate a condition on fails.
    """
    *namespace, table = plan.definition.identifier.split(".")
    name = sql.qualified(plan.catalog, ".".join(namespace), table)
    if plan.expires_at is None:  # safety: render-expiry
        return f"{name} FOR VERSION AS OF {plan.snapshot_id}"  # safety: render-snapshot
    time = plan.expires_at.isoformat(timespec="seconds")
    reason = (
        f"the view of {plan.definition.identifier} expired at {time}: the log may lack records by now that "
        f"snapshot {plan.snapshot_id} does not have; publish it again with "
        f"thermocline views publish {plan.definition.name}"
    )
    return f"""\
{name} FOR VERSION AS OF
  if(current_timestamp < {sql.instant(plan.expires_at)}, BIGINT '{plan.snapshot_id}',
    CAST(fail({sql.literal(reason)}) AS bigint))"""


def _matches(definition: LiveTable) -> str:
    return "\n  AND ".join(f"hot.{name} = cold.{name}" for name in _key_names(definition))


def _columns(definition: LiveTable) -> str:
    return ", ".join(sql.name(column.name) for column in definition.columns)


def _key(definition: LiveTable) -> str:
    return ", ".join(_key_names(definition))


def _key_names(definition: LiveTable) -> list[str]:
    return [sql.name(name) for name in definition.key]

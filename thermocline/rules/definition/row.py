"""Options that say what a row is, and how the records of a key become one."""

from __future__ import annotations

from dataclasses import dataclass, field

from thermocline.rules.columns import Column
from thermocline.rules.definition.format import SAME_ROW
from thermocline.rules.definition.option import by_rule, fixed, free
from thermocline.rules.definition.options import TOMBSTONE_RETENTION_HOURS

__all__ = ["RowOptions"]


@dataclass(frozen=True, kw_only=True)
class RowOptions:
    """What a row is, and how the records of a key become one (`LiveTable.merging`).

    ``columns`` stand in declared order. ``key`` is empty for a table to which every record adds a row: where
    the record stands in the log identifies it. ``columns_by_schema``: a route made the table with the
    columns of a record's schema, and the configuration names none.
    """

    key: tuple[str, ...] = field(
        metadata=fixed(
            "every row, index and delete in the table is found by it",
            "The columns that identify a row. With `[]`, every record adds a row; this needs `key_from = "
            '"value"`, and allows extracts but no lookups.',
        )
    )
    columns: tuple[Column, ...] = field(
        metadata=by_rule('Every column with its type, such as `app_id = "int"`.')
    )
    columns_by_schema: bool = field(
        default=False,
        metadata=fixed(
            "the table was made with columns of its own, or with those of the file", "", left_out=True
        ),
    )
    partial_updates: bool = field(
        default=False,
        metadata=fixed(
            SAME_ROW,
            "If true, a column keeps its value if its field is missing in a record's value, or if a Debezium "
            "event has Debezium's placeholder for an unavailable value there. Null sets null. Not on "
            "compacted topics; can't be altered.",
            left_out=True,
            needs_key=True,
        ),
    )
    sequence_by: tuple[str, ...] = field(
        default=(),
        metadata=fixed(
            "the rows in the table, and the deletes that it remembers, were ordered by it",
            "Columns that order a key's records, instead of their offsets: a record with a lower sequence "
            "changes nothing. Not on compacted topics, and not with `partial_updates`; can't be altered. See "
            "[formats](../formats/updates.md#order-by-a-column).",
            left_out=True,
            needs_key=True,
        ),
    )
    tombstone_retention_hours: int = field(
        default=TOMBSTONE_RETENTION_HOURS,
        metadata=free(
            "With `sequence_by`: the minimum time for which a delete is remembered, so that a late upsert "
            "loses against it; 1 to 87,600.",
            needs_key=True,
        ),
    )

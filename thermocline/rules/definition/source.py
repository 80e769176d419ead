"""Options that say where a table's records come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from thermocline.rules.definition.option import by_rule, fixed, free
from thermocline.rules.routing import Condition, Route, Source

__all__ = ["SourceOptions"]

_SAME_RECORDS: Final = "the same record must be the table's, or not, whenever it is read"


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """Where records come from, and which of them are the table's (`route`).

    ``values_at`` makes the table a route's directory: none of the records is its row, but the value that each
    has there may be another table's.
    """

    topics: tuple[str, ...] = field(
        metadata=by_rule(
            "Topics that feed the table. An entry that can't be a topic's name, such as `log\\.\\d{8}`, is a "
            "pattern: a regular expression that the whole names of topics match. Ingest finds such topics "
            "while it runs."
        )
    )
    topic_patterns: tuple[str, ...] = field(default=(), metadata=by_rule("", left_out=True))
    transactional: bool = field(
        default=False,
        metadata=free(
            "Set to true if producers use transactions. Either way, records count only once their transaction"
            " is committed.",
        ),
    )
    where: tuple[Condition, ...] = field(
        default=(),
        metadata=fixed(
            _SAME_RECORDS,
            "Which records of the topics are the table's, if not all: those for which all these conditions "
            'hold, such as `{ field = "type", in = ["order", "order_line"] }`. The others are filtered. See '
            "[routes](../formats/routes.md).",
            left_out=True,
        ),
    )
    unless: tuple[tuple[Condition, ...], ...] = field(
        default=(),
        metadata=fixed(
            _SAME_RECORDS,
            "Names of tables that take records first: what one of them takes by its `where`, or a table that "
            "goes before it, is not this table's. The definition has their conditions.",
            left_out=True,
        ),
    )
    delete_unmatched: bool = field(
        default=False,
        metadata=fixed(
            _SAME_RECORDS,
            "With `where`: if true, a record that is not the table's deletes the row of its key, as when a "
            "row's `type` changes to that of another table.",
            left_out=True,
            needs_key=True,
        ),
    )
    values_at: Source | None = field(default=None, metadata=fixed(_SAME_RECORDS, "", left_out=True))

    @property
    def route(self) -> Route:
        """Which records are the table's."""
        return Route(self.where, self.unless)

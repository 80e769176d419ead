"""Checks of where a table's records come from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from thermocline.rules.definition.options import ONE_COLUMN, SCHEMA_FORMATS
from thermocline.rules.topic_patterns import TOPIC_NAME

if TYPE_CHECKING:
    from thermocline.rules.definition.table import LiveTable
    from thermocline.rules.routing import Source

__all__ = ["problems", "problems_of_source"]

_ROWS_IN_EVENTS: Final = ("after", "before", "data", "old")


def problems(table: LiveTable) -> Iterator[str]:
    """What is wrong with the options of `SourceOptions`, a sentence for each problem."""
    has_any = table.topics or table.topic_patterns
    if not has_any or len(set(table.topics)) < len(table.topics):
        yield "topics must name at least one topic, and each once"
    yield from (f'"{name}" is not a topic name' for name in table.topics if not TOPIC_NAME.fullmatch(name))
    for source in table.route.sources if table.values_at is None else (table.values_at,):
        yield from problems_of_source(table, source)
    if table.delete_unmatched:
        yield from _problems_of_deletes(table)


def problems_of_source(table: LiveTable, source: Source) -> Iterator[str]:
    """Why records of the table can't have the text of a source."""
    if source.schema and (table.format not in SCHEMA_FORMATS or table.value_schema is not None):
        yield f"where looks at the {source}, but the values name no schema that a registry has"
    is_of_key = source.field in table.fields_in_key
    if source.field and is_of_key and table.key_format in ONE_COLUMN:
        yield f'where looks at the {source}, but key_format = "{table.key_format}" has no fields'
    elif source.field and not is_of_key and table.envelope != "plain":  # safety: route-by-event
        yield (
            f'where looks at the {source}, but deletes in envelope = "{table.envelope}" have no row: '
            'look at the event, as in { event = "source.table", is = "orders" }'
        )
    elif source.path and not is_of_key and table.format in ONE_COLUMN:
        yield f'where looks at the {source}, but format = "{table.format}" has no fields'
    if not source.event:
        return
    if table.envelope == "plain":
        yield f'where looks at the {source}, which needs envelope = "debezium" or "maxwell"'
    elif source.event[0] in _ROWS_IN_EVENTS:
        yield f"where looks at the {source}, but not each event has a row there: look at another field"


def _problems_of_deletes(table: LiveTable) -> Iterator[str]:
    if not table.route:
        yield "delete_unmatched needs where: without it, all records are the table's"
    if table.key_from != "key" or not table.has_key:
        yield 'delete_unmatched needs key_from = "key": the key says which row a record is of'
    if table.sequence_by:
        yield "delete_unmatched can't be combined with sequence_by: other tables' records have no place in it"

"""The lookup of one entity, answered at once where all that it takes is in memory.

It gives the answer that the endpoint would give, or nothing: where a file is to be read, and wherever the
answer is a problem, the endpoint has to be asked, which then meets the same.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Final, NamedTuple

from thermocline.serving.cold.entity_rows import NO_ROWS
from thermocline.serving.hot.refused import RefusedRecords
from thermocline.serving.http.requests import entity_of_query
from thermocline.serving.read.answer import answer_json
from thermocline.serving.read.sight import Sights

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable
    from thermocline.serving.cold.entity_rows import JsonRows
    from thermocline.serving.cold.reader import Entity
    from thermocline.serving.read.caller import Caller
    from thermocline.serving.read.look import Look
    from thermocline.serving.read.tables import Tables

QUERIES_KEPT_MAX: Final = 4_096
"""Of each table, with what they mean: half a kilobyte each."""
QUERY_KEPT_BYTES_MAX: Final = 256


class Direct(NamedTuple):
    """An answer: its JSON, and what it is of."""

    body: bytes
    entity: Entity
    look: Look
    rows: JsonRows


class DirectLookups:
    """Of the tables of one worker; to be asked on its event loop."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._sights = Sights()
        self._parsers: dict[str, tuple[LiveTable, Callable[[bytes], Entity]]] = {}

    def answer(self, caller: Caller, table: str, query: bytes) -> Direct | None:
        """A 200, by a table's name and the query string; None where the endpoint is to answer.

        The caller may look up rows of the table.
        """
        try:
            reader = self._tables[table].reader
            definition = reader.cold.index.definition
            entity = self._parser(table, definition, len(query))(query)
            sight = None if caller.sees_all(table) else self._sights.of(caller, definition)
            if sight is None or sight.may_see(entity):
                known = reader.known(entity)
                if known is None:
                    return None
                look, rows = known
            else:
                look, rows = reader.look(()), NO_ROWS
            refused = reader.refused(look, {}, (rows,)) if sight is None else RefusedRecords()
            if sight is not None:
                rows = sight.rows(rows)  # safety: direct-sight
            body = answer_json(reader.name, look, entity, rows, refused)
        except Exception:  # noqa: BLE001  # the endpoint meets it again, and says what it is
            return None
        reader.count((entity,))
        return Direct(body, entity, look, rows)

    def _parser(self, table: str, definition: LiveTable, length: int) -> Callable[[bytes], Entity]:
        """What tells the entity of a query string, and remembers it: reading it takes as long as the rest."""
        if length > QUERY_KEPT_BYTES_MAX:
            return partial(entity_of_query, definition)
        known = self._parsers.get(table)
        if known is None or known[0] is not definition:
            parse = lru_cache(QUERIES_KEPT_MAX)(partial(entity_of_query, definition))
            known = self._parsers[table] = definition, parse
        return known[1]

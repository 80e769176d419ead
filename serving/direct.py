"""The lookup of one entity, answered at once where all that it takes is in memory.

It gives the body that the endpoint would give, or nothing: where a file is to be read, and wherever the
answer is a problem, the endpoint has to be asked, which then meets the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from serving.answer import answer_json
from serving.requests import entity_of_query

if TYPE_CHECKING:
    from serving.tables import Tables


class DirectLookups:
    """Of the tables of one worker; to be asked on its event loop."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    def body(self, table: str, query: bytes) -> bytes | None:
        """The JSON of a 200, by a table's name and the query string; None where the endpoint is to answer."""
        try:
            reader = self._tables[table].reader
            entity = entity_of_query(reader.cold.index.definition, query)
            known = reader.known(entity)
            if known is None:
                return None
            look, rows = known
            refused = reader.refused(look, {}, (rows,))
            body = answer_json(reader.name, look, entity, rows, refused)
        except Exception:  # noqa: BLE001  # the endpoint meets it again, and says what it is
            return None
        reader.count((entity,))
        return body

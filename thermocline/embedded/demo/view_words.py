"""How to ask the views oneself: what the demo prints at its end."""

from __future__ import annotations

from urllib.parse import urlsplit

from thermocline.embedded.demo.story import ADA
from thermocline.embedded.demo.view_door import ANALYST, View, rows_sql
from thermocline.embedded.stack import Stack


def query_to_type(table_in_trino: str) -> str:
    """A query for any client of Trino."""
    return rows_sql(f"{table_in_trino}_{View.BY_KEY}", [ADA])


def how_to_ask(stack: Stack, command: str, table: str, table_in_trino: str) -> str:
    """The ways to ask the Trino that stays up; ``command`` is how to call ours."""
    assert stack.trino is not None
    url, sql = stack.trino.url, query_to_type(table_in_trino)
    place = urlsplit(url)
    return f"""
Trino is at {url}. Every user may read the views, and nothing else, without a password; such as {ANALYST}:

  trino --server {url} --user {ANALYST} --execute "{sql}"
  {command} views render {table}

  from trino.dbapi import connect
  cursor = connect(host="{place.hostname}", port={place.port}, user="{ANALYST}").cursor()
  print(cursor.execute("{sql}").fetchall())
"""

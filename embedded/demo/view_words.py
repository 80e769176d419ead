"""What the demo says of Trino at its end: how to ask the views oneself, and why they were no faster."""

from __future__ import annotations

import os
import shutil
from urllib.parse import urlsplit

from embedded.demo.invocation import program
from embedded.demo.story import ADA
from embedded.demo.view_door import ANALYST, View, rows_sql
from embedded.stack import Stack

TRINO_CLIENT = "trino"


def why_no_faster() -> str:
    """What the figures of Trino are to be compared with."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"""\
Trino shared this machine's {cores} cores with the broker, Spark, the server and the traffic. With nothing
  else running, it takes about 0.5 s by key, and 3 s in the full view (docs/operate-views.md)."""


def how_to_ask(stack: Stack, command: str, table: str, table_in_trino: str) -> str:
    """The ways to ask the Trino that stays up; ``command`` is how to call ours."""
    assert stack.trino is not None
    url, sql = stack.trino.url, rows_sql(f"{table_in_trino}_{View.BY_KEY}", [ADA])
    place = urlsplit(url)
    connected = f"connect(host='{place.hostname}', port={place.port}, user='{ANALYST}')"
    # In the double quotes of a shell.
    asked = f'{connected}.cursor().execute(\\"{sql}\\").fetchall()'
    ways = [
        f'{program("python")} -c "from trino.dbapi import connect; print({asked})"',
        f"{command} views render {table}",
    ]
    if shutil.which(TRINO_CLIENT):
        ways.insert(0, f'{TRINO_CLIENT} --server {url} --user {ANALYST} --execute "{sql}"')
    listed = "\n".join(f"  {way}" for way in ways)
    return f"""
Trino is at {url}. Every user may read the views, and nothing else, without a password; such as {ANALYST}:

{listed}
"""

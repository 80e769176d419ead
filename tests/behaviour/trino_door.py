"""What an analyst and an operator do with a stack's Trino."""

from __future__ import annotations

import io
from collections import Counter
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trino.dbapi

from serving import private
from thermocline.catalog import open_table
from thermocline.clock import SystemClock
from thermocline.embedded.stack import Stack
from thermocline.embedded.trino import ICEBERG_ONLY, LocalTrino
from thermocline.errors import DependencyMissing
from thermocline.log import Log
from thermocline.settings import Settings
from views.pin import pin_view
from views.publication import Publication
from views.trino_client import Trino

ANALYST = "ana"
LAKE = "lake.app"

Row = dict[str, Any]


def newer_trino(folder: Path, **options: Any) -> LocalTrino:
    """The Trino that reads version 3; it needs a JDK that no package index has, only the machine."""
    try:
        return LocalTrino(folder, release=ICEBERG_ONLY, **options)
    except DependencyMissing as error:
        if "jdk.incubator.vector" not in error.what_is_missing:
            raise
        pytest.skip(error.what)


def ask(stack: Stack, sql: str, *parameters: object) -> list[Row]:
    """What an analyst's query gives."""
    assert stack.trino is not None
    return ask_of(stack.trino, sql, *parameters)


def ask_of(server: LocalTrino, sql: str, *parameters: object) -> list[Row]:
    """As `ask`, of any Trino."""
    connection = trino.dbapi.connect(host=server.host, port=server.port, user=ANALYST)
    with closing(connection), closing(connection.cursor()) as cursor:
        cursor.execute(sql, parameters or None)
        rows = cursor.fetchall()
        return [dict(zip([column[0] for column in cursor.description], row, strict=True)) for row in rows]


def wait_for_margin(stack: Stack) -> None:
    """Returns once all that was acknowledged by now is older than what the view of two reads leaves out."""
    shown_at = datetime.now(UTC) + timedelta(seconds=stack.settings.views.margin_seconds)

    def is_shown() -> bool:
        (row,) = ask(stack, "SELECT current_timestamp AS now")
        return bool(row["now"] > shown_at)

    stack.wait_for(is_shown, "the margin of the live view is over")


def publish(settings: Settings, name: str) -> None:
    """What ingest does after a commit, and now and then without one."""
    done = Publication(settings, name, SystemClock())()
    assert done.stop is None, done.stop


def pinned(stack: Stack, settings: Settings, name: str) -> list[Row]:
    """The rows of a view that is pinned at now, which are those of an extract of the same read point."""
    sink = io.BytesIO()
    point = private.extract(settings, name, None, "arrow", sink, None, lambda _: None)
    extracted = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
    table, log, server = open_table(settings, name), Log(settings.kafka), Trino(settings.views)
    view = pin_view(settings, name, table, point, log, server, SystemClock())
    rows = ask(stack, f"SELECT * FROM lake.{'.'.join(view.schema_and_name)}")
    assert counted(rows) == counted(extracted)
    return rows


def counted(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    """How often each row is there, by all of its columns in their order."""
    return Counter(tuple(row.items()) for row in rows)

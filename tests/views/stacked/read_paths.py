"""What an analyst and an operator do with a stack's Trino, and the ways into a table by it."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import trino.dbapi

from tests.behaviour.read_paths import FEW, Rows, by_user
from tests.behaviour.topic import APP
from tests.views.stacked.viewed import ANALYST
from thermocline.dev.stack import TABLE, Stack
from thermocline.dev.trino import LocalTrino
from thermocline.iceberg.catalog import open_table
from thermocline.kafka.log import Log
from thermocline.process.clock import SystemClock
from thermocline.serving.read import private
from thermocline.settings import Settings
from thermocline.views.pin import pin_view
from thermocline.views.publication import Publication
from thermocline.views.trino_client import Trino

LAKE = "lake.app"

Row = dict[str, Any]


def ask(stack: Stack, sql: str, *parameters: object, user: str = ANALYST) -> list[Row]:
    """What an analyst's query gives."""
    assert stack.trino is not None
    return ask_of(stack.trino, sql, *parameters, user=user)


def ask_of(server: LocalTrino, sql: str, *parameters: object, user: str = ANALYST) -> list[Row]:
    """As `ask`, of any Trino."""
    connection = trino.dbapi.connect(host=server.host, port=server.port, user=user)
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


def by_live_view(stack: Stack, read_after: str) -> Rows:
    del read_after  # the view shows all that is older than its margin
    wait_for_margin(stack)
    return by_user(ask(stack, f"SELECT * FROM {LAKE}.{TABLE}_live"))


def by_live_view_by_key(stack: Stack, read_after: str) -> Rows:
    del read_after  # it shows what the broker acknowledged
    return by_user(ask(stack, f"SELECT * FROM {LAKE}.{TABLE}_live_by_key"))


def by_lookup_in_trino(stack: Stack, read_after: str) -> Rows:
    del read_after
    names = [case.name for case in FEW]
    question = f"SELECT * FROM {LAKE}.{TABLE}_live_by_key WHERE app_id = ? AND user_id IN (?, ?, ?)"
    rows = by_user(ask(stack, question, APP, *names))
    assert not any(attributes for user, attributes in rows.items() if user not in names)
    return {user: rows[user] for user in names}


def by_pinned_view(stack: Stack, read_after: str) -> Rows:
    del read_after  # it is pinned at what is acknowledged by now
    return by_user(pinned(stack, stack.settings, TABLE))


READ_PATHS: dict[str, Callable[[Stack, str], Rows]] = {
    "live view by key": by_live_view_by_key,  # at once, so that what it may not miss is young
    "lookup in Trino": by_lookup_in_trino,
    "pinned view": by_pinned_view,
    "live view": by_live_view,
}
"""Those of a stack with a Trino, as an analyst uses them."""

"""Live tables of format version 3 in a Trino that reads deletion vectors."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import trino.dbapi
from trino.exceptions import TrinoQueryError

from tests.behaviour.test_every_read_path import wait_for_server
from tests.behaviour.topic import APP, Topic
from tests.dev.newer_trino import newer_trino
from thermocline.cli.server_answers import Client
from thermocline.dev.oracle import RowKey
from thermocline.dev.stack import TABLE, TOPIC, Stack
from thermocline.dev.trino import LocalTrino
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.ingest.owner.owner import Owner
from thermocline.views.config import trino_files

pytestmark = [pytest.mark.full, pytest.mark.trino, pytest.mark.local_files]
LIVE = f"live.app.{TABLE}"


def test_a_live_table_with_deletion_vectors_is_read_by_a_newer_trino(
    new_stack: Callable[..., Stack], new_owner: Callable[[Stack], Owner], tmp_path: Path
) -> None:
    stack = new_stack("newer_trino", has_live_catalog=True)
    owner, topic = new_owner(stack), Topic(stack.settings.kafka, TOPIC)
    table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")
    assert table.metadata.format_version == 3
    server = newer_trino(tmp_path)
    (server.configuration / "catalog").mkdir()
    live = "catalog/live.properties"
    (server.configuration / live).write_text(trino_files(stack.settings).files[live])
    stack.wait_until_ready(stack.serve())
    committed: dict[RowKey, str] = {}
    with server:
        for number, users in enumerate((range(40), range(20), range(10, 50))):
            for user in users:
                topic.send((APP, f"u{user}", "plan"), None if user % 7 == 3 else f"{number}")
            read_after = topic.flush()
            assert loaded(stack, server, read_after) == owner_rows(topic)
            joined = f"SELECT count(*) FROM {LIVE} a JOIN {LIVE} b USING (app_id, user_id, key)"
            assert asked(server, joined) == [[len(owner_rows(topic))]]
            assert rows_of(server, f"{LIVE} FOR VERSION AS OF 'committed'") == committed
            owner.step()
            wait_for_server(stack, owner)
            committed = owner_rows(topic)
            assert rows_of(server, LIVE) == committed
        for change in ("DELETE FROM {} WHERE user_id = 'u1'", "INSERT INTO {} (key) VALUES ('x')"):
            with pytest.raises(TrinoQueryError):
                asked(server, change.format(LIVE))
        assert rows_of(server, LIVE) == committed


def owner_rows(topic: Topic) -> dict[RowKey, str]:
    """What was acknowledged so far, by a dict."""
    return {key: row["value"] for key, row in topic.oracle.rows(topic.oracle.end).items()}


def loaded(stack: Stack, server: LocalTrino, read_after: str) -> dict[RowKey, str]:
    """The rows now, once the server has the records."""
    with Client(stack.url) as client:
        client.lookup(TABLE, {"app_id": str(APP), "user_id": "u0"}, read_after)
    return rows_of(server, LIVE)


def rows_of(server: LocalTrino, source: str) -> dict[RowKey, str]:
    rows = asked(server, f"SELECT app_id, user_id, key, value FROM {source}")
    found = {(row[0], row[1], row[2]): row[3] for row in rows}
    assert len(found) == len(rows), "a key stands in two rows"
    return found


def asked(server: LocalTrino, sql: str) -> list[list[Any]]:
    connection = trino.dbapi.connect(host=server.host, port=server.port, user="ana")
    with closing(connection), closing(connection.cursor()) as cursor:
        cursor.execute(sql)
        found: list[list[Any]] = cursor.fetchall()
        return found

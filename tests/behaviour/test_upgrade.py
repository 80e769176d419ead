"""A table that gets format version 3 while a server answers; then a column is read from elsewhere."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tests.behaviour.test_every_read_path import wait_for_server
from tests.behaviour.test_live_catalog_in_newer_trino import asked
from tests.behaviour.topic import APP, Topic
from tests.dev.newer_trino import newer_trino
from thermocline.cli import entry
from thermocline.cli.server_answers import Client
from thermocline.dev.stack import TABLE, TOPIC, Stack
from thermocline.dev.trino import LocalTrino
from thermocline.errors import AlterationRefused, ExitCode
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.iceberg.files import DataFile, plan_files
from thermocline.ingest.owner.owner import Owner
from thermocline.settings import load_settings
from thermocline.views.config import trino_files

pytestmark = [pytest.mark.full, pytest.mark.trino, pytest.mark.local_files]

USERS = 4_000
"""So many that their files are not merged with those of later, small batches."""
LOOKED_UP = [f"u{user}" for user in range(30)]
MOVED = 'value = { type = "string", path = "text" }'
Rows = dict[str, str | None]


class Upgraded:
    """The table, what it should hold, and all that reads it."""

    def __init__(self, stack: Stack, trino: LocalTrino) -> None:
        self.stack, self.trino = stack, trino
        self.topic = Topic(stack.settings.kafka, TOPIC)
        self.rows: Rows = {}
        self.records = 0

    def run(self, *arguments: str) -> int:
        return entry.run(["--config", str(self.stack.config_path), *arguments])

    def configure(self, before: str, after: str) -> None:
        text = self.stack.config_path.read_text()
        assert text.count(before) == 1
        self.stack.config_path.write_text(text.replace(before, after))
        self.stack.settings = load_settings(self.stack.config_path)

    def write(self, users: range, field: str, said: str) -> None:
        """A record for each; each seventh deletes. The table knows only one of the fields."""
        for user in users:
            key = json.dumps({"app_id": APP, "user_id": f"u{user}", "key": "plan"}).encode()
            is_delete = user % 7 == 3
            value = None if is_delete else json.dumps({field: said}).encode()
            self.topic.send_raw(key, value)
            self.records += 1
            self.rows.pop(f"u{user}", None) if is_delete else self.rows.update({f"u{user}": said})
        self.topic.flush()

    def check(self) -> None:
        """Every read path has the rows."""
        assert self.looked_up() == {user: self.rows[user] for user in LOOKED_UP if user in self.rows}
        assert self.extracted() == self.rows
        assert self.live() == self.rows

    def looked_up(self) -> Rows:
        rows: Rows = {}
        with Client(self.stack.url) as client:
            for user in LOOKED_UP:
                entity = {"app_id": str(APP), "user_id": user}
                answer: Any = client.lookup(TABLE, entity, f"{TOPIC}/0@{self.records - 1}")
                rows |= {row["user_id"]: row["value"] for row in answer["rows"]}
        return rows

    def extracted(self) -> Rows:
        sink = pa.BufferOutputStream()
        with Client(self.stack.url) as client:
            client.extract(TABLE, None, "arrow", sink, lambda _: None)
        found = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
        return {row["user_id"]: row["value"] for row in found}

    def live(self) -> Rows:
        rows = asked(self.trino, f"SELECT user_id, value FROM live.app.{TABLE}")
        found: Rows = {row[0]: row[1] for row in rows}
        assert len(found) == len(rows), "a key stands in two rows"
        return found

    def committed(self) -> Rows:
        """As PyIceberg reads them."""
        return {row["user_id"]: row["value"] for row in self.table().scan().to_arrow().to_pylist()}

    def table(self) -> Table:
        return load_table(open_catalog(self.stack.settings.catalog), TABLE, f"app.{TABLE}")

    def files(self) -> tuple[DataFile, ...]:
        snapshot = self.table().current_snapshot()
        assert snapshot is not None
        return plan_files(self.table(), snapshot.snapshot_id)

    def deletes(self) -> set[str]:
        return {file.deletes.format for file in self.files() if file.deletes}

    def alter(self, new_owner: Callable[[Stack], Owner], owner: Owner) -> Owner:
        """`table alter`, while no owner holds the table; the owner after it, whom the server has followed."""
        owner.lease.release()
        assert self.run("table", "alter", TABLE) == ExitCode.USAGE, "nobody said yes"
        assert self.run("table", "alter", TABLE, "--yes") == 0
        owner = new_owner(self.stack)
        wait_for_server(self.stack, owner)
        return owner


def test_reads_stay_exact_through_an_upgrade_and_while_a_column_is_read_from_elsewhere(
    new_stack: Callable[..., Stack], new_owner: Callable[[Stack], Owner], tmp_path: Path
) -> None:
    """Goal: `table alter` to format version 3, and to another source of a column, changes no row of before.

    Method: position delete files of version 2 get company of deletion vectors; before and after each commit
    and each alteration, with hot records over them, lookups, extracts and a Trino that reads version 3 have
    the rows of a dict. Between a source's change and the next commit, hot records are read by the new one.
    """
    stack = new_stack("upgraded", partitions=1, buckets=2, has_live_catalog=True)
    trino = newer_trino(tmp_path)
    (trino.configuration / "catalog").mkdir()
    catalog = "catalog/live.properties"
    (trino.configuration / catalog).write_text(trino_files(stack.settings).files[catalog])
    with trino:
        one = Upgraded(stack, trino)
        assert one.run("table", "drop", TABLE, "--purge", "--yes") == 0
        one.configure('topics = ["', 'format_version = 2\ntopics = ["')
        assert one.run("table", "create", TABLE) == 0
        stack.wait_until_ready(stack.serve())
        owner = new_owner(stack)
        for number, users in enumerate((range(USERS), range(9), range(5, 15))):
            one.write(users, "value", f"v{number}")
            owner.step()
        assert one.deletes() == {"parquet"}
        one.write(range(12, 13), "value", "hot, of one bucket")
        wait_for_server(stack, owner)
        one.check()

        one.configure("format_version = 2", "format_version = 3")
        owner = one.alter(new_owner, owner)
        one.check()
        for number, users in enumerate((range(10, 18), range(8), range(2, 4))):
            owner.step()
            assert number or one.deletes() == {"parquet", "puffin"}
            wait_for_server(stack, owner)
            one.check()
            one.write(users, "value", f"w{number}")
            one.check()
        owner.step()
        assert "puffin" in one.deletes()
        assert one.committed() == one.rows
        assert None not in {file.origin.first_row_id for file in one.files()}
        assert one.run("verify", TABLE) == 0

        one.write(range(4, 6), "text", "hot, of a field that is not read")
        one.rows |= {"u4": None, "u5": None}
        one.check()
        one.configure('value = "string"', MOVED)
        owner = one.alter(new_owner, owner)
        one.rows |= dict.fromkeys(("u4", "u5"), "hot, of a field that is not read")
        one.check()
        one.write(range(8, 12), "text", "read")
        owner.step()
        wait_for_server(stack, owner)
        one.check()
        assert one.run("verify", TABLE) == 0

        owner.lease.release()
        one.configure("format_version = 3", "format_version = 2")
        assert one.run("table", "alter", TABLE, "--yes") == AlterationRefused.exit_code

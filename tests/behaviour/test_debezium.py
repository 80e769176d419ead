"""Change events of a real PostgreSQL, by a real Debezium: every read path shows what the database has.

Goal: after each kind of change, the table, lookups and extracts equal a SELECT, row for row; what can't be
told from the events is in quarantine, and a plain statement mends it. Method: what docs/formats shows a
user, in Avro with REPLICA IDENTITY FULL, and beside it the same table in JSON, with partial updates and the
usual identity.
"""

from __future__ import annotations

import io
import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

import httpx
import msgspec
import psycopg
import pyarrow as pa
import pytest
from psycopg.types.string import TextLoader

from tests.behaviour.change_capture import LocalConnect, LocalRegistry
from tests.docs.examples import PAGES
from tests.ingest.postgres import HOST, local_postgres
from thermocline.cli import entry
from thermocline.dev.stack import Command, Stack, StackOptions
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.ingest.owner.owner import Owner
from thermocline.kafka.log import Log
from thermocline.process.clock import SystemClock
from thermocline.rules.decode import json_row
from thermocline.rules.definition import PROVENANCE
from thermocline.serving.read import private
from thermocline.settings import load_settings

pytestmark = pytest.mark.full

ACCOUNTS, ARTICLES = "accounts", "articles"
TABLES: Final = (ACCOUNTS, ARTICLES)
_CHAPTER: Final = re.search(
    r"### A connector, from PostgreSQL\n.*?\n## ", "\n".join(page.read_text() for page in PAGES), re.DOTALL
)
assert _CHAPTER is not None
_BLOCKS: Final = re.findall(r"```\w+\n(.*?)```", _CHAPTER[0], re.DOTALL)
SHOWN_SQL, SHOWN_CONNECTOR, SHOWN_TABLE, SHOWN_IN_JSON = _BLOCKS
SHOWN_REGISTRY: Final = "http://registry.example:8080"
IN_JSON: Final = """
[tables.articles]
identifier = "app.articles"
topics = ["articles.public.articles"]
key = ["id"]
envelope = "debezium"
partial_updates = true

[tables.articles.columns]
"""
EPOCHS: Final = {
    'born = "date"': 'born = { type = "date", epoch = "d" }',
    'changed = "timestamp"': 'changed = { type = "timestamp", epoch = "us" }',
}
LONG: Final = "(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 500))"
"""16,000 characters that can't be compressed: PostgreSQL keeps them beside the row."""
LAST: Final = "INSERT INTO OURS (id, name) VALUES (2, %s) ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name"
FIRST: Final = f"""
INSERT INTO OURS SELECT n, 'snapshot ' || n, CASE WHEN n < 4 THEN {LONG} END FROM generate_series(1, 8) n;
UPDATE OURS SET born = '1989-12-27', balance = -9.50, changed = '2026-03-29 02:30:00.123456',
  seen = '2026-03-29 02:30:00.123456+02', uid = 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', photo = '\\x00ff',
  tags = '{{a,NULL,c}}', extra = '{{"a": [1, 2.50]}}', active = true, visits = 9007199254740993, score = 0.1
WHERE id IN (1, 5);
"""
INSERTS: Final = """
INSERT INTO OURS (id, name) VALUES (10, 'ж 海 🌊'), (11, ''), (12, NULL), (-2147483648, 'the least');
INSERT INTO OURS (id, born, changed, seen, balance, tags) VALUES
  (13, '0001-01-01', '1969-12-31 23:59:59.999999', '1969-12-31 23:59:59.999999Z', 9999999999.99, '{}'),
  (14, '9999-12-31', '2000-01-01', '9999-12-31 23:59:59Z', 0, NULL);
"""
UPDATES: Final = f"""
UPDATE OURS SET name = name || ', again' WHERE id IN (1, 2, 5, 10);
UPDATE OURS SET bio = {LONG} WHERE id IN (2, 6);
UPDATE OURS SET bio = NULL, balance = balance + 0.01 WHERE id = 3;
UPDATE OURS SET active = NOT active, visits = NULL, tags = array_append(tags, 'd') WHERE id = 1;
"""
DELETES: Final = "DELETE FROM OURS WHERE id IN (4, 11); DELETE FROM OURS WHERE id = 8;"
BACK: Final = "INSERT INTO OURS (id, name) VALUES (8, 'b'); UPDATE OURS SET name = 'back' WHERE id = 8;"
NEW_KEYS: Final = "UPDATE OURS SET id = id + 100 WHERE id IN (5, 10, 12);"
NEW_KEY_OF_A_LONG_ROW: Final = "UPDATE OURS SET id = 101 WHERE id = 1;"
WRITTEN_AGAIN: Final = "UPDATE OURS SET bio = bio || '' WHERE id = 101;"
A_COLUMN: Final = """
ALTER TABLE OURS ADD COLUMN level integer;
INSERT INTO OURS (id, level) VALUES (20, 7); UPDATE OURS SET level = 3 WHERE id = 3;
"""
A_COLUMN_WITH_A_DEFAULT: Final = """
ALTER TABLE OURS ADD COLUMN grade text NOT NULL DEFAULT 'new'; UPDATE OURS SET grade = 'old' WHERE id = 3;
"""
Rows = dict[int, dict[str, Any]]


@dataclass
class Shop:
    """Everything from the database to the server."""

    database: psycopg.Connection[Any]
    connect: LocalConnect
    stack: Stack
    added: dict[str, str] = field(default_factory=dict)
    """Columns that the tables got meanwhile."""
    start: str = "earliest"
    server: Command | None = None
    changes: int = 0

    def change(self, statements: str, *tables: str) -> None:
        """Returns when the events of it, and all before it, are in the topics."""
        for table in tables or TABLES:
            self.database.execute(statements.replace("OURS", table))
        self.wait_for_events()

    def wait_for_events(self) -> None:
        """By a row that changes last: its event comes after those of all earlier changes."""
        self.changes += 1
        name = f"change {self.changes}"
        for table in TABLES:
            self.database.execute(LAST.replace("OURS", table), (name,))

        def are_there() -> bool:
            return all(self.extracted(table).get(2, {}).get("name") == name for table in TABLES)

        self.connect.wait_for(are_there, "all events are in the topics")

    def rows(self, table: str) -> Rows:
        """What the database has."""
        cursor = self.database.execute(f"SELECT * FROM {table}")
        assert cursor.description is not None
        names = [column.name for column in cursor.description]
        return spelled([dict(zip(names, row, strict=True)) for row in cursor])

    def configure(self) -> None:
        """Writes the file, with what was added."""
        base = self.stack.config_path.read_text().partition("[registry]")[0].partition("[tables.")[0]
        accounts = SHOWN_TABLE.replace(SHOWN_REGISTRY, f"http://{self.connect.registry}")
        columns = SHOWN_TABLE.partition("[tables.accounts.columns]\n")[2]
        for shown, with_epoch in EPOCHS.items():
            columns = columns.replace(shown, with_epoch)
        added = "".join(f'{name} = "{kind}"\n' for name, kind in self.added.items())
        tables = (accounts + added + IN_JSON + columns + added).replace(
            "key =", f'start = "{self.start}"\nkey ='
        )
        self.stack.config_path.write_text(base + tables)
        self.stack.settings = load_settings(self.stack.config_path)

    def run(self, *arguments: str) -> None:
        assert entry.run(["--config", str(self.stack.config_path), *arguments]) == 0

    def add_column(self, name: str, kind: str) -> None:
        """In the tables here, before the database has it."""
        self.added[name] = kind
        self.configure()
        for table in TABLES:
            self.run("table", "alter", table, "--yes")
        self.stack.wait_for(self._knows_columns, "the server knows the new columns")

    def _knows_columns(self) -> bool:
        answers = [self.stack.get(f"/v1/tables/{table}")[1].get("definition", {}) for table in TABLES]
        found = [{column["name"] for column in answer.get("columns", [])} for answer in answers]
        return all(self.added.keys() <= names for names in found) and self.stack.get("/readyz")[0] == 200

    @staticmethod
    def topic(table: str) -> str:
        return f"{'shop' if table == ACCOUNTS else ARTICLES}.public.{table}"

    def looked_up(self, table: str, ids: list[int]) -> Rows:
        topic = self.topic(table)
        ends = Log(self.stack.settings.kafka).ends([topic])
        after = ",".join(f"{topic}/{partition}@{end - 1}" for _, partition, end in ends.items() if end)
        answer = httpx.post(
            f"{self.stack.url}/v1/tables/{table}/rows:batch",
            json={"entities": [{"id": id_} for id_ in ids]},
            headers={"Thermocline-Read-After": after},
            timeout=30,
        )
        assert answer.status_code == httpx.codes.OK, answer.text
        rows = [row for result in answer.json()["results"] for row in result["rows"]]
        return {row["id"]: row for row in rows}

    def extracted(self, table: str) -> Rows:
        sink = io.BytesIO()
        private.extract(self.stack.settings, table, None, "arrow", sink, None, lambda _: None)
        return spelled(pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist())

    def committed(self, table: str) -> Rows:
        """The table alone, as PyIceberg reads it."""
        catalog = open_catalog(self.stack.settings.catalog)
        rows = load_table(catalog, table, f"app.{table}").scan().to_arrow().to_pylist()
        return spelled([{name: row[name] for name in row if name not in PROVENANCE} for row in rows])

    def quarantined(self, table: str) -> list[str]:
        kept = open_catalog(self.stack.settings.catalog).load_table(f"app.{table}_quarantine").scan()
        return [f"{row['stage']}: {row['reason']}" for row in kept.to_arrow().to_pylist()]

    def ingest(self, table: str) -> None:
        owner = Owner.open(self.stack.settings, table, SystemClock())
        try:
            owner.catch_up(threading.Event())
        finally:
            owner.close()

    def create_and_serve(self) -> None:
        for table in TABLES:
            self.run("table", "create", table)
        self.server = self.stack.serve()
        self.stack.wait_until_ready(self.server)

    def check(self, expected: dict[str, Rows] | None = None) -> None:
        """Each read path, before and after a commit. Without ``expected`` they say what the database does."""
        expected = expected or self.all_rows()
        for table, rows in expected.items():
            ids = sorted({*rows, *range(1, 21), *range(101, 121), -(2**31)})
            assert self.looked_up(table, ids) == rows
            assert self.extracted(table) == rows
            self.ingest(table)
            assert self.committed(table) == rows
            assert self.looked_up(table, ids) == rows
            assert self.extracted(table) == rows

    def all_rows(self) -> dict[str, Rows]:
        return {table: self.rows(table) for table in TABLES}


def spelled(rows: list[dict[str, Any]]) -> Rows:
    """Values as JSON spells them; Arrow has the bytes of a UUID."""
    for row in rows:
        row["uid"] = UUID(bytes=row["uid"]) if isinstance(row["uid"], bytes) else row["uid"]
    found = {row["id"]: msgspec.json.decode(json_row(row)) for row in rows}
    assert len(found) == len(rows), "a row came twice"
    return found


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory, jvm: Any) -> Iterator[Shop]:
    folder = tmp_path_factory.mktemp("shop")
    stack = Stack(folder, StackOptions(catalog="debezium", engine="local"))
    registry = LocalRegistry(folder / "registry")
    connect = LocalConnect(folder / "connect", stack.kafka.bootstrap_servers, registry.address)
    with local_postgres({"wal_level": "logical"}) as port:
        try:
            registry.start()
            stack.start_broker()
            connect.start()
            at = f"host={HOST} port={port} user=postgres options='-c timezone=UTC'"
            with psycopg.connect(at, autocommit=True) as database:
                database.adapters.register_loader("jsonb", TextLoader)
                database.execute(SHOWN_SQL)
                database.execute(f"CREATE TABLE {ARTICLES} (LIKE {ACCOUNTS} INCLUDING ALL)")
                shop = Shop(database, connect, stack)
                for table in TABLES:
                    database.execute(FIRST.replace("OURS", table))
                registry.wait("/apis/ccompat/v7/schemas/types")
                connect.wait("/connectors")
                start_connectors(shop, port)
                shop.configure()
                yield shop
        finally:
            stack.stop()
            connect.stop()
            registry.stop()


def start_connectors(shop: Shop, port: int) -> None:
    shown = json.loads(SHOWN_CONNECTOR.replace(SHOWN_REGISTRY, f"http://{shop.connect.registry}"))
    here = {"hostname": HOST, "port": str(port), "user": "postgres", "dbname": "postgres"}
    avro = shown | {f"database.{name}": value for name, value in here.items()}
    others = {name: value for name, value in avro.items() if ".converter" not in name}
    # Two connectors of one prefix would fight for the names of their metrics.
    names = dict.fromkeys(("topic.prefix", "slot.name", "publication.name"), ARTICLES)
    names["table.include.list"] = f"public.{ARTICLES}"
    shop.connect.connect(ACCOUNTS, avro)
    shop.connect.connect(ARTICLES, others | names | json.loads(SHOWN_IN_JSON))
    topics = {shop.topic(table) for table in TABLES}
    shop.connect.wait_for(lambda: topics <= shop.stack.kafka.topics().keys(), "the topics are there")


def test_every_read_path_shows_what_the_database_has(shop: Shop) -> None:
    shop.create_and_serve()
    shop.wait_for_events()
    shop.check()
    for statements in (INSERTS, UPDATES, DELETES, BACK, NEW_KEYS):
        shop.change(statements)
        shop.check()
    a_long_row_gets_another_key(shop)
    a_column_is_added(shop)
    a_column_with_a_default_is_added_and_a_snapshot_taken(shop)
    the_tables_are_truncated(shop)
    the_tables_are_made_again(shop)
    for table in TABLES:
        shop.run("verify", table)


def a_long_row_gets_another_key(shop: Shop) -> None:
    """Without REPLICA IDENTITY FULL, no event has the long value: nothing is made up for it."""
    shop.change(NEW_KEY_OF_A_LONG_ROW)
    expected = shop.all_rows()
    del expected[ARTICLES][101]
    shop.check(expected)
    assert shop.quarantined(ACCOUNTS) == []
    (why,) = shop.quarantined(ARTICLES)
    assert why.startswith("contract: bio: the change did not touch")
    shop.change(WRITTEN_AGAIN, ARTICLES)
    shop.check()


def a_column_is_added(shop: Shop) -> None:
    shop.add_column("level", "int")
    shop.change(A_COLUMN)
    shop.check()


def a_column_with_a_default_is_added_and_a_snapshot_taken(shop: Shop) -> None:
    """The database gives the rows that it has a value, and tells nobody: only a snapshot has it."""
    shop.add_column("grade", "string")
    shop.change(A_COLUMN_WITH_A_DEFAULT)
    expected = shop.all_rows()
    for rows in expected.values():
        for id_ in rows.keys() - {2, 3}:
            rows[id_]["grade"] = None
    shop.check(expected)
    for table in TABLES:
        shop.connect.halt(table)
        shop.connect.restart_from_a_snapshot(table)
    shop.wait_for_events()
    shop.check()


def the_tables_are_truncated(shop: Shop) -> None:
    """An event without a key, in one of the partitions: the rows stay, and quarantine says so."""
    before = shop.all_rows()
    kept = {table: shop.quarantined(table) for table in TABLES}
    shop.change("TRUNCATE OURS")
    shop.check({table: before[table] | shop.rows(table) for table in TABLES})
    for table in TABLES:
        (why,) = set(shop.quarantined(table)) - set(kept[table])
        assert why == "decode: TRUNCATE is no change of one row: the rows stay"


def the_tables_are_made_again(shop: Shop) -> None:
    """As docs/formats says how to go on after a TRUNCATE."""
    assert shop.server is not None
    for table in TABLES:
        shop.connect.halt(table)
    shop.server.stop()
    shop.start = "latest"
    shop.configure()
    for table in TABLES:
        shop.run("table", "drop", table, "--yes")
    shop.create_and_serve()
    for table in TABLES:
        shop.connect.restart_from_a_snapshot(table)
    shop.change(INSERTS)
    shop.check()

"""SQL over live tables: the rows of an extract, at one read point, by statements that only read."""

from __future__ import annotations

import io
import os
import random
import re
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from tests.failpoints.meanwhile import meanwhile
from tests.partition_spec import partition_spec_of
from tests.serving.read import test_private
from tests.tier import quick_or_full
from thermocline.errors import SqlRefused, SqlTooLarge, StorageFailed
from thermocline.iceberg import catalog as catalogs
from thermocline.rules.definition import LiveTable
from thermocline.rules.keys import bucket_of
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.serving.read import private
from thermocline.serving.read.caller import EVERYONE
from thermocline.serving.read.extract import Extract
from thermocline.serving.read.sql import LiveRows, answered
from thermocline.serving.read.wanted import Wanted
from thermocline.serving.where.arrow import implied
from thermocline.serving.where.expression import expression_of
from thermocline.serving.where.predicate import OneOf, Value
from thermocline.settings import SqlSettings

private_world = test_private.private_world

USERS = 40
_TYPES = {
    "id": "int",
    "name": "string",
    "ratio": "double",
    "price": "decimal(9,2)",
    "day": "date",
    "moment": "timestamptz",
    "ref": "uuid",
    "raw": "binary",
    "ok": "boolean",
    "place": "struct<city: string, floor: int>",
}
CONDITIONS = (
    "id > 20",
    "id BETWEEN 3 AND 9 OR id IS NULL",
    "name IN ('n1', 'n2', 'nobody') AND id < 30",
    "name LIKE 'n1%'",
    "NOT (name = 'n7')",
    "ratio > 3",
    "ratio <= 3",
    "ratio = 'nan'",
    "price >= 10.50",
    "day < '2026-01-10'",
    "moment >= '2026-01-01 05:00:00+02'",
    "ref = '00000000-0000-0000-0000-00000000000b'",
    "raw > '\\x05'::BLOB",
    "ok",
    "NOT ok",
    "ok IS NULL",
    "place.floor = 4",
    "place.city IS NULL",
    "id = 7 AND name = 'n7'",
    "id + 1 = 8",
    "name = 'n7' AND ratio = 1",
    "price = 3.5",
    "day = '2026-01-09'",
    "moment = '2026-01-01 05:00:00+02'",
    "raw = '\\x05'::BLOB AND ok = false",
    "(name = 'n7' OR name = 'n8') AND ok = true",
    "id IN (3, 7, 99) OR name IN ('n9', 'nobody')",
    "id IS NULL OR id = 5",
    "id = 5 OR ratio = 1",
    "price IN (1.5, 2.5, 3) AND NOT (id IN (3))",
    "raw IN ('\\x05'::BLOB, '\\x06'::BLOB)",
    "day IN ('2026-01-03', '2026-01-04') AND id > 10",
    "moment IN ('2026-01-01 05:00:00+02', '2026-01-01 06:00:00+02')",
    "ok IN (true) AND id <= 12",
    "ratio IN (1, 'nan')",
    "place.city IN ('c3', 'c4')",
    "moment < '20000-01-01 00:00:00+00'",
    " OR ".join(f"id = {number} AND name = 'n{number}'" for number in range(5, 600)),
    "id < 9 AND " + " AND ".join(f"name <> 'm{number}'" for number in range(600)),
)


def rows_of(world: SimpleNamespace, statement: str) -> list[dict[str, Any]]:
    with answered(world.settings, statement) as answer:
        return [row for batch in answer.batches() for row in batch.to_pylist()]


def test_a_statement_sees_the_rows_of_an_extract_at_its_read_point(private_world: SimpleNamespace) -> None:
    _write_hot_records(private_world)
    with answered(private_world.settings, "SELECT * FROM profiles ORDER BY user_id") as answer:
        found = pa.Table.from_batches(answer.batches(), answer.schema).to_pylist()
        point = answer.read_points["profiles"]
    sink = io.BytesIO()
    private.extract(private_world.settings, "profiles", None, "arrow", sink, point, lambda _: None)
    extracted = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
    assert found == sorted(extracted, key=lambda row: row["user_id"])
    assert {row["user_id"]: row["value"] for row in found} == {"u0": "cold", "u1": "hot", "u9": "hot"}


def test_a_table_may_be_scanned_several_times_and_given_up(private_world: SimpleNamespace) -> None:
    _write_hot_records(private_world)
    joined = (
        "SELECT a.user_id FROM profiles a JOIN PROFILES b USING (user_id) WHERE b.value = 'hot' ORDER BY 1"
    )
    assert rows_of(private_world, joined) == [{"user_id": "u1"}, {"user_id": "u9"}]
    assert len(rows_of(private_world, "SELECT 1 AS one FROM profiles LIMIT 1;")) == 1
    assert rows_of(private_world, "SELECT count(*) AS n, count(*) AS n FROM profiles") == [{"n": 3, "n_1": 3}]


def test_tables_of_one_topic_end_at_the_same_offsets(private_world: SimpleNamespace) -> None:
    """The log grows each time that its ends are asked for: a table after the other would see more of it."""
    _add_a_second_table(private_world)
    world = private_world.world

    def growing(_: Any) -> Any:
        world.produce(test_private.key_of("grown"), test_private.value_of(str(len(world.logs[0]))))
        return world.end

    private_world.log.ends = growing
    joined = "SELECT a.value AS one, b.value AS other FROM profiles a JOIN copies b USING (user_id)"
    with answered(private_world.settings, f"{joined} WHERE user_id = 'grown'") as answer:
        (row,) = [row for batch in answer.batches() for row in batch.to_pylist()]
        assert row["one"] == row["other"]
        assert answer.read_points["profiles"].end == answer.read_points["copies"].end


def test_the_live_tables_are_listed_with_their_columns(private_world: SimpleNamespace) -> None:
    _add_a_second_table(private_world)
    _write_hot_records(private_world)
    assert rows_of(private_world, "SHOW TABLES") == [{"name": "copies"}, {"name": "profiles"}]
    described = rows_of(private_world, "DESCRIBE profiles")
    assert ("value", "VARCHAR") in [(row["column_name"], row["column_type"]) for row in described]
    columns = "SELECT column_name FROM information_schema.columns WHERE table_name = 'copies'"
    assert {"column_name": "user_id"} in rows_of(private_world, columns)
    both = "SELECT count(*) AS n, (SELECT count(*) FROM information_schema.tables) AS tables FROM profiles"
    assert rows_of(private_world, both) == [{"n": 3, "tables": 2}]


def test_provenance_is_there_for_those_who_name_it(private_world: SimpleNamespace) -> None:
    offsets = rows_of(private_world, "SELECT user_id, _kafka_offset FROM profiles ORDER BY 1 LIMIT 1")
    assert offsets == [{"user_id": "u0", "_kafka_offset": 0}]
    assert "_kafka_offset" not in rows_of(private_world, "SELECT * FROM profiles")[0]
    of_first = "SELECT user_id, _KAFKA_OFFSET FROM profiles WHERE _Kafka_Partition = 0 ORDER BY 1 LIMIT 1"
    assert rows_of(private_world, of_first) == [{"user_id": "u0", "_kafka_offset": 0}]


@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("SELECT * FORM profiles", 'syntax error at or near "profiles" (line 1, column 15)'),
        ("SELECT 'äö',\n  nope FROM profiles", '"nope" not found in FROM clause! .* (line 2, column 3)'),
        (
            "SELECT * FROM profile",
            'there is no table "profile"; did you mean "profiles"? (line 1, column 15)',
        ),
        ("EXPLAIN SELECT nope FROM profiles", '"nope" not found .* (line 1, column 16)'),
        (
            "SELECT user_id::INT FROM profiles",
            "Could not convert string 'u.' to INT32 .* (line 1, column 15)",
        ),
        ("SELECT 1; SELECT 2", "one statement at a time"),
        (" ", "there is no statement"),
        ("SELECT '\udcff'", "not valid UTF-8"),
    ],
)
def test_a_mistake_is_one_sentence_with_its_place(
    private_world: SimpleNamespace, statement: str, what: str
) -> None:
    with pytest.raises(SqlRefused) as refused:
        rows_of(private_world, statement)
    pattern = what.replace("(", r"\(").replace(")", r"\)").replace("?", r"\?")
    assert refused.match(pattern)
    assert "\n" not in refused.value.what


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE copied AS SELECT * FROM profiles",
        "INSERT INTO profiles VALUES (1)",
        "DROP VIEW profiles",
        "COPY profiles TO '{folder}/copied.csv'",
        "ATTACH '{folder}/other.db'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "SET memory_limit = '8GB'",
        "PRAGMA threads = 8",
        "CALL pragma_version()",
        "EXPLAIN CREATE TABLE made AS SELECT 1",
        "explain analyze CREATE TABLE made AS SELECT 1",
        "EXPLAIN ANALYZE COPY (SELECT 1) TO '{folder}/copied.csv'",
        "SELECT * FROM read_csv('{folder}/secret.csv')",
        "SELECT * FROM '{folder}/secret.csv'",
        "SELECT * FROM glob('{folder}/*')",
        "SELECT * FROM read_text('{folder}/secret.csv')",
        "SELECT * FROM query('FROM read_text(''{folder}/secret.csv'')')",
    ],
)
def test_a_statement_neither_writes_nor_leaves_the_database(
    private_world: SimpleNamespace, tmp_path: Path, statement: str
) -> None:
    (tmp_path / "secret.csv").write_text("secret\n1\n")
    with pytest.raises(SqlRefused):
        rows_of(private_world, statement.format(folder=tmp_path))
    assert not [*tmp_path.glob("copied*"), *tmp_path.glob("other*")]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT sum(range) FROM range(1000000000000)",
        "SELECT range FROM range(1000000000000) WHERE range < 100000 OR hash(range) = 1",
    ],
    ids=["before its first row", "between two rows"],
)
def test_ctrl_c_ends_a_statement_that_computes(private_world: SimpleNamespace, statement: str) -> None:
    with pytest.raises(KeyboardInterrupt), _interrupts():
        rows_of(private_world, statement)


@contextmanager
def _interrupts() -> Iterator[None]:
    """Presses Ctrl-C every second: one that meets a callback of the garbage collector is swallowed there."""
    # A shell starts what it runs in the background with SIGINT ignored.
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    ended = threading.Event()

    def interrupt() -> None:
        while not ended.wait(1):
            os.kill(os.getpid(), signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    try:
        yield
    finally:
        ended.set()
        interrupting.join()
        signal.signal(signal.SIGINT, previous)


def test_more_memory_than_allowed_is_named(private_world: SimpleNamespace) -> None:
    private_world.settings = private_world.settings.model_copy(
        update={"sql": SqlSettings(memory_bytes_max=50_000_000)}
    )
    with pytest.raises(SqlTooLarge) as large:
        rows_of(private_world, "SELECT list(md5(i::VARCHAR)) AS all FROM range(2_000_000) t(i)")
    assert "50,000,000 bytes" in large.value.what


@pytest.mark.parametrize(
    ("condition", "users"),
    [
        ("app_id = 7 AND user_id = 'u1'", ["u1"]),
        ("'u9' = user_id AND value LIKE 'h%'", ["u9"]),
        ("user_id = 'u2'", []),  # deleted, as only the log has it
        ("user_id = 'u1' AND value = 'cold'", []),  # as the table has it, and the log no longer
        ("user_id IN ('u9', 'u1')", ["u1", "u9"]),
        ("app_id > 6 AND (user_id = 'u1' OR user_id = 'u9')", ["u1", "u9"]),
    ],
)
def test_a_statement_on_few_entities_reads_their_buckets_alone(
    private_world: SimpleNamespace, condition: str, users: list[str]
) -> None:
    _write_hot_records(private_world)
    read: list[None] = []
    with meanwhile("extract.bucket", lambda: read.append(None)):
        found = rows_of(private_world, f"SELECT user_id FROM profiles WHERE {condition}")
    assert sorted(row["user_id"] for row in found) == users
    named = re.findall("u[0-9]", condition)
    assert len(read) == len({bucket_of(private_world.world.definition, user) for user in named})
    assert len(read) < private_world.world.definition.buckets


def test_what_fails_in_a_scan_keeps_its_name(
    private_world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: Extract) -> Any:
        raise StorageFailed(table="profiles", detail="Input/output error")
        yield

    monkeypatch.setattr(Extract, "batches", failing)
    with pytest.raises(StorageFailed, match="Input/output error"):
        rows_of(private_world, "SELECT * FROM profiles")


def _scanned_and_plain(conditions: Sequence[str]) -> Iterator[tuple[list[Any], list[Any], bool]]:
    """The same query over the scans, which are handed projection and condition, and over a plain table.

    And whether the scan asked its table for less than all rows.
    """
    definition = LiveTable.build(
        name="things", identifier="a.things", topics=("things",), key=("id",), entity=("id",), columns=_TYPES
    )
    table = _Table(definition, _things(definition))
    scans = LiveRows(table, list(_TYPES), EVERYONE)
    whole = pa.Table.from_batches(scans.scanner().to_reader(), scans.schema)
    with duckdb.connect(config={"python_enable_replacements": False}) as connection:
        connection.register("scanned", scans)
        connection.register("plain", whole)
        for condition in conditions:
            query = f"SELECT name, ref FROM {{}} WHERE {condition} ORDER BY name"
            found, expected = (
                connection.execute(query.format(one)).fetchall() for one in ("scanned", "plain")
            )
            yield found, expected, table.wanted.where is not None


@pytest.mark.parametrize("condition", CONDITIONS)
def test_a_condition_given_to_a_scan_means_what_it_means_to_duckdb(condition: str) -> None:
    ((found, expected, _),) = _scanned_and_plain([condition])
    assert found == expected
    assert 0 < len(found) <= USERS


def test_conditions_joined_in_any_way_mean_what_they_mean_to_duckdb(seed: int) -> None:
    chance = random.Random(seed)

    def condition(depth: int) -> str:
        if not depth or chance.random() < 0.2:
            return f"({chance.choice(CONDITIONS)})"
        joined = f" {chance.choice(['AND', 'OR'])} ".join(
            condition(depth - 1) for _ in range(chance.choice([1, 2, 3]))
        )
        return f"{chance.choice(['', '', 'NOT '])}({joined})"

    conditions = [condition(3) for _ in range(quick_or_full(30, 200))]
    narrowed = 0
    for one, (found, expected, is_narrowed) in zip(conditions, _scanned_and_plain(conditions), strict=True):
        assert found == expected, one
        narrowed += is_narrowed
    assert narrowed


def test_a_field_within_a_column_is_not_taken_for_the_column() -> None:
    columns = {"id": "int", "city": "string", "place": "struct<city: string>"}
    definition = LiveTable.build(name="t", identifier="a.t", topics=("t",), key=("id",), columns=columns)
    assert implied(definition, pc.field("place", "city").isin(["c1"])) is None
    city = next(one for one in definition.columns if one.name == "city")
    assert implied(definition, pc.field("city").isin(["c1"])) == OneOf(city, (Value("c1"),))


class _Table:
    """A table of which the rows are known, as far as SQL asks it."""

    read_point = ReadPoint(1, Seam(), Seam())

    def __init__(self, definition: LiveTable, stored: pa.Table) -> None:
        self.definition = definition
        self.wanted = Wanted()
        self._stored = stored

    def scan(self, wanted: Wanted) -> Any:
        self.wanted = wanted
        stored = self._stored
        if wanted.where is not None:
            assert not isinstance(wanted.where, str)
            matches = expression_of(wanted.where, {name: name for name in stored.column_names})
            stored = duckdb.from_arrow(stored).filter(matches).to_arrow_table().cast(stored.schema)
        rows = stored.select(wanted.columns)
        return SimpleNamespace(
            schema=rows.schema, batches=lambda: (batch for batch in rows.to_batches(7)), read_point=None
        )


def _things(definition: LiveTable) -> pa.Table:
    """Rows with every value, nulls and NaN among them, as an extract has them."""
    rows = [
        {
            "id": n,
            "name": f"n{n}",
            "ratio": float("nan") if n % 5 == 0 else n / 7,
            "price": Decimal(n) / 2,
            "day": date(2026, 1, 1 + n % 28),
            "moment": datetime(2026, 1, 1, n % 24, tzinfo=UTC),
            "ref": UUID(int=n).bytes,
            "raw": bytes([n]),
            "ok": n % 2 == 0,
            "place": {"city": f"c{n}", "floor": n % 6},
        }
        for n in range(USERS)
    ]
    rows.append({"id": USERS, "name": "nulls"})
    schema = pa.schema([definition.given_schema.field(name) for name in _TYPES])
    return pa.Table.from_pylist(rows, schema)


def _add_a_second_table(world: SimpleNamespace) -> None:
    """``copies``, of the same topic and committed up to the same offsets as ``profiles``."""
    catalog = catalogs.open_catalog(world.settings.catalog)
    copies = catalog.create_table(
        "app.copies",
        world.world.definition.iceberg_schema(),
        partition_spec=partition_spec_of(world.world.definition),
        properties={catalogs.DEFINITION_PROPERTY: world.world.definition.to_json()},
    )
    test_private.commit(copies, world.world)
    section = world.settings.tables["profiles"].model_copy(update={"identifier": "app.copies"})
    tables = {**world.settings.tables, "copies": section}
    world.settings = world.settings.model_copy(update={"tables": tables})


def _write_hot_records(world: SimpleNamespace) -> None:
    """A row written again, one deleted, and a new one; all of them beyond the seam."""
    profile, value = test_private.key_of, test_private.value_of
    world.world.produce(profile("u1"), value("hot"), partition=1)
    world.world.produce(profile("u9"), value("hot"), partition=2)
    world.world.produce(profile("u2"), None, partition=2)

"""A table that is altered, and at last dropped, while a server runs: all reads equal a plain replay."""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.behaviour.topic import APP, Topic
from thermocline.cli.server_answers import Client
from thermocline.dev.stack import TABLE, TOPIC, Command, Stack
from thermocline.errors import AlterationRefused, DefinitionDiffers, ExitCode
from thermocline.iceberg.catalog import current_state, find_table, load_table, open_catalog
from thermocline.ingest.owner.owner import Owner
from thermocline.rules.decode import json_row
from thermocline.rules.definition import PROVENANCE
from thermocline.serving.read import private
from thermocline.settings import load_settings

pytestmark = pytest.mark.full

MORE = "more"
USERS = ("u0", "u1", "u2")
KEY = ("app_id", "user_id", "key")
# The definitions of the story, one after the other; in the middle and at the end of the file.
SECOND = {"count": "int", "price": "decimal(6,2)"}
THIRD = {"score": "double", "count": "long", "price": "decimal(12,2)"}
INT_MAX = 2**31 - 1
MADE_WITH: dict[str, Any] = {
    "identifier": f"app.{TABLE}",
    "topics": [TOPIC],
    "key": KEY,
    "entity": KEY[:2],
    "buckets": 2,
}

Rows = dict[tuple[str, str], dict[str, Any]]


@dataclass
class Told:
    """The records of one partition and, for each, the columns under which the table took it in.

    A record that is not committed yet is read under the columns of now.
    """

    topic: Topic
    columns: dict[str, str]
    records: list[tuple[str, str, dict[str, Any] | None]] = field(default_factory=list)
    committed: list[dict[str, str]] = field(default_factory=list)

    def write(self, user: str, key: str, **value: Any) -> None:
        """One record; without values a tombstone."""
        row = json.dumps(dict(zip(KEY, (APP, user, key), strict=True))).encode()
        self.topic.send_raw(row, json.dumps(value).encode() if value else None)
        self.records.append((user, key, value or None))

    def commit(self) -> None:
        """All that was written was committed, as the columns are now."""
        self.committed += [self.columns] * (len(self.records) - len(self.committed))

    def read_after(self) -> str:
        self.topic.flush()
        return f"{TOPIC}/0@{len(self.records) - 1}"

    def rows(self) -> Rows:
        """The replay: what a record has beyond the columns of its time is not known to the table."""
        rows: Rows = {}
        for place, (user, key, value) in enumerate(self.records):
            columns = self.committed[place] if place < len(self.committed) else self.columns
            if value is None:
                rows.pop((user, key), None)
            elif not (columns.get("count") == "int" and value.get("count", 0) > INT_MAX):  # that one is bad
                known = {name: value.get(name) for name in columns}
                rows[user, key] = {
                    **dict.fromkeys(self.columns),
                    **known,
                    **dict(zip(KEY, (APP, user, key), strict=True)),
                }
        return rows


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    # An owner that lives shows it within a second, so that nobody waits for long.
    return new_stack("altered", partitions=1, buckets=2, lease_seconds=3.0)


@pytest.fixture(scope="module")
def told(stack: Stack) -> Told:
    columns = {name: str(kind) for name, kind in stack.settings.table(TABLE).columns.items()}
    return Told(Topic(stack.settings.kafka, TOPIC), columns)


def configure(stack: Stack, columns: dict[str, str], **settings: Any) -> None:
    """Writes what the file says of the table; the process that a command becomes reads it."""
    before, _, _ = stack.config_path.read_text().partition(f"[tables.{TABLE}]")
    lines = [f"{name} = {json.dumps(value)}" for name, value in {**MADE_WITH, **settings}.items()]
    kinds = [f'{name} = "{kind}"' for name, kind in columns.items()]
    text = "\n".join([f"[tables.{TABLE}]", *lines, f"[tables.{TABLE}.columns]", *kinds, ""])
    stack.config_path.write_text(f"{before}{text}")
    stack.settings = load_settings(stack.config_path)


def exit_code(stack: Stack, *arguments: str) -> tuple[int, str]:
    """A command's exit code and all that it said."""
    log_path = stack.folder / f"command-{len(list(stack.folder.glob('command-*')))}.log"
    command = Command(stack.config_path, log_path, *arguments)
    code = command.process.wait()
    command.stop()
    return code, command.log_path.read_text()


def alter(stack: Stack, told: Told, columns: dict[str, str]) -> None:
    configure(stack, columns)
    code, said = exit_code(stack, "table", "alter", TABLE, "--yes")
    assert code == ExitCode.DONE, said
    told.columns = columns


def served(stack: Stack, told: Told) -> Rows:
    with Client(stack.url) as client:
        rows: Rows = {}
        for user in USERS:
            answer: Any = client.lookup(TABLE, {"app_id": str(APP), "user_id": user}, told.read_after())
            rows |= {(row["user_id"], row["key"]): row for row in answer["rows"]}
        return rows


def keyed(table: pa.Table) -> Rows:
    rows = [msgspec.json.decode(json_row(row)) for row in table.to_pylist()]
    found = {(row["user_id"], row["key"]): row for row in rows}
    assert len(found) == len(rows), "a row came twice"
    return found


def extracted(stack: Stack, format_name: str) -> Rows:
    sink = io.BytesIO()
    with Client(stack.url) as client:
        client.extract(TABLE, None, format_name, sink, lambda _: None)
    if format_name == "parquet":
        return keyed(pq.read_table(sink))
    return keyed(pa.ipc.open_stream(sink.getvalue()).read_all())


def without_a_server(stack: Stack) -> Rows:
    sink = io.BytesIO()
    private.extract(stack.settings, TABLE, None, "arrow", sink, None, lambda _: None)
    return keyed(pa.ipc.open_stream(sink.getvalue()).read_all())


def looked_up_without_a_server(stack: Stack, user: str) -> Rows:
    answer = private.lookup(stack.settings, TABLE, {"app_id": str(APP), "user_id": user})
    return {(row["user_id"], row["key"]): row for row in answer["rows"]}


def check_read_paths(stack: Stack, told: Told) -> None:
    expected = told.rows()
    assert served(stack, told) == expected
    assert extracted(stack, "arrow") == expected
    assert extracted(stack, "parquet") == expected
    assert without_a_server(stack) == expected
    assert looked_up_without_a_server(stack, "u0") == {k: row for k, row in expected.items() if k[0] == "u0"}


def check_readers(stack: Stack, told: Told, session: SparkSession) -> None:
    """Spark and PyIceberg read what was committed, which is all."""
    expected = told.rows()
    spark = [row.asDict() for row in session.sql(f"SELECT * FROM altered.app.{TABLE}").collect()]
    iceberg = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}").scan().to_arrow()
    for rows in (spark, iceberg.to_pylist()):
        plain = [{name: value for name, value in row.items() if name not in PROVENANCE} for row in rows]
        decoded = [msgspec.json.decode(json_row(row)) for row in plain]
        assert {(row["user_id"], row["key"]): row for row in decoded} == expected
        assert len(rows) == len(expected)


def commit(stack: Stack, told: Told, owner: Owner) -> None:
    told.read_after()
    owner.catch_up(threading.Event())
    told.commit()
    wait_for_snapshot(stack, owner.position.snapshot_id)


def wait_for_snapshot(stack: Stack, snapshot_id: int) -> None:
    path = f"/v1/tables/{TABLE}/rows?app_id={APP}&user_id=x"
    stack.wait_for(
        lambda: stack.get(path)[1].get("read_point", {}).get("snapshot_id") == str(snapshot_id),
        "the server reads the new snapshot",
    )


def wait_for_definition(stack: Stack, columns: dict[str, str]) -> None:
    def is_there() -> bool:
        definition = stack.get(f"/v1/tables/{TABLE}")[1].get("definition", {})
        return [column["name"] for column in definition.get("columns", [])] == list(columns)

    stack.wait_for(is_there, "the server follows the definition")
    stack.wait_for(lambda: stack.get("/readyz")[0] == 200, "the server is ready again")


@contextmanager
def asked_all_the_while(stack: Stack) -> Iterator[list[tuple[int, Any]]]:
    """An entity is looked up and the whole table extracted, again and again, while the block runs."""
    stop, answers = threading.Event(), []
    row = {"app_id": str(APP), "user_id": "u0"}

    def ask() -> None:
        with httpx.Client(base_url=stack.url, timeout=60) as client:
            while not stop.is_set():
                looked_up = client.get(f"/v1/tables/{TABLE}/rows", params=row)
                answers.append((looked_up.status_code, looked_up.json()))
                extract = client.post(f"/v1/tables/{TABLE}/extract", headers={"Accept": ARROW})
                if extract.status_code == 200:
                    rows = pa.ipc.open_stream(extract.content).read_all()
                    found = [r for r in keyed(rows).values() if r["user_id"] == "u0"]
                    answers.append((200, {"rows": found}))
                else:
                    answers.append((extract.status_code, extract.json()))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield answers
    finally:
        stop.set()
        thread.join()


ARROW = "application/vnd.apache.arrow.stream"


@pytest.fixture(scope="module")
def server(stack: Stack) -> Command:
    server = stack.serve()
    stack.wait_until_ready(server)
    return server


@pytest.fixture(scope="module")
def spark(stack: Stack, new_spark: Callable[[Stack], SparkSession]) -> SparkSession:
    return new_spark(stack)


@pytest.fixture(scope="module")
def story(
    stack: Stack, told: Told, server: Command, new_owner: Callable[[Stack], Owner], spark: SparkSession
) -> Owner:
    """Goal: an alteration at any moment leaves every read path right, and the server up.

    Method: columns are added to a table that has rows, then widened and added again, while records of both
    sides of each alteration are hot. One record can't be read before the second alteration, and can after it.
    The owner at the end is given back.
    """
    base = dict(told.columns)
    told.write("u0", "plain", value="of the first definition", count=7)
    commit(stack, told, new_owner(stack))
    release(stack, new_owner)
    alter(stack, told, {**base, **SECOND})
    wait_for_definition(stack, told.columns)
    check_read_paths(stack, told)

    for number in range(40):
        told.write(USERS[number % 3], f"k{number}", value=f"v{number}", count=number, price=f"{number}.25")
    owner = new_owner(stack)
    commit(stack, told, owner)
    told.write("u0", "hot", value="hot", count=1, price="9999.99", score=0.5)
    told.write("u0", "k0", count=2**40, price="0.01", score=1.5)
    told.write("u1", "k1")
    check_read_paths(stack, told)
    assert told.rows()["u0", "k0"]["count"] == 0

    owner.lease.release()
    third = {"score": "double", **base, **{name: kind for name, kind in THIRD.items() if name != "score"}}
    before = told.rows()
    with asked_all_the_while(stack) as answers:
        alter(stack, told, third)
        wait_for_definition(stack, third)
        count = len(answers)
        stack.wait_for(lambda: len(answers) > count + 2, "both read paths were asked once more", server)
    check_answers(answers, before, told.rows())
    assert told.rows()["u0", "k0"]["count"] == 2**40
    check_read_paths(stack, told)

    told.write("u2", "wide", value="wide", count=2**50, price="1234567890.25", score=2.5)
    told.write("u0", "k3", value="changed", score=3.5)
    check_read_paths(stack, told)
    owner = new_owner(stack)
    commit(stack, told, owner)
    check_read_paths(stack, told)
    check_readers(stack, told, spark)

    told.write("u0", "plain", value="again", count=2**33)
    told.write("u1", "k4")
    commit(stack, told, owner)
    check_read_paths(stack, told)
    check_readers(stack, told, spark)
    return owner


def release(stack: Stack, new_owner: Callable[[Stack], Owner]) -> None:
    new_owner(stack).lease.release()


def check_answers(answers: list[tuple[int, Any]], before: Rows, after: Rows) -> None:
    """Each answer is wholly of the one definition or of the other, and none goes back."""
    of_u0 = [{k: row for k, row in rows.items() if k[0] == "u0"} for rows in (before, after)]
    seen = []
    for status, body in answers:
        if status == 200:
            found = {(row["user_id"], row["key"]): row for row in body["rows"]}
            assert found in of_u0, found
            seen.append(of_u0.index(found))
        else:
            assert (status, body["code"]) == (503, "not-ready"), body
    assert seen == sorted(seen)
    assert set(seen) == {0, 1}


def test_all_reads_equal_the_replay_before_and_after_each_alteration(story: Owner, server: Command) -> None:
    server.check()


def test_the_iceberg_table_has_the_definitions_columns_and_field_ids(story: Owner, stack: Stack) -> None:
    table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")
    names = [field.name for field in table.schema().fields]
    assert names == [
        "score",
        "app_id",
        "user_id",
        "key",
        "value",
        "updated_at",
        "count",
        "price",
        *PROVENANCE,
    ]
    assert [str(table.schema().find_type(name)) for name in ("count", "price")] == ["long", "decimal(12, 2)"]
    ids = {field.name: field.field_id for field in table.schema().fields}
    created = [*names[1:6], *PROVENANCE]
    assert ids == {**dict(zip(created, range(1, 10), strict=True)), "count": 10, "price": 11, "score": 12}


def test_a_table_that_is_owned_is_not_altered(story: Owner, stack: Stack, told: Told) -> None:
    before = dict(told.columns)
    configure(stack, {**before, "late": "string"})
    code, said = exit_code(stack, "table", "alter", TABLE, "--yes")
    assert code == ExitCode.NOT_OWNER, said
    assert "table-held" in said
    assert f"thermocline --config {stack.config_path} --log-json table alter {TABLE} --yes      (when" in said
    with pytest.raises(DefinitionDiffers) as differs:
        Owner.open(stack.settings, TABLE, story.clock)
    assert differs.value.next.startswith(f"thermocline table alter {TABLE} ")
    configure(stack, before)


def test_what_cannot_be_altered_is_refused_with_every_reason_and_changes_nothing(
    story: Owner, stack: Stack, told: Told, spark: SparkSession
) -> None:
    story.lease.release()
    before = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}").metadata_location
    configure(stack, {**told.columns, "app_id": "long", "count": "int"}, buckets=3)
    code, said = exit_code(stack, "table", "alter", TABLE)
    assert code == AlterationRefused.exit_code
    assert all(reason in said for reason in ("buckets can't become 3", "app_id can't", "count can't")), said
    configure(stack, told.columns)
    assert exit_code(stack, "table", "alter", TABLE)[0] == ExitCode.NOTHING_TO_DO
    configure(stack, {**told.columns, "late": "string"})
    assert exit_code(stack, "table", "alter", TABLE, "--dry-run")[0] == ExitCode.DONE
    after = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}").metadata_location
    assert after == before
    configure(stack, told.columns)


def test_columns_that_another_program_changed_are_met_before_field_ids_part(
    story: Owner, stack: Stack, told: Told, spark: SparkSession
) -> None:
    """Iceberg would give the next column another id than the one that our files carry."""
    story.lease.release()
    spark.sql(f"ALTER TABLE altered.app.{TABLE} ADD COLUMN foreign_one STRING")
    configure(stack, {**told.columns, "late": "string"})
    code, said = exit_code(stack, "table", "alter", TABLE, "--yes")
    assert code == AlterationRefused.exit_code
    assert "another program changed the table's columns" in said
    spark.sql(f"ALTER TABLE altered.app.{TABLE} DROP COLUMN foreign_one")
    configure(stack, told.columns)


def test_a_topic_that_is_added_is_read_from_its_start(
    story: Owner,
    stack: Stack,
    told: Told,
    server: Command,
    new_owner: Callable[[Stack], Owner],
    spark: SparkSession,
) -> None:
    """Also after another program rolled the table back to before it was added."""
    story.lease.release()
    table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")
    before = current_state(table, TABLE).snapshot_id
    stack.kafka.create_topic(MORE, 1)
    more = Topic(stack.settings.kafka, MORE)
    more.send_raw(json.dumps({"app_id": APP, "user_id": "u9", "key": "k"}).encode(), b'{"value":"more"}')
    more.flush()
    configure(stack, told.columns, topics=[TOPIC, "nowhere"])
    assert "topic-missing" in exit_code(stack, "table", "alter", TABLE)[1]
    configure(stack, told.columns, topics=[TOPIC, MORE])
    assert exit_code(stack, "table", "alter", TABLE, "--yes")[0] == ExitCode.DONE
    path = f"/v1/tables/{TABLE}/rows?app_id={APP}&user_id=u9"
    stack.wait_for(lambda: bool(stack.get(path)[1].get("rows")), "the server reads the new topic", server)
    owner = new_owner(stack)
    for is_rolled_back in (False, True):
        owner.catch_up(threading.Event())
        assert owner.position.seam == owner.log.ends([TOPIC, MORE])
        table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")
        rows = table.scan().to_arrow().to_pylist()
        assert [row["value"] for row in rows if row["user_id"] == "u9"] == ["more"]
        assert len(rows) == len(told.rows()) + 1
        assert current_state(table, TABLE).topic_ids.keys() == {TOPIC, MORE}
        owner.lease.release()
        if not is_rolled_back:
            spark.sql(f"CALL altered.system.rollback_to_snapshot('app.{TABLE}', {before})").collect()
            # Of no account: it is read again from where it was added.
            configure(stack, told.columns, topics=[TOPIC, MORE], start="latest")
            facts = ("--fact", f"current={before}", "--onto", str(before))
            code, said = exit_code(stack, "ingest", "rebase", TABLE, *facts)
            assert (code, f"the seam is {MORE}/0@0" in said) == (ExitCode.DONE, True), said
            owner = new_owner(stack)


@pytest.mark.local_files
def test_a_dropped_table_goes_with_its_files_and_a_server_says_so_until_it_is_back(
    story: Owner, stack: Stack, told: Told, server: Command
) -> None:
    """Last, since it takes the table away. Without a yes, and while an owner lives, nothing goes."""
    story.lease.release()
    catalog = open_catalog(stack.settings.catalog)
    table = load_table(catalog, TABLE, f"app.{TABLE}")
    folder = stack.folder / "data" / "warehouse" / "app"
    code, said = exit_code(stack, "table", "drop", TABLE, "--purge")
    assert code == ExitCode.USAGE
    assert f"table drop {TABLE} --purge --yes" in said
    assert table.location().endswith(TABLE)
    assert (folder / TABLE / "data").exists()

    code, said = exit_code(stack, "table", "drop", TABLE, "--purge", "--yes")
    assert code == ExitCode.DONE, said
    assert find_table(catalog, f"app.{TABLE}") is None
    assert find_table(catalog, f"app.{TABLE}_quarantine") is None
    assert not list(folder.rglob("*"))
    path = f"/v1/tables/{TABLE}/rows?app_id={APP}&user_id=u0"
    stack.wait_for(lambda: stack.get(path)[0] == 404, "the server refuses", server)
    assert stack.get(path)[1]["code"] == "table-missing"
    assert exit_code(stack, "table", "drop", TABLE, "--yes")[0] == ExitCode.USAGE

    configure(stack, told.columns, topics=[TOPIC, MORE])
    stack.create_table()
    stack.wait_for(lambda: stack.get("/readyz")[0] == 200, "the server serves the new table", server)
    told.committed.clear()
    assert served(stack, told) == told.rows()
    code, said = exit_code(stack, "table", "drop", TABLE, "--yes")
    assert (code, (folder / TABLE / "metadata").exists()) == (ExitCode.DONE, True), said

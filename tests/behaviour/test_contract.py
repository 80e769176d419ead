"""A table that evolves by itself on real parts: its writers' schemas change while ingest and a server run.

Goal: each change of a schema is in the table before the first batch that has records of it, read paths agree
with plain dictionaries in between and at the end, and ingest may end and start at any point. Method: random
changes of schemas, under traffic, on a real broker and a registry in this process. The file never changes; or
somebody drops columns and fields in it, renames some, and has those come back that producers send all along.
"""

from __future__ import annotations

import io
import itertools
import json
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import httpx
import pyarrow as pa
import pytest
from confluent_kafka import Producer

from tests.brokers import Brokers
from tests.changing_writer import FORMATS, ChangingWriter, meant
from tests.thermocline.registry_server import RegistryServer
from thermocline.cli import entry
from thermocline.dev.stack import Stack, StackOptions
from thermocline.errors import ExitCode
from thermocline.iceberg.alterations import alterations_of
from thermocline.iceberg.catalog import SUMMARY_SCHEMA_CAUSE, definition_of, load_table, open_catalog
from thermocline.ingest.engine.engine import Engine, start_engine
from thermocline.ingest.owner.owner import Owner
from thermocline.process.clock import SystemClock
from thermocline.rules.column_types import ColumnType
from thermocline.rules.definition import LiveTable
from thermocline.serving.read import private
from thermocline.settings import load_settings

NAME = "orders"
SECTION = """
[registry]
url = "URL"

[tables.orders]
identifier = "app.orders"
topics = ["orders"]
format = "FORMAT"
key_format = "string"
key = ["id"]
buckets = 2
contract = "CONTRACT"
require_fields = false

[tables.orders.columns]
id = "string"
count = "int"
name = "string"
"""
KEYS = 12
Rows = dict[str, dict[str, Any]]


@pytest.fixture
def registry() -> Iterator[RegistryServer]:
    registry = RegistryServer()
    registry.start()
    yield registry
    registry.stop()


def shape(of: ColumnType) -> Any:
    """A type as `meant` wants it: of a struct its fields."""
    return {one.name: shape(one.type) for one in of.fields} if of.fields else str(of)


class Traffic:
    """A writer of records, and what they mean by hand."""

    def __init__(self, stack: Stack, registry: RegistryServer, format_: str, seed: int, nests: bool) -> None:
        print(f"seed {seed}")
        self.stack, self.registry = stack, registry
        self.writer = ChangingWriter(format_, random.Random(seed), nests=nests)
        self.values: dict[str, dict[str, Any]] = {}
        self.id, self.end = 0, 0
        self.producer = Producer({**stack.settings.kafka.client_config(), "linger.ms": 0, "log_level": 0})

    def register(self) -> None:
        self.id += 1
        kind, text = self.writer.registered()
        self.registry.add(self.id, text, schemaType=kind)

    def write(self, records: int) -> None:
        for _ in range(records):
            key = f"k{self.writer.random.randrange(KEYS)}"
            if self.writer.random.random() < 0.1:
                self.values.pop(key, None)
                self.producer.produce(NAME, None, key.encode())
            else:
                self.values[key] = self.writer.value()
                self.producer.produce(NAME, self.writer.encoded(self.id, self.values[key]), key.encode())
            self.end += 1
        assert self.producer.flush(30) == 0

    def send(self, key: str) -> None:
        """The value that a key has by hand."""
        self.producer.produce(NAME, self.writer.encoded(self.id, self.values[key]), key.encode())
        assert self.producer.flush(30) == 0

    def rows(self, definition: LiveTable) -> Rows:
        """What the rows are in a table with these columns, by the fields that they are read from."""
        columns = [one for one in definition.columns if one.name != "id"]
        fields = {one.read_from[0]: shape(one.type) for one in columns}
        found = {key: meant(value, fields) or {} for key, value in self.values.items()}
        return {
            key: {"id": key, **{one.name: row[one.read_from[0]] for one in columns}}
            for key, row in found.items()
        }

    def forget(self, field: str) -> None:
        """A column comes that is read from the field, and is null in what was committed before: in all."""
        for value in self.values.values():
            value.pop(field, None)


class Operator:
    """Whoever alters the table by the file, which names few of its columns: most come by themselves."""

    def __init__(self, stack: Stack, traffic: Traffic) -> None:
        self.stack, self.traffic = stack, traffic
        self.file = {"id": '"string"', "count": '"int"', "name": '"string"'}
        self.dropped: list[str] = []
        self.turns = itertools.cycle(["drop", "rename", "return", "drop a field", "drop", "return"])
        self.numbers = itertools.count()

    def alter(self) -> None:
        """The next change, by the command; nothing where there is nothing to change."""
        what, options = next(self.turns), ["--yes"]
        columns = [one for one in stored(self.stack).columns if one.name != "id"]
        structs = [one for one in columns if len(one.type.fields) > 1]
        chosen = self.traffic.writer.random.choice((what == "drop a field" and structs) or columns)
        name, field = chosen.name, chosen.read_from[0]
        if what == "drop":
            self.file.pop(name, None)
            self.dropped.append(field)
            options += ["--drop", name]
        elif what == "drop a field":
            if not structs:
                return
            if name in self.file:
                kept = replace(chosen.type, fields=chosen.type.fields[1:])
                self.file[name] = f'{{ type = "{kept}", path = "{field}" }}'
            options += ["--drop", f"{name}.{chosen.type.fields[0].name}"]
        elif what == "rename":
            self.file.pop(name, None)
            spec = f'type = "{chosen.type}", renamed_from = "{name}", path = "{field}"'
            self.file[f"r{next(self.numbers)}"] = f"{{ {spec} }}"
        else:
            name = self.dropped.pop(0)
            self.file[name] = f'"{spelled(self.traffic.writer.ever[name])}"'
            self.traffic.forget(name)
        print(what, name)
        head = self.stack.config_path.read_text().partition("[tables.orders.columns]")
        lines = [f"{column} = {spec}" for column, spec in self.file.items()]
        self.stack.config_path.write_text("\n".join([head[0] + head[1], *lines, ""]))
        self.stack.settings = load_settings(self.stack.config_path)
        assert run(self.stack, "table", "alter", NAME, *options) == 0


def spelled(of: Any) -> str:
    """A writer's type as a definition has it."""
    if not isinstance(of, dict):
        return str(of)
    return f"struct<{', '.join(f'{name}: {spelled(one)}' for name, one in of.items())}>"


@contextmanager
def started(
    tmp_path: Any, brokers: Brokers, registry: RegistryServer, format_: str, contract: str
) -> Iterator[Stack]:
    with (
        brokers.lent() as kafka,
        Stack(tmp_path, StackOptions(catalog=f"contract_{format_}", engine="local", kafka=kafka)) as stack,
    ):
        base = stack.config_path.read_text().partition("[tables.")[0]
        section = SECTION.replace("URL", registry.url).replace("FORMAT", format_)
        stack.config_path.write_text(base + section.replace("CONTRACT", contract))
        stack.settings = load_settings(stack.config_path)
        kafka.create_topic(NAME, 1)
        assert run(stack, "table", "create", NAME) == 0
        yield stack


def followed(
    tmp_path: Any,
    brokers: Brokers,
    registry: RegistryServer,
    format_: str,
    changes: int,
    alters: bool = False,
) -> None:
    """Random changes under traffic, with owners that end; read paths are compared after each.

    ``alters``: somebody alters the table, too, and rewrites its files.
    """
    with started(tmp_path, brokers, registry, format_, "evolve") as stack:
        traffic = Traffic(stack, registry, format_, random.randrange(1_000_000), nests=True)
        traffic.register()
        server = stack.serve()
        stack.wait_until_ready(server)
        engine = start_engine(stack.settings, "contract")
        operator = Operator(stack, traffic)
        with owned(stack, engine) as owner:
            for number in range(changes):
                if alters and number % 3 == 2:
                    owner.again(operator.alter)
                    stack.wait_for(is_followed(stack, owner.it), "the server reads the new columns")
                    assert looked_up(stack, traffic) == extracted(stack) == traffic.rows(stored(stack))
                if alters and number % 10 == 9:
                    owner.again(lambda: rewritten(stack))
                    assert looked_up(stack, traffic) == extracted(stack) == traffic.rows(stored(stack))
                traffic.write(traffic.writer.random.randrange(5))
                changed = traffic.writer.change()
                print(changed)
                traffic.register()
                traffic.write(1 + traffic.writer.random.randrange(8))
                if not changed.startswith(
                    "widen"
                ):  # what does not fit a column yet counts after the next commit
                    assert looked_up(stack, traffic) == traffic.rows(stored(stack)), "by the columns so far"
                if traffic.writer.random.random() < 0.3:
                    owner.again()
                owner.it.catch_up(threading.Event())
                expected = traffic.rows(stored(stack))
                read = {one.read_from[0] for one in stored(stack).columns}
                assert read.isdisjoint(operator.dropped)
                assert read | {*operator.dropped} >= {*traffic.writer.fields}
                stack.wait_for(is_followed(stack, owner.it), "the server reads the new snapshot")
                assert looked_up(stack, traffic) == expected
            assert extracted(stack) == traffic.rows(stored(stack))
        engine.stop()
        assert run(stack, "verify", NAME) == 0
        causes = [
            json.loads(one.summary[SUMMARY_SCHEMA_CAUSE])
            for one in table(stack).metadata.snapshots
            if one.summary is not None and SUMMARY_SCHEMA_CAUSE in one.summary.additional_properties
        ]
        notes = alterations_of(table(stack).properties)
        assert len(notes) >= min(len(causes), 50)
        by_itself = [one for one in notes if one.causes]
        assert alters or len(by_itself) == len(notes)
        assert len(by_itself) <= len(causes)
        assert {*causes[0][0]} == {"changes", "topic", "partition", "offset", "part", "schema", "named"}
        assert run(stack, "table", "diff", NAME) == 0, "the file need not be changed"
        assert run(stack, "table", "alter", NAME) == ExitCode.NOTHING_TO_DO, "nor take back what it gained"


@pytest.mark.jvm
def test_read_paths_agree_while_writers_schemas_change(
    tmp_path: Any, jvm: Any, brokers: Brokers, registry: RegistryServer
) -> None:
    followed(tmp_path, brokers, registry, "avro", changes=8)


@pytest.mark.jvm
@pytest.mark.full
@pytest.mark.parametrize("format_", FORMATS)
def test_read_paths_agree_after_many_changes(
    tmp_path: Any, jvm: Any, brokers: Brokers, registry: RegistryServer, format_: str
) -> None:
    followed(tmp_path, brokers, registry, format_, changes=50, alters=True)


class Owned:
    """An owner, which ends and is followed by another one."""

    def __init__(self, stack: Stack, engine: Engine) -> None:
        self.stack, self.engine = stack, engine
        self.it = Owner.open(stack.settings, NAME, SystemClock(), engine=engine)

    def again(self, between: Callable[[], None] = lambda: None) -> None:
        self.it.close()
        between()
        self.it = Owner.open(self.stack.settings, NAME, SystemClock(), engine=self.engine)


@contextmanager
def owned(stack: Stack, engine: Engine) -> Iterator[Owned]:
    owner = Owned(stack, engine)
    yield owner
    owner.it.close()


def run(stack: Stack, *arguments: str) -> int:
    return entry.run(["--config", str(stack.config_path), *arguments])


def rewritten(stack: Stack) -> None:
    assert run(stack, "maintain", "run", NAME) in {ExitCode.DONE, ExitCode.NOTHING_TO_DO}


def table(stack: Stack) -> Any:
    return load_table(open_catalog(stack.settings.catalog), NAME, f"app.{NAME}")


def stored(stack: Stack) -> LiveTable:
    return definition_of(table(stack), NAME)


def is_followed(stack: Stack, owner: Owner) -> Any:
    wanted = str(owner.position.snapshot_id)
    return lambda: stack.get("/status")[1]["tables"][NAME].get("read_point", {}).get("snapshot_id") == wanted


def looked_up(stack: Stack, traffic: Traffic) -> Rows:
    """All rows; each answer under one definition."""
    answer = httpx.post(
        f"{stack.url}/v1/tables/{NAME}/rows:batch",
        json={"entities": [{"id": f"k{number}"} for number in range(KEYS)]},
        headers={"Thermocline-Read-After": f"{NAME}/0@{traffic.end - 1}"} if traffic.end else {},
        timeout=30,
    )
    assert answer.status_code == 200, answer.text
    rows = [row for result in answer.json()["results"] for row in result["rows"]]
    assert len({tuple(row) for row in rows}) <= 1, "one answer has the columns of one definition"
    return {row["id"]: row for row in rows}


def extracted(stack: Stack) -> Rows:
    sink = io.BytesIO()
    private.extract(stack.settings, NAME, None, "arrow", sink, None, lambda _: None)
    return {row["id"]: row for row in pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()}


@pytest.mark.jvm
def test_a_schema_stops_ingest_then_is_quarantined_then_replayed_once_the_table_has_its_column(
    tmp_path: Any, jvm: Any, brokers: Brokers, registry: RegistryServer, capsys: pytest.CaptureFixture[str]
) -> None:
    with started(tmp_path, brokers, registry, "avro", "stop") as stack:
        traffic = Traffic(stack, registry, "avro", 1, nests=False)
        traffic.register()
        traffic.values["k0"] = {"count": 1, "name": "a"}
        traffic.send("k0")
        traffic.writer.fields = traffic.writer.ever = {"count": "int", "name": "string", "plan": "string"}
        traffic.register()
        traffic.values["k1"] = {"count": 2, "name": "b", "plan": "gold"}
        traffic.send("k1")
        assert run(stack, "ingest", "run", NAME, "--once") == ExitCode.STOPPED
        said = capsys.readouterr().err
        assert (
            "schema 2 of the value of orders/0@1 stops the ingest of table orders: it has a problem" in said
        )
        assert 'field "plan" (string) has no column' in said
        assert extracted(stack) == {"k0": {"id": "k0", "count": 1, "name": "a"}}, "refused, as ingest has it"

        change(stack, 'contract = "stop"', 'contract = "quarantine"\nerrors_count_max = 9')
        assert run(stack, "table", "alter", NAME, "--yes") == 0
        assert run(stack, "ingest", "run", NAME, "--once") == 0
        assert run(stack, "verify", NAME) == 0
        assert extracted(stack) == {"k0": {"id": "k0", "count": 1, "name": "a"}}

        change(stack, 'name = "string"', 'name = "string"\nplan = "string"')
        assert run(stack, "table", "alter", NAME, "--yes") == 0
        assert run(stack, "quarantine", "replay", NAME, "--all") == 0
        assert extracted(stack) == {
            "k0": {"id": "k0", "count": 1, "name": "a", "plan": None},
            "k1": {"id": "k1", "count": 2, "name": "b", "plan": "gold"},
        }
        assert run(stack, "verify", NAME) == 0


def change(stack: Stack, before: str, after: str) -> None:
    text = stack.config_path.read_text()
    assert before in text
    stack.config_path.write_text(text.replace(before, after))
    stack.settings = load_settings(stack.config_path)

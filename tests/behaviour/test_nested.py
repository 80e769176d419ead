"""Nested columns and times without a zone on real parts: through commits, merges, an alteration, a rewrite.

Goal: lookups, extracts, verify, PyIceberg and DuckDB have exactly the values of the records, before and after
they are committed and merged. Method: real commands on a real broker; a dictionary of values is the oracle.
"""

from __future__ import annotations

import io
import json
import threading
import uuid
from collections.abc import Iterator
from datetime import UTC
from typing import Any

import duckdb
import httpx
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer
from pyiceberg.table import Table

from tests.brokers import Brokers
from thermocline.cli import entry
from thermocline.dev.stack import Stack, StackOptions
from thermocline.errors import AlterationRefused, ExitCode
from thermocline.iceberg.catalog import definition_of, load_table, open_catalog
from thermocline.iceberg.files import plan_files
from thermocline.ingest.owner.owner import Owner
from thermocline.process.clock import SystemClock
from thermocline.serving.read import private
from thermocline.settings import load_settings

NAME = "people"
SECTION = f"""
[tables.{NAME}]
identifier = "app.{NAME}"
topics = ["{NAME}"]
key = ["id"]
key_format = "string"
buckets = 1
suppress_unchanged = true

[tables.{NAME}.columns]
id = "string"
address = "struct<city: string, zip: string, since: timestamp>"
tags = "list<string>"
scores = "map<string, double>"
visits = "list<struct<at: timestamptz, from: map<string, list<uuid>>, paid: decimal(10,2)>>"
born = "timestamp"
size = "int"
city = {{ type = "string", path = "address.city" }}
"""
# Fields are added and widened in a struct, and in the elements of a list.
WIDER = SECTION.replace("struct<city", "struct<no: int, city").replace(
    "paid: decimal(10,2)", "note: struct<text: string>, paid: decimal(12,2)"
)
ADDED = 'notes = "list<struct<text: string, by: list<int>>>"'
FEWER = (
    WIDER.replace('size = "int"\n', "")
    .replace(" zip: string,", "")
    .replace('tags = "list<string>"', 'labels = { type = "list<string>", renamed_from = "tags" }')
    .replace('born = "timestamp"', 'birth = { type = "timestamp", renamed_from = "born" }')
    + ADDED
    + "\n"
)
AGAIN = (
    FEWER.replace("since: timestamp>", "since: timestamp, zip: string>")
    + 'size = "long"\nborn = "timestamp"\n'
)
FIELDS = ("address", "tags", "scores", "visits", "born", "size", "city")
UUID = "f79c3e09-677c-4bbd-a479-3f349cb785e7"
FULL: dict[str, Any] = {
    "address": {"city": "Oslo", "zip": "0150", "since": "2024-02-29T23:59:59.999999"},
    "tags": ["b", None, "a"],
    "scores": {"chess": 1.5, "go": None, "none": -0.0},
    "visits": [
        None,
        {"at": "1969-12-31T23:59:59.500000Z", "from": {"x": [UUID, None], "y": None}, "paid": "12.50"},
        {"at": None, "from": {}, "paid": None},
    ],
    "born": "0001-01-01T00:00:00",
}
PAID_MORE = {"at": None, "from": {}, "note": {"text": "more"}, "paid": "1234567890.25"}
KEYS = [*"abcefg", *(f"d{number}" for number in range(5))]
BAD = {"tags": "b"}
TOO_LARGE = {"size": 1 << 40, "tags": ["large", None], "scores": {"x": 1.0}}
Rows = dict[str, dict[str, Any]]


@pytest.fixture
def stack(tmp_path: Any, jvm: Any, brokers: Brokers) -> Iterator[Stack]:
    with (
        brokers.lent() as kafka,
        Stack(tmp_path, StackOptions(catalog="nested", engine="local", kafka=kafka)) as stack,
    ):
        configure(stack, SECTION)
        kafka.create_topic(NAME, 1)
        yield stack


@pytest.mark.full
def test_nested_values_are_those_of_the_records_wherever_they_are_read(stack: Stack) -> None:
    assert run(stack, "table", "create", NAME) == 0
    has_the_definitions_field_ids(stack)
    people = Told(stack)
    server = stack.serve()
    people.write("a", FULL)
    people.write("b", {"scores": {}, "tags": [], "address": {}, "visits": []})
    people.write("c", {})
    stack.wait_until_ready(server)
    assert people.looked_up() == people.extracted() == people.rows, "beyond the seam"
    people.ingest()
    assert people.in_pyiceberg() == people.in_duckdb() == people.rows
    for number in range(5):  # until files are merged
        people.write(f"d{number}", {"tags": [str(number)], "scores": {"n": number}})
        people.write("b", {"address": {"zip": str(number)}})
        people.ingest()
    assert people.files() < 5
    people.write("c", FULL | {"tags": ["hot"]})
    people.write("d0", None)
    assert people.looked_up() == people.extracted() == people.rows, "hot over cold"
    assert people.in_parquet() == people.rows
    assert run(stack, "verify", NAME) == 0

    people.write("a", FULL | {"scores": dict(reversed(FULL["scores"].items()))})
    people.ingest()
    assert people.offset_of("a") == 0, "entries of a map have no order, so that nothing changed"
    people.write("a", FULL | {"scores": FULL["scores"] | {"none": 0.0}})
    people.ingest()
    assert people.offset_of("a") == people.offset, "a zero of another sign is another value"

    people.write_bad("f", BAD)
    people.write_bad("g", TOO_LARGE)
    people.ingest()
    configure(stack, WIDER.replace('size = "int"', 'size = "long"') + ADDED)
    assert run(stack, "table", "alter", NAME, "--yes") == 0
    has_the_definitions_field_ids(stack)
    people.columns = (*FIELDS, "notes")
    people.gain_fields()
    assert people.extracted() == people.in_pyiceberg() == people.rows, "files of before"
    people.write("e", {"notes": [{"text": "new", "by": [1, None]}]})
    people.write("b", {"visits": [PAID_MORE, None], "address": {"no": 7}})
    people.ingest()
    assert people.extracted() == people.in_pyiceberg() == people.rows, "files of both kinds"
    assert run(stack, "quarantine", "replay", NAME, "--all") == ExitCode.PARTLY_DONE, "a text is no list"
    people.written["g"] = TOO_LARGE
    server.stop()
    server = stack.serve()
    stack.wait_until_ready(server)
    assert people.looked_up() == people.extracted() == people.in_pyiceberg() == people.rows
    assert run(stack, "maintain", "run", NAME) == 0
    assert people.extracted() == people.in_pyiceberg() == people.in_duckdb() == people.rows
    assert run(stack, "verify", NAME) == 0
    stale_values_stay_away(stack, people)
    server.check()


def stale_values_stay_away(stack: Stack, people: Told) -> None:
    """Columns are renamed and dropped, and come back under the old names, while a server answers."""
    people.write("d1", FULL | {"size": 11, "tags": ["before"]})
    people.ingest()
    people.write("d2", FULL | {"size": 12, "tags": ["hot"]})
    configure(stack, FEWER)
    assert run(stack, "table", "alter", NAME) == AlterationRefused.exit_code
    drops = ("--drop", "size", "--drop", "address.zip")
    assert run(stack, "table", "alter", NAME, *drops) == ExitCode.USAGE, "nobody said yes"
    assert run(stack, "table", "alter", NAME, *drops, "--yes") == 0
    has_the_definitions_field_ids(stack)
    people.lose("size", "zip")
    people.columns = ("address", "labels", "scores", "visits", "birth", "city", "notes")
    people.agree("files of before, and a hot record of before")
    people.write("b", FULL | {"size": 13, "tags": ["after"]})
    people.ingest()
    people.agree("files of both kinds")

    configure(stack, AGAIN)
    assert run(stack, "table", "alter", NAME, "--yes") == 0
    has_the_definitions_field_ids(stack)
    people.columns = (*people.columns, "size", "born")
    people.gain("size", "zip")
    people.agree("columns of the old names, null in all rows of before")
    people.write("e", FULL | {"size": 1 << 41, "born": "2026-01-01T00:00:00", "notes": []})
    people.agree("a hot record that has them")
    people.ingest()
    people.agree("and one that was committed")
    for number in range(5):  # until files are merged
        people.write(f"d{number}", FULL | {"size": number, "tags": [str(number)]})
        people.ingest()
    assert people.files() < 5
    people.agree("after merges")
    assert people.in_duckdb() == people.rows
    assert run(stack, "verify", NAME) == 0


class Told:
    """What was written, and how it is read."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.columns: tuple[str, ...] = FIELDS
        self.written: dict[str, dict[str, Any]] = {}
        self.offset = -1
        self.is_wider = False
        self.address: tuple[str, ...] | None = None
        self.renamed: dict[str, str] = {}
        self.lost = ""
        self.keeps: tuple[str, ...] = ()
        client = {**stack.settings.kafka.client_config(), "linger.ms": 0, "log_level": 0}
        self._producer = Producer(client)

    @property
    def rows(self) -> Rows:
        """The values as JSON has them, with nulls for all that is missing."""
        return {key: {name: value.get(name) for name in self.columns} for key, value in self.written.items()}

    def write(self, key: str, value: dict[str, Any] | None) -> None:
        self._produce(key, value)
        self.written.pop(key, None)
        if value is not None:
            self.written[key] = self._as_row(with_nulls(value, self.is_wider))

    def _as_row(self, value: dict[str, Any]) -> dict[str, Any]:
        """Under the names that columns have now, without those that were dropped."""
        row = {self.renamed.get(name, name): one for name, one in value.items() if name != self.lost}
        row |= {name: value.get(name) for name in self.keeps}
        if row.get("address") and self.address is not None:
            row["address"] = {name: row["address"].get(name) for name in self.address}
        return row

    def gain_fields(self) -> None:
        """What is there has null in the fields that were added."""
        self.is_wider = True
        self.written = {key: with_nulls(value, self.is_wider) for key, value in self.written.items()}

    def lose(self, column: str, of_address: str) -> None:
        """A column and a field of the address are dropped, and others renamed."""
        self.address = tuple(name for name in ("no", "city", "zip", "since") if name != of_address)
        self.renamed = {"tags": "labels", "born": "birth"}
        self.lost = column
        self.written = {key: self._as_row(value) for key, value in self.written.items()}

    def gain(self, column: str, of_address: str) -> None:
        """They come back under the same names; what was renamed is from now on in both columns."""
        assert column == self.lost
        self.lost = ""
        self.address = (*(self.address or ()), of_address)
        self.keeps = ("born",)
        for value in self.written.values():
            if value.get("address"):
                value["address"] = value["address"] | {of_address: None}

    def agree(self, when: str) -> None:
        """Lookups of the running server, extracts and PyIceberg have the rows of the oracle."""
        names = ["id", *self.columns]
        path = f"/v1/tables/{NAME}"

        def follows() -> bool:
            columns = self.stack.get(path)[1].get("definition", {}).get("columns", [])
            return sorted(one["name"] for one in columns) == sorted(names)

        self.stack.wait_for(follows, "the server follows the definition")
        self.stack.wait_for(lambda: self.stack.get("/readyz")[0] == 200, "the server is ready")
        assert self.looked_up() == self.extracted() == self.rows, when

    def write_bad(self, key: str, value: dict[str, Any]) -> None:
        self._produce(key, value)

    def ingest(self) -> None:
        owner = Owner.open(self.stack.settings, NAME, SystemClock())
        try:
            owner.catch_up(threading.Event())
        finally:
            owner.close()

    def looked_up(self) -> Rows:
        answer = httpx.post(
            f"{self.stack.url}/v1/tables/{NAME}/rows:batch",
            json={"entities": [{"id": key} for key in KEYS]},
            headers={"Thermocline-Read-After": f"{NAME}/0@{self.offset}"},
            timeout=30,
        )
        assert answer.status_code == 200, answer.text
        return by_id([row for result in answer.json()["results"] for row in result["rows"]])

    def extracted(self) -> Rows:
        return by_id(plain(pa.ipc.open_stream(self._extract("arrow")).read_all()))

    def in_parquet(self) -> Rows:
        return by_id(plain(pq.read_table(pa.BufferReader(self._extract("parquet")))))

    def in_duckdb(self) -> Rows:
        path = self.stack.folder / "extract.parquet"
        path.write_bytes(self._extract("parquet"))
        read = duckdb.connect().read_parquet(str(path)).to_arrow_table()
        return by_id(plain(read))

    def in_pyiceberg(self) -> Rows:
        """As PyIceberg reads them: it takes a null list of structs for an empty one, at least up to 0.12."""
        found = by_id(plain(table(self.stack).scan(selected_fields=("id", *self.columns)).to_arrow()))
        lists = [name for name in ("visits", "notes") if name in self.columns]
        for key, row in found.items():
            row.update({name: self.rows[key][name] for name in lists if row[name] == []})
        return found

    def files(self) -> int:
        now = table(self.stack)
        snapshot = now.current_snapshot()
        assert snapshot is not None
        return len(plan_files(now, snapshot.snapshot_id, NAME))

    def offset_of(self, key: str) -> int:
        """Of the record that the table has the row from."""
        (row,) = table(self.stack).scan(f"id = '{key}'").to_arrow().to_pylist()
        return int(row["_kafka_offset"])

    def _produce(self, key: str, value: dict[str, Any] | None) -> None:
        content = None if value is None else json.dumps(value).encode()
        self._producer.produce(NAME, content, key.encode())
        assert self._producer.flush(30) == 0
        self.offset += 1

    def _extract(self, format_name: str) -> bytes:
        sink = io.BytesIO()
        private.extract(self.stack.settings, NAME, None, format_name, sink, None, lambda _: None)
        return sink.getvalue()


def with_nulls(value: dict[str, Any], is_wider: bool) -> dict[str, Any]:
    """A record's value with what it lacks, as rows have it."""
    if is_wider and value.get("visits"):
        value = value | {"visits": [one and {"note": None, **one} for one in value["visits"]]}
    address = value.get("address")
    if address is None:
        return value
    names = ("no", "city", "zip", "since") if is_wider else ("city", "zip", "since")
    whole = {name: address.get(name) for name in names}
    return value | {"address": whole, "city": whole["city"]}


def plain(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows as JSON has them. A UUID is its bytes but for PyIceberg."""
    found = rows.to_pylist(maps_as_pydicts="strict")
    for row in found:
        for visit in filter(None, row.get("visits") or ()):
            visit["at"] = visit["at"] and visit["at"].astimezone(UTC)
            for name, ids in (visit["from"] or {}).items():
                visit["from"][name] = ids and [
                    uuid.UUID(bytes=one) if isinstance(one, bytes) else one for one in ids
                ]
    spelled: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(found))
    return spelled


def by_id(rows: list[dict[str, Any]]) -> Rows:
    keys = [row.pop("id") for row in rows]
    assert len(set(keys)) == len(keys)
    return dict(zip(keys, rows, strict=True))


def has_the_definitions_field_ids(stack: Stack) -> None:
    """Of the fields within columns, too: Iceberg gave them, in the order that the definition expects."""
    found = table(stack)
    assert repr(found.schema().fields) == repr(definition_of(found, NAME).iceberg_schema().fields)


def configure(stack: Stack, section: str) -> None:
    base = stack.config_path.read_text().partition("[tables.")[0]
    stack.config_path.write_text(base + section)
    stack.settings = load_settings(stack.config_path)


def table(stack: Stack) -> Table:
    return load_table(open_catalog(stack.settings.catalog), NAME, f"app.{NAME}")


def run(stack: Stack, *arguments: str) -> int:
    return entry.run(["--config", str(stack.config_path), *arguments])

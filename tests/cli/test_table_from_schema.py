"""`table create --from-schema` without a broker: what is proposed, what is written, and what stays."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from thermocline import cli
from thermocline.cli.init_file import table_text
from thermocline.errors import ExitCode
from thermocline.rules.decode.schema_documents import WriterSchema
from thermocline.rules.recognise import Topic
from thermocline.schemas.sources import NamedSchema
from thermocline.settings import load_settings

MINE = """\
# mine
[kafka]
bootstrap_servers = "127.0.0.1:1" # nothing here asks it
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
"""
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order_id", "type": "long", "doc": 'its number\n[tables.evil]\nkey = ["x"]'},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    ],
}
SAID = 'its number [tables.evil] key = ["x"]'
"""What the schema says of the first field, on one line."""
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A configuration without a table, in this folder; Kafka and the catalog are not asked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("thermocline.kafka.sampling.topic_facts", lambda _, topic: Topic(topic, 2))
    monkeypatch.setattr("thermocline.ingest.table.create.check_creation", lambda *_: None)
    path = tmp_path / "thermocline.toml"
    path.write_text(MINE)
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    return path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tables that would be created, by the definitions that the file has for them."""
    names: list[str] = []

    def created(settings: Any, name: str) -> tuple[dict[str, Any], str]:
        names.append(settings.table(name).definition(name).to_json())
        return {"table": name}, f"created {name}"

    monkeypatch.setattr("thermocline.cli.table.created_table", created)
    return names


@pytest.fixture
def create(capfd: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(["table", "create", *arguments])
        out, err = capfd.readouterr()
        return int(code), out, err

    return run


FROM_FILE = ("orders", "--from-schema", "order.avsc", "--topic", "orders")


def test_the_section_is_written_behind_what_is_there_and_its_table_is_created(
    file: Path, create: Call, made: list[str]
) -> None:
    code, out, _ = create(*FROM_FILE, "--key", "order_id", "--buckets", "4", "--yes")
    assert code == ExitCode.DONE
    assert "partitions 4 buckets by order_id" in out
    text = file.read_text()
    assert text.startswith(MINE)
    assert tomllib.loads(text)["tables"] == {
        "orders": {
            "identifier": "app.orders",
            "topics": ["orders"],
            "key": ["order_id"],
            "format": "avro",
            "key_from": "value",
            "buckets": 4,
            "value_schema_file": "order.avsc",
            "columns": {"order_id": {"type": "long", "comment": SAID}, "price": "decimal(9,2)"},
        }
    }
    assert made == [load_settings(file).table("orders").definition("orders").to_json()]


def test_an_entity_that_was_given_is_not_said_to_be_unknown(
    file: Path, create: Call, made: list[str]
) -> None:
    schema = {**ORDER, "fields": [{"name": "shop", "type": "string"}, *ORDER["fields"]]}
    (file.parent / "order.avsc").write_text(json.dumps(schema))
    words = (*FROM_FILE, "--key", "shop,order_id", "--dry-run", "--json")
    told = [json.loads(create(*words, *more)[1]) for more in ((), ("--entity", "shop"))]
    for found, is_unknown in zip(told, (True, False), strict=True):
        assert any(one.startswith("entity: ") for one in found["unknown"]) is is_unknown
        assert ("- entity: " in found["text"]) is is_unknown


def test_a_dry_run_and_a_missing_yes_write_nothing(file: Path, create: Call, made: list[str]) -> None:
    code, out, _ = create(*FROM_FILE, "--key", "order_id", "--dry-run")
    assert code == ExitCode.DONE
    assert "[tables.orders]" in out.splitlines()
    assert out.endswith("nothing was written\n")
    code, _, err = create(*FROM_FILE, "--key", "order_id")
    assert code == ExitCode.USAGE
    assert "Error [not-confirmed]" in err
    assert (file.read_text(), made) == (MINE, [])


def test_a_table_that_the_file_has_already_is_not_proposed_again(
    file: Path, create: Call, made: list[str]
) -> None:
    create(*FROM_FILE, "--key", "order_id", "--yes")
    before = file.read_text()
    code, _, err = create(*FROM_FILE, "--key-schema", "long", "--yes")
    assert code == ExitCode.USAGE
    assert "Error [config-exists]" in err
    assert "Next    thermocline table create orders" in err
    assert (file.read_text(), len(made)) == (before, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from-schema", "order.avsc", "--key", "order_id"), "--topic: it is needed"),
        (("--from-schema", "order.avsc", "--topic", "t"), "--key-schema: what identifies a row is not said"),
        (
            ("--from-schema", "order.avsc", "--topic", "t", "--key", "a", "--key-schema", "long"),
            "give one of both",
        ),
        (("--from-schema", "gone.avsc", "--topic", "t"), "--from-schema: gone.avsc can't be read"),
        (("--from-schema", "orders-value"), "no registry is configured"),
        (
            ("--from-schema", "order.avsc", "--topic", "t", "--key", "nothing"),
            "the value has no field nothing",
        ),
        (("--from-schema", "order.avsc", "--topic", "t", "--key", "price"), "but a key can only have"),
        (("--topic", "t"), "--from-schema: the other options say how to propose a table"),
        (("--yes",), "--from-schema: the other options say how to propose a table"),
    ],
)
def test_what_is_not_said_is_asked_for(
    file: Path, create: Call, made: list[str], words: tuple[str, ...], said: str
) -> None:
    code, _, err = create("orders", *words)
    assert code == ExitCode.USAGE
    assert said in err
    assert (file.read_text(), made) == (MINE, [])


def test_a_section_that_would_be_read_otherwise_is_not_written(
    file: Path, create: Call, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(*given: Any) -> str:
        return table_text(*given).replace('key = ["order_id"]', 'key = ["order_id"]\nbuckets = 8')

    monkeypatch.setattr("thermocline.cli.table_from_schema.table_text", other)
    code, _, err = create(*FROM_FILE, "--key", "order_id", "--yes")
    assert (code, file.read_text(), made) == (ExitCode.USAGE, MINE, [])
    assert "would not be read as it was proposed" in err


def test_a_schema_of_the_registry_is_not_said_to_be_that_of_all_records(
    file: Path, create: Call, made: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They would be read as if none named its schema, which records with a registry do."""
    found = NamedSchema("schema 4", WriterSchema((json.dumps(ORDER),)))
    monkeypatch.setattr("thermocline.schemas.sources.schema_named", lambda *_: found)
    words = ("orders", "--from-schema", "orders-value", "--key", "order_id", "--one-schema", "--yes")
    code, _, err = create(*words)
    assert (code, "Error [bad-parameter]: --one-schema: " in err) == (ExitCode.USAGE, True)
    assert (file.read_text(), made) == (MINE, [])


def test_a_file_beside_a_registry_is_only_read_for_the_proposal(
    file: Path, create: Call, made: list[str]
) -> None:
    file.write_text(f'{MINE}[registry]\nurl = "http://127.0.0.1:1"\n')
    code, out, _ = create(*FROM_FILE, "--key", "", "--yes", "--json")
    assert code == ExitCode.DONE
    section = tomllib.loads(file.read_text())["tables"]["orders"]
    assert (section["key"], section["format"], section.get("value_schema_file")) == ([], "avro", None)
    assert json.loads(out)["findings"]["values"] == "Avro with a schema's id, of order.avsc"
    create("others", *FROM_FILE[1:], "--key", "", "--one-schema", "--yes")
    assert tomllib.loads(file.read_text())["tables"]["others"]["value_schema_file"] == "order.avsc"

"""`thermocline init` without a broker: what is needed of whom, and how a file comes about, or stays."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path

import pytest

from thermocline import cli
from thermocline.cli import init_file
from thermocline.cli.init_file import (
    Connections,
    add_to_file,
    comment,
    connections_text,
    create_file,
    table_text,
)
from thermocline.errors import BadParameter, ConfigExists, ExitCode
from thermocline.kafka.sampling import Sample
from thermocline.rules.recognise import SampledRecord, Topic, proposed
from thermocline.settings import load_settings, settings_in

LOCAL = Connections("127.0.0.1:1", {}, "", "", "sqlite:///data/catalog.db", "sql", "data/warehouse")


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in list(os.environ):
        if name.startswith("THERMOCLINE_"):
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def run(*arguments: str) -> int:
    return int(cli.run(["init", *arguments]))


def section(name: str = "users") -> str:
    record = SampledRecord(b"u1", b'{"name":"Ann","odd name":1,"seen":null,"at":{"x":1}}')
    found = proposed(Topic(name), [record], {})
    return table_text(found.definition(name, f"app.{name}"), found, "1 of 1 record")


def test_without_a_terminal_what_is_needed_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == ExitCode.USAGE
    err = capsys.readouterr().err
    assert "--brokers: it is needed where nobody is asked, with --yes or without a terminal" in err
    assert "Next    thermocline init --brokers BROKERS" in err


def test_a_configuration_that_exists_is_not_written_over(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = elsewhere / "thermocline.toml"
    file.write_text("# mine\n")
    assert run() == ExitCode.USAGE
    err = capsys.readouterr().err
    assert "Error [config-exists]" in err
    assert "Next    thermocline init --topic TOPIC" in err
    assert run("--brokers", "b:1", "--topic", "t", "--yes") == ExitCode.USAGE
    assert "so --brokers can't be given" in capsys.readouterr().err
    assert run("--catalog-type", "rest", "--topic", "t", "--yes") == ExitCode.USAGE
    assert "so --catalog-type can't be given" in capsys.readouterr().err
    assert file.read_text() == "# mine\n"
    assert names_in(elsewhere) == ["thermocline.toml"]


def test_a_secret_is_taken_as_a_variable_alone(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run("--brokers", "b:1", "--topic", "t", "--client", "sasl.password=hunter22", "--yes")
    err = capsys.readouterr().err
    assert (code, names_in(elsewhere)) == (ExitCode.USAGE, [])
    assert "sasl.password would be in the file as it is" in err
    assert "hunter22" not in err


def test_what_is_written_is_read_as_it_was_proposed(elsewhere: Path) -> None:
    text = f"{connections_text(LOCAL)}\n{section()}"
    settings = settings_in(text, elsewhere / "thermocline.toml")
    assert tomllib.loads(text)["tables"]["users"] == {
        "identifier": "app.users",
        "topics": ["users"],
        "key": ["id"],
        "key_format": "string",
        "columns": {"id": "string", "name": "string", "odd name": "long", "at": "json"},
    }
    assert settings.ingest.engine == "local"
    assert settings.catalog.warehouse == str(elsewhere / "data/warehouse")
    assert "# seen: left out; null in 1 of 1 records, so its type is not known" in text.splitlines()


def test_connections_are_written_with_variables_and_without_what_is_usual() -> None:
    given = Connections(
        "a:1,b:2",
        {"security.protocol": "SASL_SSL", "sasl.password": "${PASSWORD}"},
        "https://registry",
        "reader",
        "http://catalog",
        "rest",
        "",
    )
    assert tomllib.loads(connections_text(given)) == {
        "kafka": {
            "bootstrap_servers": "a:1,b:2",
            "client": {"security.protocol": "SASL_SSL", "sasl.password": "${PASSWORD}"},
        },
        "registry": {"url": "https://registry", "user": "reader"},
        "catalog": {"type": "rest", "uri": "http://catalog"},
        "ingest": {"engine": "local"},
    }


@pytest.mark.parametrize("said", ["a\nb = 1", "a\r[tables.x]", "a\u2028b\x85c", "\x00\x7f", "x" * 10_000])
def test_no_word_of_a_schema_becomes_a_setting(said: str) -> None:
    lines = comment(said)
    assert all(line.startswith("# ") for line in lines)
    assert tomllib.loads("\n".join(lines)) == {}
    assert sum(map(len, lines)) < 600


def test_a_file_that_appeared_meanwhile_is_kept(elsewhere: Path) -> None:
    file = elsewhere / "thermocline.toml"
    file.write_text("# another's\n")
    with pytest.raises(ConfigExists):
        create_file(file, "# ours\n")
    assert (file.read_text(), names_in(elsewhere)) == ("# another's\n", ["thermocline.toml"])


def test_a_table_is_added_and_every_byte_before_it_stays(elsewhere: Path) -> None:
    file = elsewhere / "thermocline.toml"
    create_file(file, connections_text(LOCAL) + "\n" + section() + "# the end, without a line break")
    file.chmod(0o640)
    before = file.read_bytes()
    add_to_file(file, before, section("orders"))
    after = file.read_bytes()
    assert after.startswith(before)
    assert sorted(load_settings(file).tables) == ["orders", "users"]
    assert (file.stat().st_mode & 0o777, names_in(elsewhere)) == (0o640, ["thermocline.toml"])


def test_a_file_that_was_changed_meanwhile_is_kept(elsewhere: Path) -> None:
    file = elsewhere / "thermocline.toml"
    file.write_text("# changed\n")
    with pytest.raises(ConfigExists):
        add_to_file(file, b"# as it was\n", section())
    assert (file.read_text(), names_in(elsewhere)) == ("# changed\n", ["thermocline.toml"])


def test_a_link_to_a_file_stays_a_link(elsewhere: Path) -> None:
    file, link = elsewhere / "real.toml", elsewhere / "thermocline.toml"
    file.write_text("")
    link.symlink_to(file)
    add_to_file(link, b"", section())
    assert (link.is_symlink(), tomllib.loads(file.read_text())["tables"].keys()) == (True, {"users"})


def test_a_folder_that_is_not_there_is_named(elsewhere: Path) -> None:
    with pytest.raises(BadParameter, match="can't be written: No such file"):
        create_file(elsewhere / "none" / "thermocline.toml", "")


def test_an_option_that_is_not_usual_is_written(elsewhere: Path) -> None:
    record = SampledRecord(b'{"a":1,"b":2}', b'{"n":"x","__deleted":"false"}')
    found = proposed(Topic("t"), [record], {})
    text = table_text(found.definition("t", "app.t", ["a"]), found, "1 of 1 record")
    table = tomllib.loads(text)["tables"]["t"]
    assert table["entity"] == ["a"]
    assert table["delete_when"] == {"path": ["__deleted"], "values": ["true"]}
    assert init_file.with_section(b"", text) == text.encode()


@pytest.mark.parametrize(("more", "is_unknown"), [((), True), (("--entity", "shop"), False)])
def test_an_entity_that_was_given_is_not_said_to_be_unknown(
    elsewhere: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: tuple[str, ...],
    is_unknown: bool,
) -> None:
    record = SampledRecord(b'{"shop":"a","id":1}', b'{"name":"Ann"}')
    monkeypatch.setattr(
        "thermocline.kafka.sampling.sampled", lambda _, topic, __: Sample(Topic(topic), (record,), 1)
    )
    monkeypatch.setattr("thermocline.kafka.topics.TopicAdmin.partitions", lambda _: {"users": 1})
    assert run("--brokers", "127.0.0.1:1", "--topic", "users", *more, "--yes") == ExitCode.DONE
    assert ("- entity: " in (elsewhere / "thermocline.toml").read_text()) is is_unknown
    assert ("- entity: " in capsys.readouterr().out) is is_unknown


def test_a_catalog_without_an_address_is_asked_for_by_its_option(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run("--brokers", "b:1", "--topic", "t", "--catalog-type", "rest", "--yes")
    assert (code, names_in(elsewhere)) == (ExitCode.USAGE, [])
    assert "--catalog: it is needed" in capsys.readouterr().err
    assert run("--brokers", "b:1", "--topic", "t", "--catalog-type", "nessie", "--yes") == ExitCode.USAGE
    assert '"nessie" is not sql, rest, hive or glue' in capsys.readouterr().err

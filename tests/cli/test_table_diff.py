"""`table diff` and the plan of `apply`, on a catalog in this process, without Kafka and JVM."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField

from thermocline import cli
from thermocline.errors import ExitCode
from thermocline.iceberg.catalog import defined_by, find_table, open_catalog
from thermocline.settings import load_settings

CONNECTIONS = """\
[kafka]
bootstrap_servers = "127.0.0.1:{port}"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
"""
PROFILES = """\
[tables.profiles]
identifier = "app.profiles"
topics = ["profiles"]
key = ["id"]
{options}
[tables.profiles.columns]
{columns}
"""
COLUMNS = 'id = "int"\nname = "string"\nvisits = "int"'
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> int:
    """A port that nobody listens at; Kafka's client, which tries again and again, gives up soon."""
    monkeypatch.setattr("thermocline.kafka.log.REQUEST_TIMEOUT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


@pytest.fixture
def file(tmp_path: Path, port: int, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration in this folder, with one table."""
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "thermocline.toml"
    path.write_text(CONNECTIONS.format(port=port) + PROFILES.format(options="", columns=COLUMNS))
    return path


@pytest.fixture
def catalog(file: Path) -> Iterator[Catalog]:
    """A catalog that has the table as the file says it."""
    settings = load_settings(file)
    definition = settings.table("profiles").definition("profiles")
    catalog = open_catalog(settings.catalog, may_create=True)
    catalog.create_namespace("app")
    catalog.create_table(
        definition.identifier, definition.iceberg_schema(), properties=defined_by(definition)
    )
    yield catalog
    catalog.close()


@pytest.fixture
def call(file: Path, capfd: pytest.CaptureFixture[str]) -> Call:
    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.run(list(arguments))
        out, err = capfd.readouterr()
        return int(code), out, err

    return run


def rewrite(file: Path, port: int, options: str = "", columns: str = COLUMNS, more: str = "") -> None:
    file.write_text(CONNECTIONS.format(port=port) + PROFILES.format(options=options, columns=columns) + more)


def metadata_of(catalog: Catalog) -> str:
    table = find_table(catalog, "app.profiles")
    assert table is not None
    return table.metadata_location


# table diff


def test_a_table_as_the_file_says_differs_in_nothing(call: Call, catalog: Catalog) -> None:
    code, out, _ = call("table", "diff", "profiles")
    assert (code, out) == (ExitCode.DONE, "profiles: as the file says (version 1 of its definition)\n")
    assert call("table", "diff")[0] == ExitCode.DONE


def test_each_difference_has_what_brings_either_to_the_other(
    call: Call, catalog: Catalog, file: Path, port: int
) -> None:
    rewrite(file, port, 'on_error = "skip"\n', 'id = "int"\nvisits = "long"\ncountry = "string"')
    before = metadata_of(catalog)
    code, out, _ = call("table", "diff", "profiles")
    assert code == ExitCode.BAD_ANSWER
    assert out.splitlines() == [
        "profiles: 4 differences (the table has version 1 of its definition)",
        '  on_error: "skip" in the file, "quarantine" in the table',
        (
            "    table like the file: thermocline table alter profiles      "
            "(on_error becomes skip, from quarantine)"
        ),
        "    file like the table: in [tables.profiles]",
        '      on_error = "quarantine"',
        "  column name: absent in the file, string in the table",
        (
            "    table like the file: can't be altered: the column name can't be left out: the table holds "
            "its values; drop it with `table alter --drop`, or say what it is called now with "
            'renamed_from = "name"'
        ),
        "    file like the table: in [tables.profiles.columns]",
        '      name = "string"',
        "  column visits: long in the file, int in the table",
        (
            "    table like the file: thermocline table alter profiles      "
            "(column visits is widened from int to long)"
        ),
        "    file like the table: in [tables.profiles.columns]",
        '      visits = "int"',
        "  column country: string in the file, absent in the table",
        (
            "    table like the file: thermocline table alter profiles      "
            "(column country is added as string; rows that are there have null)"
        ),
        "    file like the table: in [tables.profiles.columns]",
        "      # delete country",
        "  `table alter` changes all or nothing: first make the file like the table in what it refuses",
    ]
    assert metadata_of(catalog) == before


def test_the_differences_for_programs(call: Call, catalog: Catalog, file: Path, port: int) -> None:
    rewrite(file, port, "buckets = 10\n", f'{COLUMNS}\nat = {{ type = "timestamptz", epoch = "ms" }}')
    code, out, _ = call("table", "diff", "--json")
    assert code == ExitCode.BAD_ANSWER
    (table,) = json.loads(out)
    buckets, at = table.pop("differences")
    assert table == {
        "table": "profiles",
        "identifier": "app.profiles",
        "exists": True,
        "differs": True,
        "definition_version": 1,
        "changed_by_others": [],
        "added_by_others": [],
        "can_be_altered": False,
    }
    assert (buckets["in_file"], buckets["in_table"], buckets["to_table"]) == ("10", "16", None)
    assert buckets["to_file"] == {"section": "tables.profiles", "lines": ["buckets = 16"]}
    assert "buckets can't become 10 from 16" in buckets["refusals"][0]
    assert (at["of"], at["to_table"]) == ("column at", "thermocline table alter profiles")
    assert at["to_file"] == {"section": "tables.profiles.columns", "lines": ["# delete at"]}


def test_a_table_that_is_not_there_and_one_that_is_not_ours_are_told(
    call: Call, catalog: Catalog, file: Path, port: int
) -> None:
    more = PROFILES.format(options="", columns=COLUMNS).replace("profiles", "others")
    more += PROFILES.format(options="", columns=COLUMNS).replace("profiles", "foreign")
    rewrite(file, port, more=more)
    code, out, _ = call("table", "diff", "others")
    assert code == ExitCode.BAD_ANSWER
    assert out.splitlines() == [
        "others: there is no table app.others yet",
        "  table like the file: thermocline table create others",
    ]
    catalog.create_table("app.foreign", Schema(NestedField(1, "id", IntegerType(), required=True)))
    code, out, _ = call("table", "diff", "--json")
    assert code == ExitCode.STOPPED
    assert [one["table"] for one in json.loads(out)] == ["profiles", "others", "foreign"]
    assert json.loads(out)[2]["error"]["code"] == "foreign-snapshot"


def test_without_a_catalog_no_table_is_there_and_none_is_made(call: Call, file: Path) -> None:
    assert call("table", "diff")[0] == ExitCode.BAD_ANSWER
    assert not (file.parent / "catalog.db").exists()


def test_what_another_program_changed_in_iceberg_differs_and_what_it_added_does_not(
    call: Call, catalog: Catalog
) -> None:
    table = find_table(catalog, "app.profiles")
    assert table is not None
    with table.update_schema() as update:
        update.add_column("theirs", LongType())
    code, out, _ = call("table", "diff")
    assert code == ExitCode.DONE
    assert "columns of another program, null in every row: theirs" in out
    with table.update_schema() as update:
        update.rename_column("name", "title")
    code, out, _ = call("table", "diff")
    assert code == ExitCode.BAD_ANSWER
    assert out.splitlines()[:3] == [
        "profiles: 1 difference (the table has version 1 of its definition)",
        "  by another program: name was renamed to title",
        "    give it back: thermocline table alter profiles",
    ]


def test_the_check_of_the_configuration_compares_the_tables(
    call: Call, catalog: Catalog, file: Path, port: int
) -> None:
    def compared() -> dict[str, Any]:
        tried = json.loads(call("config", "check", "--connect", "--json")[1])["connections"]
        (found,) = [one for one in tried if one["of"] == "table"]
        return dict(found)

    assert compared() == {"of": "table", "at": "profiles", "ok": True, "found": "as the file says"}
    rewrite(file, port, columns=f'{COLUMNS}\ncountry = "string"')
    assert compared()["found"] == "1 difference from the file: thermocline table diff profiles"
    rewrite(file, port, columns='id = "string"\nname = "string"\nvisits = "int"')
    assert compared()["error"]["code"] == "alteration-refused"


# apply, up to its plan


def test_what_no_alteration_does_is_left_to_a_person_and_nothing_of_that_table_is_done(
    call: Call, catalog: Catalog, file: Path, port: int
) -> None:
    rewrite(file, port, 'on_error = "skip"\n', 'id = "int"\nvisits = "int"')
    before = metadata_of(catalog)
    code, out, _ = call("apply", "--yes", "--json")
    assert code == ExitCode.PARTLY_DONE
    (step,) = json.loads(out)["tables"]
    assert (step["action"], step["done"]) == ("by hand", False)
    assert step["changes"] == [
        (
            "the column name can't be left out: the table holds its values; drop it with `table alter "
            '--drop`, or say what it is called now with renamed_from = "name"'
        )
    ]
    assert step["error"]["next"].startswith("thermocline table diff profiles ")
    assert metadata_of(catalog) == before
    assert call("apply", "--dry-run")[1].splitlines() == [
        "profiles: is left as it is; by hand",
        f"  {step['changes'][0]}",
        (
            "  next: thermocline table diff profiles      (has the lines for [tables.profiles]; or use a new "
            "table)"
        ),
        "nothing was done: 0 tables to make, 1 that can't be made",
    ]


def test_a_plan_is_shown_and_nothing_is_done_without_a_yes(
    call: Call, catalog: Catalog, file: Path, port: int
) -> None:
    rewrite(file, port, 'on_error = "skip"\n')
    before = metadata_of(catalog)
    code, out, _ = call("apply", "--dry-run")
    assert code == ExitCode.DONE
    plan = [
        "profiles: is altered",
        "  on_error becomes skip, from quarantine",
        "  cost: no data file is rewritten",
        (
            "  cost: each server reads the records beyond the table's seam again: "
            "their number is not known now (foreign-snapshot)"
        ),
    ]
    assert out.splitlines() == [*plan, "nothing was done: 1 table to make"]
    code, out, err = call("apply")
    assert code == ExitCode.USAGE
    assert out.splitlines() == plan
    assert "Error [not-confirmed]: 1 table would be made" in err
    assert "Next    thermocline apply --yes" in err
    assert metadata_of(catalog) == before


def test_nothing_to_do_is_a_success(call: Call, catalog: Catalog) -> None:
    code, out, _ = call("apply")
    assert code == ExitCode.DONE
    assert out.splitlines() == [
        "profiles: is as the file says",
        "nothing to do: everything is as the file says",
    ]


def test_a_table_that_the_file_no_longer_has_is_not_dropped(
    call: Call, catalog: Catalog, file: Path, port: int
) -> None:
    file.write_text(CONNECTIONS.format(port=port))
    before = metadata_of(catalog)
    assert call("apply", "--yes")[0] == ExitCode.DONE
    assert metadata_of(catalog) == before


def test_what_stops_one_table_is_told_beside_the_plan_of_the_others(
    call: Call, catalog: Catalog, file: Path, port: int
) -> None:
    more = PROFILES.format(options="", columns=COLUMNS).replace("profiles", "others")
    rewrite(file, port, 'on_error = "skip"\n', more=more)
    code, out, _ = call("apply", "--dry-run", "--json")
    assert code == ExitCode.UNAVAILABLE
    profiles, others = json.loads(out)["tables"]
    assert (profiles["action"], profiles["error"]) == ("alter", None)
    assert (others["action"], others["error"]["code"]) == ("stopped", "kafka-unreachable")


def test_a_table_that_the_file_does_not_have_is_refused_by_name(call: Call, catalog: Catalog) -> None:
    assert call("apply", "nothing")[0] == ExitCode.USAGE
    assert call("table", "diff", "nothing")[0] == ExitCode.USAGE

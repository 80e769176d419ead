"""Settings: precedence, unknown names, paths, sizes and secrets."""

from __future__ import annotations

import ctypes
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

from thermocline.errors import ConfigInvalid, UnknownTable
from thermocline.kafka.client_settings import known_properties
from thermocline.process.masking import mask_secrets
from thermocline.settings import (
    ServingSettings,
    Settings,
    TableSettings,
    check_settings,
    load_settings,
    problems_of_exposure,
)

BASE = """
[kafka]
bootstrap_servers = "file:9092"
{kafka}
[catalog]
uri = "sqlite:///data/catalog.db"
warehouse = "data/warehouse"
{catalog}
[tables.profiles]
identifier = "app.profiles"
topics = ["profiles"]
key = ["app_id", "user_id", "key"]
entity = ["app_id", "user_id"]
{table}
[tables.profiles.columns]
app_id = "int"
user_id = "string"
key = "string"
{columns}
"""
PARTS = {"kafka": "", "catalog": "", "table": "", "columns": ""}


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("THERMOCLINE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Settings]:
    def write_and_load(after: str = "", **parts: str) -> Settings:
        file = tmp_path / "thermocline.toml"
        file.write_text(BASE.format(**(PARTS | parts)) + after)
        return load_settings(file)

    return write_and_load


@pytest.fixture
def problems_of(load: Callable[..., Settings]) -> Callable[..., tuple[str, ...]]:
    def load_and_fail(after: str = "", **parts: str) -> tuple[str, ...]:
        with pytest.raises(ConfigInvalid) as caught:
            load(after, **parts)
        return caught.value.problems

    return load_and_fail


def another_table(name: str, identifier: str) -> str:
    return f"""
[tables.{name}]
identifier = "{identifier}"
topics = ["others"]
key = ["id"]
columns = {{ id = "int" }}
"""


# Precedence


def test_the_environment_wins_over_the_file_and_the_file_over_the_default(
    load: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERMOCLINE_KAFKA__BOOTSTRAP_SERVERS", "variable:9092")
    monkeypatch.setenv("THERMOCLINE_TABLES__PROFILES__BATCH_RECORDS_MAX", "5000")
    settings = load("[serving]\nport = 9000\n")
    assert settings.kafka.bootstrap_servers == "variable:9092"
    assert settings.table("profiles").batch_records_max == 5000
    assert (settings.serving.port, settings.serving.workers) == (9000, 2)


def test_variables_set_lists_and_whole_sections(
    load: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERMOCLINE_TABLES__PROFILES__TOPICS", "a, b")
    monkeypatch.setenv("THERMOCLINE_SPARK__MASTER", "local[1]")
    settings = load()
    assert settings.table("profiles").topics == ("a", "b")
    assert settings.spark.master == "local[1]"


def test_a_variable_finds_a_table_whose_name_has_capitals(
    load: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERMOCLINE_TABLES__ORDERS__BUCKETS", "4")
    settings = load(another_table("Orders", identifier="app.o"))
    assert settings.table("Orders").buckets == 4


def test_the_file_is_the_named_one_then_the_variable_then_the_folder(
    load: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load()
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    with pytest.raises(
        ConfigInvalid, match=r"elsewhere/thermocline\.toml .*; run this in the folder that has it"
    ) as missing:
        load_settings()
    assert missing.value.next == "thermocline init      (looks at a topic, and writes the file)"
    monkeypatch.setenv("THERMOCLINE_CONFIG", str(tmp_path / "thermocline.toml"))
    assert load_settings().kafka.bootstrap_servers == "file:9092"
    with pytest.raises(ConfigInvalid) as caught:
        load_settings(tmp_path / "nowhere.toml")
    assert caught.value.of == f"{tmp_path / 'nowhere.toml'} (--config)"
    assert caught.value.problems == ("no such file",)


# Problems


def test_an_unknown_name_in_the_file_is_a_problem_with_the_closest_one(
    problems_of: Callable[..., tuple[str, ...]],
) -> None:
    assert problems_of(kafka='bootstrap_server = "x"') == (
        'kafka.bootstrap_server: unknown name; did you mean "bootstrap_servers"?',
    )
    assert problems_of("[servng]\n") == ('servng: unknown name; did you mean "serving"?',)
    assert problems_of(table="bucket = 3") == (
        'tables.profiles.bucket: unknown name; did you mean "buckets"?',
    )
    # Not of Kafka's client, though that has topic.metadata.refresh.interval.ms.
    assert problems_of(table='topic = ["profiles"]') == (
        'tables.profiles.topic: unknown name; did you mean "topics"?',
    )


@pytest.mark.parametrize(
    ("lines", "place", "section"),
    [
        ({"kafka": "lease_seconds = 9"}, "kafka.lease_seconds", "[ingest]"),
        ({"kafka": 'sasl.username = "a"'}, "kafka.sasl", "[kafka.client]"),
        ({"kafka": '"acks" = "1"'}, "kafka.acks", "[kafka.client]"),
        ({"table": 'password = "a"'}, "tables.profiles.password", "[registry] or [views]"),
        ({"table": "state_dir = 1"}, "tables.profiles.state_dir", "[serving]"),
    ],
)
def test_a_name_of_another_section_is_said_to_belong_there(
    problems_of: Callable[..., tuple[str, ...]], lines: dict[str, str], place: str, section: str
) -> None:
    assert problems_of(**lines) == (f"{place}: unknown name; it belongs in {section}",)


@pytest.mark.parametrize(
    ("text", "place", "section"),
    [
        ("[ingest]\ncommit_interval_seconds = 5", "ingest.commit_interval_seconds", "[tables.NAME]"),
        ("[spark]\nspark.executor.memory = '4g'", "spark.spark", "[spark.conf]"),
        ("[s3]\nendpoint = 'http://a'", "s3", "[catalog.properties]"),
        ("[serving]\nengine = 'local'", "serving.engine", "[ingest]"),
    ],
)
def test_so_is_one_in_a_section_of_its_own(
    problems_of: Callable[..., tuple[str, ...]], text: str, place: str, section: str
) -> None:
    assert problems_of(f"{text}\n") == (f"{place}: unknown name; it belongs in {section}",)


def test_a_setting_of_the_table_below_its_columns_is_said_to_stand_above(
    problems_of: Callable[..., tuple[str, ...]],
) -> None:
    (problem,) = problems_of(columns="buckets = 8")
    assert problem.startswith("tables.profiles.columns.buckets: a column is a type such as")
    assert problem.endswith("; a setting stands in [tables.profiles], above [tables.profiles.columns]")


def test_a_variable_may_stand_in_every_section_but_those_of_tables(
    load: Callable[..., Settings],
    problems_of: Callable[..., tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(f"{__name__}.BASE", BASE.replace("file:9092", "${{BROKER}}:9092,kafka-2:9092"))
    monkeypatch.setenv("BROKER", "kafka-1")
    monkeypatch.setenv("SECRET", "hunter2")
    sections = "[registry]\nurl = 'https://r'\nuser = 'me'\npassword = '${SECRET}'\n"
    settings = load(sections, table="view_filter = \"value = '${BROKER}'\"")
    assert settings.table("profiles").view_filter == "value = '${BROKER}'"
    assert settings.kafka.bootstrap_servers == "kafka-1:9092,kafka-2:9092"
    assert settings.registry.password is not None
    assert settings.registry.password.get_secret_value() == "hunter2"
    monkeypatch.delenv("BROKER")
    assert "kafka.bootstrap_servers: the variable BROKER is not set" in problems_of()


def test_a_name_that_kafkas_client_lacks_is_a_problem_with_the_closest_one(
    load: Callable[..., Settings], tmp_path: Path
) -> None:
    client = '[kafka.client]\n"sasl.usrname" = "a"\n"security.protocol" = "hunter2"\nacks = "1"\n'
    load(client)  # whoever only reads the file needs no client
    with pytest.raises(ConfigInvalid) as caught:
        check_settings(tmp_path / "thermocline.toml")
    assert sorted(caught.value.problems) == [
        'kafka.client.sasl.usrname: librdkafka has no property "sasl.usrname"; did you mean "sasl.username"?',
        'kafka.client.security.protocol: invalid value for configuration property "security.protocol"',
    ]


def test_the_names_of_kafkas_client_are_those_of_the_library_that_is_installed(tmp_path: Path) -> None:
    """Method: the library itself writes its documentation into a file."""
    (path,) = Path(confluent_kafka.__file__).parents[1].glob("confluent_kafka.libs/librdkafka*")
    libc, library, page = ctypes.CDLL(None), ctypes.CDLL(str(path)), tmp_path / "page"
    libc.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fopen(str(page).encode(), b"w"))
    library.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    rows = [line.split("|") for line in page.read_text().splitlines() if line.count("|") > 4]
    named = {row[0].strip() for row in rows if "see dedicated API" not in row[-1]}
    assert set(known_properties()) == {name for name in named if name.islower()}


@pytest.mark.parametrize(
    "section", sorted({*Settings.model_fields, "serving.catalog", "routes.events"} - {"tables", "routes"})
)
def test_an_unknown_name_is_found_in_every_section(
    problems_of: Callable[..., tuple[str, ...]], section: str
) -> None:
    """Those of `PARTS` are in the file already."""
    line = "nowhere = 1"
    found = problems_of(**{section: line}) if section in PARTS else problems_of(f"[{section}]\n{line}\n")
    told = [problem for problem in found if not problem.endswith(": is missing")]
    assert told == [f"{section}.nowhere: unknown name"]


@pytest.mark.parametrize(
    ("variable", "closest"),
    [
        ("THERMOCLINE_SERVING__PORTS", "THERMOCLINE_SERVING__PORT"),
        ("THERMOCLINE_SPARKS", "THERMOCLINE_SPARK"),
        ("THERMOCLINE_SERVNG__PORT", "THERMOCLINE_SERVING"),
        ("THERMOCLINE_TABLES__PROFILES__BUCKET", "THERMOCLINE_TABLES__PROFILES__BUCKETS"),
    ],
)
def test_an_unknown_variable_is_a_problem_with_the_closest_one(
    problems_of: Callable[..., tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, variable: str, closest: str
) -> None:
    monkeypatch.setenv(variable, "1")
    problem = problems_of()[0]
    assert problem.startswith(f"{variable}: unknown variable")
    assert f'did you mean "{closest}"?' in problem


def test_all_problems_are_told_together(
    problems_of: Callable[..., tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERMOCLINE_SERVING__WORKERS", "0")
    problems = problems_of(
        '[serving]\nport = "http"\nhot_bytes_max = "8 parsecs"\n', table='start = "yesterday"'
    )
    assert len(problems) == 4
    assert any("THERMOCLINE_SERVING__WORKERS" in problem for problem in problems)


def test_problems_of_every_kind_are_told_together(
    problems_of: Callable[..., tuple[str, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: what is wrong in one place hides nothing that is wrong in another."""
    monkeypatch.setenv("THERMOCLINE_SERVNG__PORT", "1")
    monkeypatch.setenv("THERMOCLINE_KAFKA__BOOTSTRAP_SERVERS", "a:9092,b")
    monkeypatch.setenv("THERMOCLINE_CATALOG__URI", "postgress://lake:hunter2@db/lake")
    other = another_table("other", identifier="app.profiles") + "buckets = 0\n"
    problems = problems_of(
        f'[serving]\nport = "http"\n[views]\npassword = "hunter2"\n{other}',
        table='start = "yesterday"\nbucket = 1\ndead_letter_topic = "profiles"\n',
        columns='age = "integr"\nsize = 5\n',
    )
    found = {problem.partition(": ")[0] for problem in problems}
    assert found == {
        "THERMOCLINE_SERVNG__PORT",
        "kafka.bootstrap_servers",
        "catalog.uri",
        "serving.port",
        "views",
        "tables.profiles.start",
        "tables.profiles.bucket",
        "tables.profiles",
        "tables.profiles.columns.size",
        "tables.other",
    }
    of_profiles = [problem for problem in problems if problem.startswith("tables.profiles: ")]
    assert ["dead_letter" in problem or "column age" in problem for problem in of_profiles] == [True, True]
    of_other = [problem for problem in problems if problem.startswith("tables.other: ")]
    assert ["already" in problem or "buckets is 0" in problem for problem in of_other] == [True, True]
    assert len(problems) == len(set(problems)) == 12


@pytest.mark.parametrize(
    ("broken", "place"),
    [
        ("kafka = 5\n", "kafka"),
        ("catalog = 5\n", "catalog"),
        ('catalog = { type = "sqll", uri = "x", warehouse = "y" }\n', "catalog.type"),
        ("tables = 5\n", "tables"),
        ("serving = 5\n", "serving"),
    ],
)
def test_a_section_that_is_wrong_is_one_problem_beside_the_others(
    tmp_path: Path, broken: str, place: str
) -> None:
    file = tmp_path / "thermocline.toml"
    sound = {
        "kafka": 'kafka = { bootstrap_servers = "b:1" }\n',
        "catalog": 'catalog = { uri = "sqlite:///c.db", warehouse = "w" }\n',
        "spark": "spark = { mster = 1 }\n",
    }
    sound.pop(place.partition(".")[0], None)
    file.write_text("".join(sound.values()) + broken)
    with pytest.raises(ConfigInvalid) as caught:
        load_settings(file)
    found = sorted(problem.partition(": ")[0] for problem in caught.value.problems)
    assert found == sorted([place, "spark.mster"])


def test_a_key_that_is_wrong_is_one_problem_whatever_else_is_said_of_keys(tmp_path: Path) -> None:
    (tmp_path / "app.proto").write_text(
        'syntax = "proto3"; message Key { int32 id = 1; } message Bill { int64 total = 1; }'
    )
    (tmp_path / "thermocline.toml").write_text(
        BASE.partition("[tables.")[0].format(**PARTS)
        + """
[tables.t]
identifier = "a.t"
topics = ["t"]
key = 5
format = "protobuf"
key_schema_file = "app.proto"
key_message = "Key"
value_schema_file = "app.proto"
value_message = "Bill"
partial_updates = true
suppress_unchanged = true
columns = { id = "int", total = "long" }
"""
    )
    with pytest.raises(ConfigInvalid) as caught:
        load_settings(tmp_path / "thermocline.toml")
    (problem,) = caught.value.problems
    assert problem.startswith("tables.t.key: must be")


@pytest.mark.parametrize("field", ["identifier", "topics", "key", "columns"])
def test_what_a_table_lacks_is_one_problem_beside_its_others(tmp_path: Path, field: str) -> None:
    file = tmp_path / "thermocline.toml"
    fields = {
        "identifier": 'identifier = "a.t"\n',
        "topics": 'topics = ["t"]\n',
        "key": 'key = ["id"]\n',
        "columns": 'columns = { id = "int" }\n',
        "buckets": "buckets = 0\n",
    }
    del fields[field]
    head = BASE.partition("[tables.")[0].format(**PARTS)
    file.write_text(head + "[tables.t]\n" + "".join(fields.values()))
    with pytest.raises(ConfigInvalid) as caught:
        load_settings(file)
    assert caught.value.problems == (
        f"tables.t.{field}: is missing",
        "tables.t: buckets is 0, but must be from 1 to 4096",
    )


def test_variables_are_checked_though_the_file_is_not_toml(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "thermocline.toml"
    file.write_text("[kafka\n")
    monkeypatch.setenv("THERMOCLINE_SERVNG", "1")
    monkeypatch.setenv("THERMOCLINE_SERVING__WORKERS", "0")
    monkeypatch.setenv("THERMOCLINE_CATALOG__URI", "sqlite:///c.db")
    with pytest.raises(ConfigInvalid) as caught:
        load_settings(file)
    not_toml, *others = caught.value.problems
    assert "it is not TOML" in not_toml
    assert [problem.partition(" (from")[0].partition(":")[0] for problem in others] == [
        "serving.workers",
        "THERMOCLINE_SERVNG",
    ]


@pytest.mark.parametrize(
    "servers", ["a:9092", "a:1, b:65535", "PLAINTEXT://a:9092", "[::1]:9092", "10.0.0.1:9"]
)
def test_brokers_have_a_port(
    load: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch, servers: str
) -> None:
    monkeypatch.setenv("THERMOCLINE_KAFKA__BOOTSTRAP_SERVERS", servers)
    assert load().kafka.bootstrap_servers == servers


@pytest.mark.parametrize("broker", ["a", "a:", "a:b", "a:0", "a:65536", "::1", "", "a:9092/x"])
def test_a_broker_without_a_port_is_a_problem(
    problems_of: Callable[..., tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, broker: str
) -> None:
    monkeypatch.setenv("THERMOCLINE_KAFKA__BOOTSTRAP_SERVERS", f"b:9092,{broker}")
    assert problems_of() == (f'kafka.bootstrap_servers: "{broker}" is not HOST:PORT, such as broker:9092',)


@pytest.mark.parametrize(
    ("uri", "says"),
    [
        (
            "postgress://lake:hunter2@db/lake",
            '"postgress" is not a database that SQLAlchemy knows; did you mean ',
        ),
        ("postgresql+psycop://lake:hunter2@db/lake", '"postgresql+psycop" is not a database that SQLAlchemy'),
        ("redshift://lake:hunter2@db/lake", "knows; use sqlite:///"),
        ("data/catalog.db", "is not the address of a database"),
        ("postgresql://lake:hunter2@db:http/lake", "is not the address of a database"),
        ("postgresql://lake:hun/ter2@db/lake", "write / as %2F"),
    ],
)
def test_a_database_that_nothing_can_open_is_a_problem(
    problems_of: Callable[..., tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, uri: str, says: str
) -> None:
    monkeypatch.setenv("THERMOCLINE_CATALOG__URI", uri)
    (problem,) = problems_of()
    assert problem.startswith("catalog.uri: ")
    assert says in problem
    assert "hunter2" not in problem


def test_folders_that_cannot_be_written_are_problems_of_a_check_alone(
    load: Callable[..., Settings], tmp_path: Path
) -> None:
    """Goal: each by its setting, its path and the reason; a command that only reads does not mind."""
    (tmp_path / "file").write_text("")
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    places = {
        "THERMOCLINE_CATALOG__URI": f"sqlite:///{tmp_path}/file/catalog.db",
        "THERMOCLINE_CATALOG__WAREHOUSE": f"file://{tmp_path}/gone/warehouse",
        "THERMOCLINE_SERVING__STATE_DIR": "/proc/thermocline/state",
    }
    with pytest.MonkeyPatch.context() as patch:
        for variable, place in places.items():
            patch.setenv(variable, place)
        load()
        with pytest.raises(ConfigInvalid) as caught:
            check_settings(tmp_path / "thermocline.toml")
    gone = tmp_path / "gone"
    assert caught.value.problems == (
        "serving.state_dir: /proc/thermocline/state can't be written: /proc: No such file or directory",
        f"catalog.warehouse: {gone}/warehouse can't be written: {gone}: No such file or directory",
        f"catalog.uri: {tmp_path}/file can't be written: Not a directory",
    )


def test_tables_within_a_folder_of_the_server_are_a_problem(
    problems_of: Callable[..., tuple[str, ...]], load: Callable[..., Settings], tmp_path: Path
) -> None:
    """Goal: whoever reads the tables is not shut out when the server closes its own folder."""
    data = tmp_path / "data"
    within_state, within_jobs = (
        f"lies in serving.{name}, {data}, which others can't enter: put it elsewhere"
        for name in ("state_dir", "extract_jobs_dir")
    )
    assert problems_of("[serving]\nstate_dir = 'data/warehouse/..'\n") == (
        f"catalog.warehouse: {data}/warehouse {within_state}",
        f"catalog.uri: {data} {within_state}",
    )
    assert problems_of("[serving]\nextract_jobs_dir = 'data'\n") == (
        f"catalog.warehouse: {data}/warehouse {within_jobs}",
        f"catalog.uri: {data} {within_jobs}",
    )
    beside = "[serving]\nstate_dir = 'data/state'\nextract_jobs_dir = 'data/warehouse-jobs'\n"
    assert load(beside).serving.state_dir == data / "state"


def test_a_check_leaves_nothing_behind(load: Callable[..., Settings], tmp_path: Path) -> None:
    load()
    check_settings(tmp_path / "thermocline.toml")
    assert [path.name for path in tmp_path.iterdir()] == ["thermocline.toml"]


def test_places_that_are_not_this_machines_are_not_tried(
    load: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERMOCLINE_CATALOG__URI", "postgresql://lake@db/lake")
    monkeypatch.setenv("THERMOCLINE_CATALOG__WAREHOUSE", "s3://bucket/warehouse")
    load()
    check_settings(tmp_path / "thermocline.toml")


def test_a_missing_section_is_told_by_what_it_needs(tmp_path: Path) -> None:
    file = tmp_path / "empty.toml"
    file.write_text("")
    with pytest.raises(ConfigInvalid) as caught:
        load_settings(file)
    assert caught.value.problems == (
        "kafka.bootstrap_servers: is missing",
        'catalog: a catalog of type "sql" needs uri and warehouse',
    )


def test_a_table_definition_that_cannot_work_is_a_problem(
    problems_of: Callable[..., tuple[str, ...]],
) -> None:
    problems = problems_of(columns='age = "integr"')
    assert len(problems) == 1
    assert problems[0].startswith("tables.profiles: column age:")
    assert '"integr"' in problems[0]


@pytest.mark.parametrize(
    "column",
    [
        'tags = "array<string>"',
        'tags = ["string"]',
        'tags = { fields = { street = "string" } }',
        'tags = { street = "string" }',
    ],
)
def test_a_nested_type_spelled_otherwise_is_told_how_it_is_spelled(
    problems_of: Callable[..., tuple[str, ...]], column: str
) -> None:
    (problem,) = problems_of(columns=column)
    assert problem.startswith(("tables.profiles: column tags: ", "tables.profiles.columns.tags: "))
    assert "nested types are spelled" in problem


def test_a_column_named_as_trinos_hidden_ones_is_loaded_for_tables_that_have_it(
    load: Callable[..., Settings],
) -> None:
    settings = load(columns='"$path" = "string"')
    assert "$path" in settings.table("profiles").definition("profiles").row_schema.names


def test_two_names_for_one_table_are_a_problem(problems_of: Callable[..., tuple[str, ...]]) -> None:
    again = another_table("again", identifier="app.profiles")
    assert problems_of(again) == ("tables.again: app.profiles is the table of tables.profiles already",)


def test_a_name_that_cannot_stand_in_a_url_is_a_problem(problems_of: Callable[..., tuple[str, ...]]) -> None:
    assert "letters, digits" in problems_of(another_table('"a/b"', identifier="app.ab"))[0]


@pytest.mark.parametrize("content", [b"[kafka\n", b"\xff\xfe", b"a = 1\na = 2\n"])
def test_a_file_that_is_not_toml_is_one_problem(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "thermocline.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigInvalid, match="it is not"):
        load_settings(file)


def test_a_folder_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="can't be read"):
        load_settings(tmp_path)


def test_a_time_to_start_from_needs_its_zone(
    load: Callable[..., Settings], problems_of: Callable[..., tuple[str, ...]]
) -> None:
    assert load(table="start = 2026-01-01T00:00:00Z").table("profiles").start == "2026-01-01T00:00:00+00:00"
    assert "needs a zone" in problems_of(table='start = "2026-01-01"')[0]


def test_a_table_that_is_not_configured_is_named_with_the_known_ones(load: Callable[..., Settings]) -> None:
    with pytest.raises(UnknownTable, match='did you mean "profiles"'):
        load().table("profile")


# Values


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('"8GB"', 8_000_000_000),
        ('"1.5 GiB"', 1_610_612_736),
        ('"512mb"', 512_000_000),
        ("4096", 4096),
        ('"10"', 10),
    ],
)
def test_sizes_become_bytes(load: Callable[..., Settings], text: str, count: int) -> None:
    assert load(f"[serving]\nhot_bytes_max = {text}\n").serving.hot_bytes_max == count


def test_relative_paths_are_relative_to_the_file(
    load: Callable[..., Settings], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    settings = load('[serving]\nstate_dir = "state"\n')
    assert settings.catalog.uri == f"sqlite:///{tmp_path}/data/catalog.db"
    assert settings.catalog.warehouse == str(tmp_path / "data/warehouse")
    assert settings.serving.state_dir == tmp_path / "state"


def test_absolute_paths_and_places_elsewhere_stay_as_they_are(
    load: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERMOCLINE_CATALOG__URI", "sqlite:////srv/catalog.db")
    monkeypatch.setenv("THERMOCLINE_CATALOG__WAREHOUSE", "s3://bucket/warehouse")
    monkeypatch.setenv("THERMOCLINE_SERVING__STATE_DIR", "/srv/state")
    settings = load()
    assert settings.catalog.uri == "sqlite:////srv/catalog.db"
    assert settings.catalog.warehouse == "s3://bucket/warehouse"
    assert settings.serving.state_dir == Path("/srv/state")


def test_the_warehouse_of_a_rest_catalog_is_a_name(load: Callable[..., Settings]) -> None:
    settings = load(catalog='type = "rest"')
    assert settings.catalog.warehouse == "data/warehouse"


def test_pass_through_sections_take_dotted_names_and_any_scalar(load: Callable[..., Settings]) -> None:
    settings = load(
        kafka='[kafka.client]\nsasl.username = "u"\n"fetch.max.bytes" = 1000\n"api.version.request" = true\n'
    )
    assert settings.kafka.client_config() == {
        "sasl.username": "u",
        "fetch.max.bytes": "1000",
        "api.version.request": "true",
        "bootstrap.servers": "file:9092",
    }


def test_pass_through_values_come_from_the_environment(
    load: Callable[..., Settings],
    problems_of: Callable[..., tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = '[kafka.client]\n"sasl.password" = "${KAFKA_PASSWORD}"\n'
    assert problems_of(kafka=client) == (
        "kafka.client.sasl.password: the variable KAFKA_PASSWORD is not set",
    )
    monkeypatch.setenv("KAFKA_PASSWORD", "hunter2")
    assert load(kafka=client).kafka.client["sasl.password"] == "hunter2"


def test_brokers_are_said_in_one_place_only(problems_of: Callable[..., tuple[str, ...]]) -> None:
    problems = problems_of(kafka='[kafka.client]\n"bootstrap.servers" = "x"\n')
    assert problems == ("kafka.client.bootstrap.servers: say it as kafka.bootstrap_servers",)


def test_settings_are_frozen_and_travel_to_other_processes(load: Callable[..., Settings]) -> None:
    settings = load(kafka='[kafka.client]\n"sasl.password" = "hunter2"\n')
    with pytest.raises(ValueError, match="frozen"):
        settings.kafka.bootstrap_servers = "other:9092"
    assert pickle.loads(pickle.dumps(settings)) == settings


# Secrets

SECRETS = """
[kafka.client]
"sasl.password" = "hunter2"
"""


def test_no_secret_is_shown(load: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THERMOCLINE_CATALOG__URI", "postgresql://lake:hunter2@db/lake")
    monkeypatch.setenv("THERMOCLINE_CATALOG__PROPERTIES__TOKEN", "hunter2")
    settings = load(kafka=SECRETS)
    assert "hunter2" not in f"{settings} {settings!r} {settings.shown()} {settings.kafka.client}"
    assert settings.kafka.client["sasl.password"] == "hunter2"


def test_a_secret_that_was_loaded_is_hidden_in_any_text_from_then_on(load: Callable[..., Settings]) -> None:
    text = "refused: tulip-5e1d-x is wrong"
    assert mask_secrets(text) == text
    load(kafka='[kafka.client]\n"sasl.password" = "tulip-5e1d-x"\n')
    assert mask_secrets(text) == "refused: **** is wrong"


def test_no_password_of_an_address_is_in_a_problem_of_it(problems_of: Callable[..., tuple[str, ...]]) -> None:
    (problem,) = problems_of("[serving]\nforwarded_from = ['http://u:tulip-7@proxy/']\n")
    assert "http://u:****@proxy/" in problem


def test_no_secret_is_in_what_pydantic_says() -> None:
    with pytest.raises(ValueError, match="bootstrap_servers") as caught:
        Settings.model_validate({"kafka": {"client": {"sasl.password": "hunter2"}}, "catalog": {}})
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("broken", ["[kafkaa]\n", '[serving]\nport = "hunter2"\n', "[[spark]]\n"])
def test_no_secret_is_in_a_problem(tmp_path: Path, broken: str) -> None:
    file = tmp_path / "thermocline.toml"
    file.write_text(f'{SECRETS}\n[catalog]\nuri = "postgresql://lake:hunter2@db/lake"\n{broken}')
    with pytest.raises(ConfigInvalid) as caught:
        load_settings(file)
    assert "kafka.bootstrap_servers: is missing" in caught.value.problems
    assert "hunter2" not in str(caught.value) + repr(caught.value)


# How bad records are dealt with


@pytest.mark.parametrize(
    ("table", "fates"),
    [
        ("", ("quarantine", "quarantine", "quarantine")),
        ('on_error = "skip"', ("skip", "skip", "skip")),
        ('on_error = { key = "fail", contract = "skip" }', ("fail", "quarantine", "skip")),
    ],
)
def test_on_error_is_a_word_or_one_for_each_stage(
    load: Callable[..., Settings], table: str, fates: tuple[str, ...]
) -> None:
    on_error = load(table=table).table("profiles").definition("profiles").on_error
    assert tuple(on_error.of(stage) for stage in ("key", "decode", "contract")) == fates


def test_a_stages_on_error_comes_from_the_environment(
    load: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THERMOCLINE_TABLES__PROFILES__ON_ERROR__DECODE", "fail")
    assert load().table("profiles").definition("profiles").on_error.of("decode") == "fail"


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ('on_error = "ignore"', 'on_error is "ignore", not fail or quarantine or skip'),
        ('on_error = { keys = "skip" }', 'did you mean "key"?'),
        ("on_error = 3", 'a word such as "quarantine"'),
        ("errors_ratio_max = 1.5", "less than or equal to 1"),
        ("errors_count_max = -1", "greater than or equal to 0"),
        ('dead_letter_topic = "profiles"', "feeds the table itself"),
    ],
)
def test_a_table_setting_that_cannot_work_says_why(
    problems_of: Callable[..., tuple[str, ...]], table: str, says: str
) -> None:
    (problem,) = problems_of(table=table)
    assert says in problem


def test_a_table_without_a_key_says_what_it_needs(problems_of: Callable[..., tuple[str, ...]]) -> None:
    (problem,) = problems_of(another_table("events", "app.events").replace('["id"]', "[]"))
    assert 'needs key_from = "value"' in problem


@pytest.mark.parametrize(
    ("host", "is_loopback"),
    [
        ("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True),
        ("0.0.0.0", False), ("::", False), ("192.0.2.7", False), ("lake.example", False), ("", False),
    ],
)  # fmt: skip
def test_what_other_machines_reach_is_served_only_where_that_is_said(host: str, is_loopback: bool) -> None:
    problems = list(problems_of_exposure(ServingSettings(host=host)))
    assert ["serving.clients_file" in problem for problem in problems] == [True] * (not is_loopback)
    assert not list(problems_of_exposure(ServingSettings(host=host, clients_file=Path("clients.toml"))))


def test_views_of_live_tables_need_a_server_that_has_them(
    load: Callable[..., Settings], problems_of: Callable[..., tuple[str, ...]]
) -> None:
    of_server = '\n[views]\nhot = "server"\n'
    (problem,) = problems_of(of_server)
    assert "serving.catalog.enabled = true" in problem
    assert "views.live_uri" in problem
    for more in ('live_uri = "http://server:8080/iceberg"', "[serving.catalog]\nenabled = true"):
        assert load(f"{of_server}{more}\n").views.hot == "server"


AVRO = 'format = "avro"\n'
SCHEMA_FILE = AVRO + 'value_schema_file = "value.avsc"\nkey_schema_file = "key.avsc"\n'


def test_schema_files_are_beside_the_configuration_and_part_of_the_definition(
    load: Callable[..., Settings], tmp_path: Path
) -> None:
    (tmp_path / "value.avsc").write_text('{ "type" : "record", "name": "R", "fields": [] }')
    (tmp_path / "key.avsc").write_text('{"type": "record", "name": "K", "fields": []}')
    settings = load(table=SCHEMA_FILE)
    definition = settings.table("profiles").definition("profiles")
    assert definition.value_schema == '{"type":"record","name":"R","fields":[]}'
    assert not definition.needs_registry
    assert settings.registry.client() is None


def test_a_schema_file_that_is_missing_or_none_of_avro_is_a_problem(
    problems_of: Callable[..., tuple[str, ...]], tmp_path: Path
) -> None:
    (missing,) = problems_of(table=SCHEMA_FILE)
    assert missing.startswith("tables.profiles: ")
    assert missing.endswith("can't be read: No such file or directory")
    (tmp_path / "value.avsc").write_text("{")
    (tmp_path / "key.avsc").write_text('"int"')
    (problem,) = problems_of(table=SCHEMA_FILE)
    assert problem.startswith("tables.profiles: the value schema is not a valid Avro schema: not JSON")


PROTO_FILE = 'format = "protobuf"\nkey_format = "json"\nvalue_schema_file = "bill.proto"\n'


def test_a_schema_file_of_protobuf_is_compiled_with_what_is_beside_it(
    load: Callable[..., Settings], problems_of: Callable[..., tuple[str, ...]], tmp_path: Path
) -> None:
    (tmp_path / "money.proto").write_text('syntax = "proto3"; message Money { int64 cents = 1; }')
    bill = 'syntax = "proto3"; import "money.proto"; message Bill { Money sum = 1; }'
    (tmp_path / "bill.proto").write_text(bill)
    first = load(table=PROTO_FILE).table("profiles").definition("profiles")
    (tmp_path / "bill.proto").write_text(f"// with a comment\n{bill}")
    assert load(table=PROTO_FILE).table("profiles").definition("profiles") == first
    (tmp_path / "bill.proto").write_text(f"{bill} message Two {{}}")
    (problem,) = problems_of(table=PROTO_FILE)
    assert "which of its messages is meant is not said: Bill, Two" in problem
    named = load(table=f'{PROTO_FILE}value_message = "Bill"\n').table("profiles").definition("profiles")
    assert named.value_message == "Bill"
    (tmp_path / "bill.proto").write_text("message {")
    (problem,) = problems_of(table=PROTO_FILE)
    assert "value_schema_file: " in problem
    assert "can't be compiled: bill.proto:1:9: Expected message name" in problem


def test_records_that_name_their_schemas_need_a_registry(
    load: Callable[..., Settings], problems_of: Callable[..., tuple[str, ...]], tmp_path: Path
) -> None:
    (problem,) = problems_of(table=AVRO)
    assert problem.startswith("tables.profiles: its records name their schemas: set registry.url")
    settings = load(table=AVRO, after='[registry]\nurl = "http://r:8081/apis/v7"\nca_file = "ca.pem"\n')
    client = settings.registry.client()
    assert client is not None
    assert (client.url, client.ca_file) == ("http://r:8081/apis/v7", str(tmp_path / "ca.pem"))


def test_a_registrys_password_is_sent_over_https_only_and_never_shown(
    load: Callable[..., Settings], problems_of: Callable[..., tuple[str, ...]]
) -> None:
    section = '[registry]\nurl = "{}://r:8081"\nuser = "u"\npassword = "hunter2"\n'
    (problem,) = problems_of(after=section.format("http"))
    assert "https only" in problem
    assert "hunter2" not in problem
    settings = load(after=section.format("https"))
    client = settings.registry.client()
    assert client is not None
    assert client.password == "hunter2"
    assert "hunter2" not in repr(settings) + str(settings.shown()) + repr(client)
    (problem,) = problems_of(after='[registry]\nurl = "https://u:hunter2@r:8081"\n')
    assert "hunter2" not in problem


def test_a_table_keeps_its_format_version_where_the_file_says_none() -> None:
    """It can't be taken back, so that nobody is to raise it by deleting a line."""
    said: dict[str, Any] = {"identifier": "app.t", "topics": ("t",), "key": ("id",), "columns": {"id": "int"}}
    unsaid, of_2, of_3 = (
        TableSettings(**said, **more) for more in ({}, {"format_version": 2}, {"format_version": 3})
    )
    there = of_2.definition("t")
    assert unsaid.definition("t").format_version == 3
    assert [one.definition("t", there).format_version for one in (unsaid, of_2, of_3)] == [2, 2, 3]
    assert unsaid.definition("t", of_3.definition("t")).format_version == 3

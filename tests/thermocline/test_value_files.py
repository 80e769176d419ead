"""Settings whose values stand in files of their own, as containers mount secrets."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from thermocline.errors import ConfigInvalid
from thermocline.settings import Settings, load_settings
from thermocline.settings.value_file import FILE_BYTES_MAX

CONFIG = """
[kafka]
bootstrap_servers = "file:9092"
{client}
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[tables.profiles]
identifier = "app.profiles"
topics = ["profiles"]
key = ["id"]
columns = {{ id = "int" }}
"""
SECRET = "canary-7f3a"
Load = Callable[..., Settings]
Problems = Callable[..., tuple[str, ...]]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("THERMOCLINE_"):
            monkeypatch.delenv(name)


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Loads a configuration with what these variables say, by their names without the prefix."""

    def write_and_load(client: str = "", **variables: str) -> Settings:
        file = tmp_path / "thermocline.toml"
        file.write_text(CONFIG.format(client=client))
        for name, value in variables.items():
            monkeypatch.setenv(f"THERMOCLINE_{name}", value)
        return load_settings(file)

    return write_and_load


@pytest.fixture
def problems_of(load: Load) -> Problems:
    def load_and_fail(client: str = "", **variables: str) -> tuple[str, ...]:
        with pytest.raises(ConfigInvalid) as caught:
            load(client, **variables)
        return caught.value.problems

    return load_and_fail


@pytest.fixture
def put(tmp_path: Path) -> Callable[[str | bytes], str]:
    """Writes a file with that content; its path."""

    def write(content: str | bytes) -> str:
        path = tmp_path / f"mounted-{len(list(tmp_path.iterdir()))}"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return str(path)

    return write


Put = Callable[[str | bytes], str]


def test_any_setting_comes_from_the_file_that_its_variable_names(load: Load, put: Put) -> None:
    settings = load(
        KAFKA__BOOTSTRAP_SERVERS_FILE=put("mounted:9092\n"),
        VIEWS__PASSWORD_FILE=put(SECRET),
        VIEWS__URL="https://trino.example",
        SERVING__PORT_FILE=put("9000\n"),
        SERVING__CATALOG__ENABLED_FILE=put("true"),
        TABLES__PROFILES__TOPICS_FILE=put("a, b\n"),
    )
    assert settings.kafka.bootstrap_servers == "mounted:9092"
    assert settings.views.password is not None
    assert settings.views.password.get_secret_value() == SECRET
    assert (settings.serving.port, settings.serving.catalog.enabled) == (9000, True)
    assert settings.table("profiles").topics == ("a", "b")


def test_settings_of_other_programs_come_from_files_too(load: Load, put: Put) -> None:
    settings = load(
        '[kafka.client]\n"sasl.username" = "u"\n"sasl.password" = "of the file"\n',
        **{
            "KAFKA__CLIENT__SASL.PASSWORD_FILE": put(SECRET),
            "KAFKA__CLIENT__SSL__KEY__PASSWORD_FILE": put(f"{SECRET}2"),
            "CATALOG__PROPERTIES__S3.SECRET-ACCESS-KEY_FILE": put(f"{SECRET}3"),
            "SPARK__CONF__SPARK__X_FILE": put(f"{SECRET}4"),
            "SERVING__CATALOG__READER_PROPERTIES__CREDENTIAL_FILE": put(f"{SECRET}5"),
            "SERVING__CATALOG__READER_PROPERTIES__S3__ACCESS-KEY-ID": "7",
        },
    )
    assert settings.kafka.client == {
        "sasl.username": "u",
        "sasl.password": SECRET,
        "ssl.key.password": f"{SECRET}2",
    }
    assert settings.catalog.properties == {"s3.secret-access-key": f"{SECRET}3"}
    assert settings.spark.conf == {"spark.x": f"{SECRET}4"}
    reader = {"credential": f"{SECRET}5", "s3.access-key-id": "7"}
    assert settings.serving.catalog.reader_properties == reader


@pytest.mark.parametrize(
    ("content", "value"),
    [
        ("a\n", "a"),
        ("a\r\n", "a"),
        ("a\n\n", "a\n"),
        ("a\r", "a\r"),
        (" a ", " a "),
        ("", ""),
        ("${HOME} $", "${HOME} $"),
        ("ü\n", "ü"),
    ],
)
def test_a_value_is_the_content_as_it_is_without_one_line_break_at_the_end(
    load: Load, put: Put, content: str, value: str
) -> None:
    named = {"KAFKA__CLIENT__SASL__PASSWORD_FILE": put(content), "REGISTRY__USER_FILE": put(content)}
    settings = load(**named)
    assert (settings.kafka.client["sasl.password"], settings.registry.user) == (value, value)


def test_a_relative_path_is_relative_to_the_configuration(load: Load, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "user").write_text("u\n")
    assert load(REGISTRY__USER_FILE="secrets/user").registry.user == "u"


def test_a_setting_that_is_called_so_is_itself(load: Load) -> None:
    settings = load(
        '[kafka.client]\n"odd_file" = "x"\n',
        KAFKA__CLIENT__ODD_FILE="y",
        REGISTRY__CA_FILE="/etc/ca.pem",
        TABLES__PROFILES__COLUMNS__LOG_FILE="string",
    )
    assert settings.kafka.client == {"odd_file": "y"}
    assert settings.registry.ca_file == Path("/etc/ca.pem")
    assert settings.table("profiles").columns["log_file"] == "string"


def test_a_setting_that_names_a_file_comes_from_a_file_too(load: Load, put: Put) -> None:
    settings = load(REGISTRY__CA_FILE_FILE=put("/etc/ca.pem\n"))
    assert settings.registry.ca_file == Path("/etc/ca.pem")


@pytest.mark.parametrize("base", ["VIEWS__USER", "KAFKA__CLIENT__SASL.USERNAME"])
def test_a_variable_and_its_file_are_one_too_many(problems_of: Problems, put: Put, base: str) -> None:
    named = {base: "u", f"{base.replace('.', '__')}_FILE": put("v")}
    (problem,) = problems_of(**named)
    variable = f"THERMOCLINE_{base.replace('.', '__')}_FILE"
    assert problem == f"{variable}: THERMOCLINE_{base} is set, too: keep one of them"


def test_a_file_that_is_no_value_is_named_with_its_variable(
    problems_of: Problems, put: Put, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    cases = {
        str(tmp_path / "nowhere"): "can't be read: No such file or directory",
        str(tmp_path): "can't be read: Is a directory",
        str(tmp_path / "pipe"): "is not a file",
        put(SECRET.encode() + b"\xff"): "is not UTF-8 text (byte 11)",
        put(SECRET * (FILE_BYTES_MAX // 10)): "is too large: a value has 1,048,576 bytes at most",
    }
    for path, words in cases.items():
        assert problems_of(REGISTRY__USER_FILE=path) == (f"THERMOCLINE_REGISTRY__USER_FILE: {path} {words}",)
    assert problems_of(REGISTRY__USER_FILE="") == ("THERMOCLINE_REGISTRY__USER_FILE: names no file",)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads every file")
def test_a_file_that_may_not_be_read_is_named(problems_of: Problems, put: Put) -> None:
    path = put(SECRET)
    Path(path).chmod(stat.S_IWUSR)
    words = f"THERMOCLINE_REGISTRY__USER_FILE: {path} can't be read: Permission denied"
    assert problems_of(REGISTRY__USER_FILE=path) == (words,)


def test_as_large_as_allowed_is_a_value(load: Load, put: Put) -> None:
    assert len(load(REGISTRY__USER_FILE=put("x" * FILE_BYTES_MAX)).registry.user) == 1_048_576


@pytest.mark.parametrize(
    "name",
    [
        "SERVING__PORT",
        "SERVING__HOT_BYTES_MAX",
        "KAFKA__BOOTSTRAP_SERVERS",
        "CATALOG__URI",
        "CATALOG__TYPE",
        "REGISTRY__URL",
        "TABLES__PROFILES__START",
        "TABLES__PROFILES__KEY",
        "TABLES__PROFILES__VIEWS",
        "TABLES__PROFILES__ON_ERROR",
    ],
)
@pytest.mark.parametrize("content", [SECRET, f"{SECRET}://x", f"x,{SECRET}", f"id,{SECRET}"])
def test_a_problem_of_a_value_never_has_what_the_file_has(
    problems_of: Problems, put: Put, name: str, content: str
) -> None:
    """Goal: a variable that names another secret by mistake does not put that into a log."""
    problems = problems_of(**{f"{name}_FILE": put(f"{content}\n")})
    assert problems
    assert SECRET not in "".join(problems)


def test_an_unknown_variable_is_a_problem_with_the_closest_one(problems_of: Problems, put: Put) -> None:
    (problem,) = problems_of(VIEWS__PASSWORT_FILE=put(SECRET))
    hint = 'did you mean "THERMOCLINE_VIEWS__PASSWORD_FILE"?'
    assert problem == f"THERMOCLINE_VIEWS__PASSWORT_FILE: unknown variable; {hint}"

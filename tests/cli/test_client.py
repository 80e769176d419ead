"""``thermocline client``: keys are shown once and kept as hashes, two at a time, and comments stay."""

from __future__ import annotations

import json
import re
import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import Authority
from thermocline import cli
from thermocline.errors import ExitCode
from thermocline.serving.access.clients import read_clients
from thermocline.serving.access.keys import ApiKey

CONFIG = """
[kafka]
bootstrap_servers = "127.0.0.1:1"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
[serving]
clients_file = "{folder}/clients.toml"
[tables.profiles]
identifier = "app.profiles"
topics = ["profiles"]
key = ["app_id", "user_id"]
[tables.profiles.columns]
app_id = "int"
user_id = "string"
email = "string"
plan = "string"
"""


class Commands:
    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.config = folder / "thermocline.toml"
        self.config.write_text(CONFIG.format(folder=folder))
        self.file = folder / "clients.toml"
        self._capsys = capsys

    def __call__(self, *words: str, code: int = ExitCode.DONE) -> Any:
        assert cli.run(["--config", str(self.config), "client", *words, "--json"]) == code
        said = self._capsys.readouterr()
        return json.loads(said.out if code in (ExitCode.DONE, ExitCode.BAD_ANSWER) else said.err)


@pytest.fixture
def client(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Commands:
    return Commands(tmp_path, capsys)


def test_a_key_is_shown_once_and_kept_as_its_hash(client: Commands) -> None:
    made = client("create", "billing", "--table", "profiles", "--scope", "app_id=7", "--column", "plan")
    key = ApiKey.parse(made["key"])
    assert key is not None
    assert key.secret not in client.file.read_text()
    assert stat.S_IMODE(client.file.stat().st_mode) == 0o600
    kept = tomllib.loads(client.file.read_text())["clients"]["billing"]
    assert [(one["id"], one["sha256"]) for one in kept["keys"]] == [(key.id, key.hash())]
    assert kept["tables"] == {
        "profiles": {"verbs": ["lookup", "extract"], "columns": ["plan"], "scope": {"app_id": "7"}}
    }
    listed = client("list")["clients"]["billing"]
    assert [one["id"] for one in listed["keys"]] == [key.id]
    assert key.hash() not in str(listed)


def test_two_keys_count_at_a_time_and_a_revoked_or_expired_one_makes_room(client: Commands) -> None:
    first, second = (client("create", "billing", "--table", "profiles") for _ in range(2))
    refused = client("create", "billing", code=ExitCode.USAGE)
    assert refused["code"] == "bad-parameter"
    assert client("revoke", "billing", first["id"]) == {"client": "billing", "revoked": [first["id"]]}
    third = client("create", "billing", "--expires-days", "1")
    text = client.file.read_text()
    year = str(read_clients(client.file).clients["billing"].keys[1].expires)[:4]
    client.file.write_text(text.replace(f"expires = {year}", "expires = 2020"))
    fourth = client("create", "billing")
    ids = [one["id"] for one in client("list")["clients"]["billing"]["keys"]]
    assert ids == [second["id"], fourth["id"]]
    assert third["id"] not in ids
    assert sorted(client("revoke", "billing")["revoked"]) == sorted(ids)
    assert client("revoke", "billing", code=ExitCode.USAGE)["code"] == "bad-parameter"
    assert client("revoke", "other", code=ExitCode.USAGE)["code"] == "bad-parameter"


def test_what_people_wrote_into_the_file_stays(client: Commands) -> None:
    client.file.write_text(
        '# ours\n[clients.ops] # theirs\n[clients.ops.tables."*"]\nverbs = ["admin"] # all\n'
    )
    client("create", "billing", "--table", "profiles")
    text = client.file.read_text()
    for comment in ("# ours", "# theirs", "# all"):
        assert comment in text
    assert sorted(read_clients(client.file).clients) == ["billing", "ops"]


def test_a_change_that_would_make_the_file_invalid_changes_nothing(client: Commands) -> None:
    client("create", "billing", "--table", "profiles")
    before = client.file.read_text()
    for words in (("--verb", "drop"), ("--verb", "catalog", "--scope", "app_id=7")):
        refused = client("create", "other", "--table", "profiles", *words, code=ExitCode.USAGE)
        assert refused["code"] == "config-invalid"
        assert f"in {client.file} has" in json.dumps(refused)  # and no file that is gone by now
    assert client("create", "other", "--verb", "lookup", code=ExitCode.USAGE)["code"] == "bad-parameter"
    assert client.file.read_text() == before
    assert [path.name for path in client.file.parent.iterdir() if path.name.startswith(".clients")] == [
        ".clients.toml.lock"
    ]


def test_a_file_keeps_its_rights_and_a_link_stays_one(client: Commands, tmp_path: Path) -> None:
    place = tmp_path / "secrets" / "clients.toml"
    place.parent.mkdir()
    place.write_text("")
    place.chmod(0o640)
    client.file.symlink_to(place)
    client("create", "billing", "--table", "profiles")
    assert client.file.is_symlink()
    assert stat.S_IMODE(place.stat().st_mode) == 0o640
    assert "billing" in place.read_text()


def test_check_says_what_a_client_may_do_and_why(client: Commands) -> None:
    client("create", "billing", "--table", "profiles", "--scope", "app_id=7", "--column", "plan")
    found = client("check", "billing", "profiles")
    assert (found["verbs"], found["scope"]) == (["lookup", "extract"], {"app_id": "7"})
    assert found["columns"] == ["app_id", "user_id", "plan"]
    assert found["why"].startswith('[clients.billing.tables."profiles"] in ')
    client("create", "ops", "--table", "*", "--verb", "admin")
    assert client("check", "ops", "profiles")["why"].startswith('[clients.ops.tables."*"] in ')
    client("create", "none", "--table", "others")
    assert client("check", "none", "profiles", code=ExitCode.BAD_ANSWER)["verbs"] == []
    for name, words in (
        ("a", ("--column", "phone")),
        ("b", ("--scope", "plan_id=7")),
        ("c", ("--scope", "app_id=seven")),
    ):
        made = client("create", name, "--table", "profiles", *words)
        problem = client("check", name, "profiles", code=ExitCode.BAD_ANSWER)["problem"]
        assert problem
        assert made["problems"] == {"profiles": problem}


def test_check_says_that_admin_alone_reads_no_rows(
    client: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    client("create", "ops", "--table", "*", "--verb", "admin")
    found = client("check", "ops", "profiles")
    assert (found["reads_rows"], found["columns"]) == (False, [])
    assert found["may"] == [
        "see its status, and its refused records with reasons and keys",
        "see metrics, and what is wrong with the server",
    ]
    assert cli.run(["--config", str(client.config), "client", "check", "ops", "profiles"]) == ExitCode.DONE
    shown = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in capsys.readouterr().out.splitlines()[2:])
    assert {shown["columns"].rstrip(), shown["rows"].rstrip()} == {"none: its verbs read no rows"}
    client("create", "billing", "--table", "profiles")
    found = client("check", "billing", "profiles")
    assert (found["reads_rows"], len(found["columns"])) == (True, 4)
    assert found["may"] == ["look up rows by their key", "extract rows as a stream"]


def test_a_client_is_listed_with_all_by_which_it_is_known(
    client: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    key = client("create", "both")["id"]
    text = client.file.read_text().replace("[clients.both]", '[clients.both]\ncertificates = ["cn:Both"]')
    client.file.write_text(
        f"""{text}
[clients.batch]
certificates = ["dns:batch.internal", "uri:spiffe://batch"]
[issuers.corp]
issuer = "https://login.example"
audience = "thermocline"
[clients.tenants]
issuer = "corp"
claims = {{ role = "reader" }}
"""
    )
    listed = client("list")["clients"]
    assert listed["batch"]["certificates"] == ["dns:batch.internal", "uri:spiffe://batch"]
    assert (listed["tenants"]["issuer"], listed["tenants"]["claims"]) == ("corp", {"role": "reader"})
    assert cli.run(["--config", str(client.config), "client", "list"]) == ExitCode.DONE
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert lines[0] == "client known by may"
    assert lines[2:] == [
        f"both key {key}, certificate cn:Both",
        "batch certificate dns:batch.internal, certificate uri:spiffe://batch",
        "tenants token of corp, role = reader",
    ]


def test_check_says_that_nobody_is_known_by_certificates_without_a_ca(
    client: Commands, tmp_path: Path
) -> None:
    client.file.write_text(
        '[clients.batch]\ncertificates = ["cn:batch"]\n[clients.batch.tables.profiles]\nverbs = ["lookup"]\n'
    )
    found = client("check", "batch", "profiles", code=ExitCode.BAD_ANSWER)
    assert found["known_by"] == ["certificate cn:batch"]
    assert found["problem"] == "nobody is known by its certificates: serving.tls_client_ca is not set"
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.issue().paths
    tls = f'tls_certificate = "{certificate}"\ntls_key = "{key}"\ntls_client_ca = "{authority.file}"\n'
    client.config.write_text(client.config.read_text().replace("clients_file", f"{tls}clients_file"))
    assert client("check", "batch", "profiles")["problem"] is None


def test_a_table_that_is_not_configured_is_named_when_it_is_granted(client: Commands) -> None:
    made = client("create", "billing", "--table", "profile", "--table", "*")
    assert made["problems"] == {"profile": "no such table is configured; configured: profiles"}


def test_a_pattern_is_granted_whether_or_not_tables_fit_it_yet(client: Commands) -> None:
    made = client("create", "billing", "--table", "prof*", "--table", "events_*", "--column", "phone")
    assert list(made["problems"]) == ["profiles"]
    assert client("check", "billing", "profiles", code=ExitCode.BAD_ANSWER)["problem"]
    client("grant", "billing", "--table", "prof*", "--all-columns")
    found = client("check", "billing", "profiles")
    assert found["why"].startswith('[clients.billing.tables."prof*"] in ')
    assert found["verbs"] == ["lookup", "extract"]
    refused = client("create", "other", "--table", "*files", code=ExitCode.USAGE)
    assert "is no pattern" in json.dumps(refused)


def test_a_verb_that_is_added_gives_no_rows_or_columns_besides(client: Commands) -> None:
    scoped = ("--table", "profiles", "--scope", "app_id=7", "--column", "plan")
    client("create", "billing", *scoped)
    client("create", "billing", "--table", "profiles", "--verb", "changes")
    kept = {"verbs": ["changes"], "columns": ["plan"], "scope": {"app_id": "7"}}
    assert tomllib.loads(client.file.read_text())["clients"]["billing"]["tables"]["profiles"] == kept
    client("grant", "billing", "--table", "profiles", "--verb", "lookup", "--verb", "changes")
    assert client("list")["clients"]["billing"]["tables"] == {
        "profiles": kept | {"verbs": ["lookup", "changes"]}
    }


def test_a_grant_changes_with_both_keys_in_use_and_makes_none(client: Commands) -> None:
    keys = [client("create", "billing", "--table", "profiles", "--scope", "app_id=7") for _ in range(2)]
    client("grant", "billing", "--table", "profiles", "--scope", "app_id=8", "--column", "plan")
    listed = client("list")["clients"]["billing"]
    assert [one["id"] for one in listed["keys"]] == [one["id"] for one in keys]
    assert listed["tables"]["profiles"] == {
        "verbs": ["lookup", "extract"],
        "columns": ["plan"],
        "scope": {"app_id": "8"},
    }
    client("grant", "billing", "--table", "profiles", "--all-rows", "--all-columns")
    (found,) = client("list")["clients"]["billing"]["tables"].values()
    assert found == {"verbs": ["lookup", "extract"], "columns": None, "scope": {}}


def test_a_grant_of_the_key_alone_stays_one(client: Commands) -> None:
    client("create", "billing", "--table", "profiles")
    client.file.write_text(client.file.read_text().replace("verbs =", "columns = []\nverbs ="))
    client("grant", "billing", "--table", "profiles", "--verb", "lookup")
    assert client("list")["clients"]["billing"]["tables"]["profiles"]["columns"] == []


def test_a_grant_that_contradicts_itself_or_is_for_nobody_is_refused(client: Commands) -> None:
    client("create", "billing", "--table", "profiles", "--scope", "app_id=7")
    before = client.file.read_text()
    for words in (
        ("billing", "--all-rows", "--scope", "app_id=8"),
        ("billing", "--all-columns", "--column", "plan"),
        ("biling", "--all-rows"),
    ):
        refused = client("grant", *words, "--table", "profiles", code=ExitCode.USAGE)
        assert refused["code"] == "bad-parameter"
    assert client.file.read_text() == before


def test_a_list_shows_which_part_of_a_table_each_client_sees(
    client: Commands, capsys: pytest.CaptureFixture[str]
) -> None:
    client("create", "billing", "--table", "profiles", "--scope", "app_id=7", "--column", "plan")
    assert cli.run(["--config", str(client.config), "client", "list"]) == ExitCode.DONE
    assert "profiles (app_id = 7; columns plan): lookup, extract" in capsys.readouterr().out


def test_without_a_clients_file_it_is_said_which_setting_is_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "thermocline.toml"
    config.write_text(CONFIG.format(folder=tmp_path).replace("clients_file", "#"))
    assert cli.run(["--config", str(config), "client", "list"]) == ExitCode.USAGE
    assert "clients_file" in capsys.readouterr().err

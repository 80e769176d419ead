"""The files for Trino: which, where, and without any secret."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from thermocline.cli.entry import run
from thermocline.errors import BadParameter
from thermocline.settings import CatalogSettings, KafkaSettings, PassThrough, Settings, TableSettings
from thermocline.settings.model import LiveCatalogSettings
from thermocline.views.access import Names
from thermocline.views.config import TrinoFiles, trino_files, write_files
from thermocline.views.topics import table_name

COLUMNS: dict[str, Any] = {"a": "int"}


CONFIG = """
[kafka]
bootstrap_servers = "one:9092"
[kafka.client]
"sasl.mechanism" = "PLAIN"
"sasl.password" = "hunter2"
[catalog]
uri = "sqlite:///catalog.db"
warehouse = "warehouse"
"""


def table(identifier: str, *topics: str) -> TableSettings:
    return TableSettings(identifier=identifier, topics=topics, key=("a",), columns=COLUMNS)


SETTINGS = Settings(
    kafka=KafkaSettings(
        bootstrap_servers="SASL_SSL://one:9092, two:9092",
        client=PassThrough(
            {
                "security.protocol": "sasl_ssl",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "me",
                "sasl.password": "hunter2-kafka",
                "ssl.key.password": "hunter2-key",
            }
        ),
    ),
    catalog=CatalogSettings(
        uri="postgresql+psycopg://me:hunter2-db@db:5432/lake",
        warehouse="s3://bucket/warehouse",
        properties=PassThrough(
            {
                "s3.access-key-id": "hunter2-id",
                "s3.secret-access-key": "hunter2-s3",
                "s3.endpoint": "http://store:9000",
                "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
            }
        ),
    ),
    tables={"profiles": table("app.profiles", "profiles", "More.Profiles"), "b": table("App.B", "profiles")},
)


@pytest.fixture(scope="module")
def trino() -> TrinoFiles:
    return trino_files(SETTINGS)


def properties(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines() if line and not line.startswith("#"))


def test_no_file_has_a_secret_and_every_secret_has_a_variable(trino: TrinoFiles) -> None:
    assert not [path for path, text in trino.files.items() if "hunter2" in text]
    assert sorted(trino.secrets.values()) == [
        *("hunter2-db", "hunter2-id", "hunter2-kafka", "hunter2-key", "hunter2-s3")
    ]
    named = set(re.findall(r"\$\{(?:ENV|env):(\w+)\}", "".join(trino.files.values())))
    assert named == set(trino.secrets)
    assert "hunter2" not in repr(trino)


def test_every_variable_stands_in_the_readme(trino: TrinoFiles) -> None:
    assert all(f"`{name}`" in trino.files["README.md"] for name in trino.secrets)


def test_what_has_no_counterpart_is_told(trino: TrinoFiles) -> None:
    assert list(trino.left_out) == ["catalog.properties.py-io-impl"]
    assert "catalog.properties.py-io-impl" in trino.files["README.md"]


def test_every_topic_has_one_description_and_no_decoder(trino: TrinoFiles) -> None:
    catalog = properties(trino.files["catalog/kafka.properties"])
    assert catalog["kafka.nodes"] == "one:9092,two:9092"
    described = {
        f"{found['schemaName']}.{found['tableName']}": found
        for path, text in trino.files.items()
        if path.startswith("kafka/") and (found := json.loads(text))
    }
    assert set(catalog["kafka.table-names"].split(",")) == set(described)
    assert {found["topicName"] for found in described.values()} == {"profiles", "More.Profiles"}
    assert all(set(found) == {"tableName", "schemaName", "topicName"} for found in described.values())


def test_live_tables_have_a_catalog_whose_files_are_reached_like_those_of_the_lake() -> None:
    live = LiveCatalogSettings(enabled=True)
    serving = SETTINGS.serving.model_copy(update={"catalog": live})
    with_live = SETTINGS.model_copy(update={"serving": serving})
    written = trino_files(with_live)
    assert properties(written.files["catalog/live.properties"]) == {
        "connector.name": "iceberg",
        "iceberg.catalog.type": "rest",
        "iceberg.rest-catalog.uri": "http://127.0.0.1:8080/iceberg",
        "fs.native-s3.enabled": "true",
        "s3.endpoint": "http://store:9000",
        "s3.path-style-access": "true",
        "s3.aws-access-key": "${ENV:TRINO_LAKE_S3_AWS_ACCESS_KEY}",
        "s3.aws-secret-key": "${ENV:TRINO_LAKE_S3_AWS_SECRET_KEY}",
    }
    files = {"tls_certificate": Path("tls.crt"), "tls_key": Path("tls.key")}
    secure = with_live.model_copy(update={"serving": serving.model_copy(update=files)})
    over_tls = properties(trino_files(secure).files["catalog/live.properties"])
    assert over_tls["iceberg.rest-catalog.uri"] == "https://127.0.0.1:8080/iceberg"
    views = with_live.views.model_copy(update={"live": "now", "live_uri": "https://server/iceberg"})
    elsewhere = trino_files(with_live.model_copy(update={"views": views})).files["catalog/now.properties"]
    assert properties(elsewhere)["iceberg.rest-catalog.uri"] == "https://server/iceberg"
    assert "catalog/live.properties" not in trino_files(SETTINGS).files
    keyed = with_live.views.model_copy(update={"live_key": SecretStr("thermocline_1_s3cret")})
    admitted = trino_files(with_live.model_copy(update={"views": keyed}))
    found = properties(admitted.files["catalog/live.properties"])
    assert found["iceberg.rest-catalog.security"] == "OAUTH2"
    assert found["iceberg.rest-catalog.oauth2.token"] == "${ENV:TRINO_LIVE_ICEBERG_REST_CATALOG_OAUTH2_TOKEN}"
    assert admitted.secrets["TRINO_LIVE_ICEBERG_REST_CATALOG_OAUTH2_TOKEN"] == "thermocline_1_s3cret"
    assert "s3cret" not in str(admitted.files)


@pytest.mark.parametrize(
    "topic", ["profiles", "Profiles", "pro-files", "pro.files", "1", "_", "UPPER", "a" * 249]
)
def test_the_table_of_a_topic_needs_no_quotes(topic: str) -> None:
    assert re.fullmatch(r"[a-z_][a-z0-9_]*", table_name(topic))


def test_topics_that_look_alike_are_different_tables() -> None:
    topics = ["pro_files", "pro-files", "pro.files", "Pro_files", "PRO_FILES"]
    assert len({table_name(topic) for topic in topics}) == len(topics)
    assert table_name("pro_files") == "pro_files"


def test_rules_name_tables_as_trino_has_them(trino: TrinoFiles) -> None:
    rules = json.loads(trino.files["access-control.json"])["tables"]
    assert {rule["schema"] for rule in rules if rule.get("catalog") == "lake"} == {"app"}
    of_all = [rule for rule in rules if "user" not in rule and rule.get("catalog") == "lake"]
    views = [rule["table"] for rule in of_all if rule["privileges"]]
    assert all(
        re.fullmatch(views[0], f"profiles_{name}") for name in ("live", "live_by_key", "cold", "at_12")
    )
    assert not [
        name for name in ("profiles", "profiles_quarantine", "b_live") if re.fullmatch(views[0], name)
    ]


def test_without_an_admin_nobody_is_one(trino: TrinoFiles) -> None:
    assert '"owner": true' not in trino.files["access-control.json"]
    with_admin = trino_files(SETTINGS, Names(admin="root.1")).files["access-control.json"]
    assert json.loads(with_admin)["catalogs"][0] == {"user": r"root\.1", "allow": "owner"}


def test_files_are_replaced_and_nothing_else_is_left(trino: TrinoFiles, tmp_path: Path) -> None:
    for _ in range(2):
        write_files(trino, tmp_path)
        written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
        assert written == set(trino.files)


def test_a_folder_that_can_not_be_written_is_named(trino: TrinoFiles, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadParameter, match=r"file/.* can't be written: Not a directory"):
        write_files(trino, tmp_path / "file")


def test_the_command_says_what_is_still_to_be_set(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "thermocline.toml"
    config.write_text(CONFIG)
    assert run(["--config", str(config), "views", "config", str(tmp_path / "etc"), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["variables"] == ["TRINO_KAFKA_SASL_PASSWORD"]
    assert (tmp_path / "etc" / "catalog" / "lake.properties").is_file()
    assert "hunter2" not in json.dumps(said)

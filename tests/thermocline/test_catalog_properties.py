"""The catalog's settings in the words of every engine: the table has all of PyIceberg's."""

from __future__ import annotations

import ast
import re
import zipfile
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from thermocline.iceberg.catalog_properties import (
    WORDS,
    EngineProperties,
    duckdb_properties,
    java_properties,
    pyiceberg_properties,
    trino_properties,
)
from thermocline.jvm.jars import jars_of
from thermocline.settings import CatalogSettings, PassThrough

ENGINES = (java_properties, trino_properties, duckdb_properties)
TYPES: dict[str, dict[str, str]] = {
    "sql": {"uri": "postgresql://db.example/iceberg", "warehouse": "s3://b/w"},
    "rest": {"uri": "http://r", "warehouse": "w"},
    "glue": {"warehouse": "s3://b/w"},
    "hive": {"uri": "thrift://m:9083", "warehouse": "s3://b/w"},
}
MODULES = (
    "io/__init__.py",
    *(f"catalog/{name}.py" for name in ("__init__", "glue", "hive", "rest/__init__")),
)
# Of PyIceberg's names, those of settings that we have beside the properties, and one that is a value.
NO_PROPERTIES = {"type", "uri", "warehouse", "vended-credentials"}
# What has no name of its own in an engine, but decides over others, or is found by the engine itself.
DERIVED = {
    (trino_properties, "rest.sigv4-enabled"),
    (trino_properties, "adls.account-name"),
    *((translate, "s3.force-virtual-addressing") for translate in ENGINES),
}


def settings(kind: str = "sql", **properties: str) -> CatalogSettings:
    of_kind: Any = TYPES[kind]
    return CatalogSettings(type=kind, properties=PassThrough(properties), **of_kind)  # type: ignore[arg-type]


def constants(module: str) -> set[str]:
    """The texts that a module of PyIceberg names; read, as some modules need what isn't installed."""
    spec = find_spec("pyiceberg")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / module
    return {
        node.value.value
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        if isinstance(node.value.value, str)
    }


def names_of_pyiceberg() -> set[str]:
    """What its FileIO and its catalogs are configured by."""
    dotted = r"(adls|client|gcs|glue|hdfs|hf|hive|rest|s3)\.[\w.-]+"
    words = "audience|auth|credential|prefix|resource|scope|ssl|token"
    is_name = re.compile(rf"{dotted}|[a-z0-9]+(-[a-z0-9]+)+|{words}")
    return {
        name for module in MODULES for name in constants(module) if is_name.fullmatch(name)
    } - NO_PROPERTIES


def test_every_property_of_pyiceberg_is_in_the_table() -> None:
    known = names_of_pyiceberg()
    assert {"s3.endpoint", "glue.region", "credential", "adls.sas-token", "py-io-impl"} <= known
    assert known - WORDS.keys() == set()


@pytest.mark.parametrize("kind", TYPES)
@pytest.mark.parametrize("translate", ENGINES)
def test_every_property_is_translated_or_refused_by_name(
    kind: str, translate: Callable[[CatalogSettings], EngineProperties]
) -> None:
    """Also one that nobody knows, which is taken for Java's."""
    for name in (*WORDS, "of.nobody"):
        found = translate(settings(kind, **{name: "hunter2"}))
        ways = ["hunter2" in found.values.values(), name in found.left_out, (translate, name) in DERIVED]
        assert sum(ways) == 1, (name, ways)
        assert "hunter2" not in repr(found)
        is_ours = kind == "rest" and name == "snapshot-loading-mode"  # what maintenance must see
        expected = "all" if is_ours else "hunter2"
        assert pyiceberg_properties(settings(kind, **{name: "hunter2"}))[name] == expected


def test_what_is_secret_is_secret_for_every_engine() -> None:
    secret = [name for name, words in WORDS.items() if words.is_secret]
    assert {"s3.secret-access-key", "client.secret-access-key", "token", "adls.account-key"} <= set(secret)
    for translate in ENGINES:
        found = translate(settings("glue", **dict.fromkeys(secret, "hunter2")))
        assert {name for name, value in found.values.items() if value == "hunter2"} == found.secrets


@pytest.mark.parametrize("translate", ENGINES)
def test_the_more_specific_property_wins(
    translate: Callable[[CatalogSettings], EngineProperties],
) -> None:
    both = {"client.region": "of-all", "s3.region": "of-s3"}
    for properties in (both, dict(reversed(both.items()))):
        assert "of-s3" in translate(settings(**properties)).values.values()
        assert "of-all" not in translate(settings(**properties)).values.values()


def test_an_endpoint_of_ones_own_is_asked_by_path_by_every_engine() -> None:
    """As PyIceberg asks it."""
    ours = {"s3.endpoint": "http://store:9000"}
    assert java_properties(settings(**ours)).values["s3.path-style-access"] == "true"
    duckdb = {"ENDPOINT": "store:9000", "USE_SSL": "false", "URL_STYLE": "path"}
    assert duckdb_properties(settings(**ours)).values == duckdb
    for translate in ENGINES:
        by_name = translate(settings(**ours, **{"s3.force-virtual-addressing": "true"})).values
        assert not {"s3.path-style-access", "URL_STYLE"} & by_name.keys()


def test_a_property_of_java_by_its_own_name_has_the_last_word() -> None:
    own = {"jdbc.socketTimeout": "5", "s3.path-style-access": "false", "s3.endpoint": "http://store"}
    found = java_properties(settings(**own)).values
    assert own.items() <= found.items()


def test_java_gives_up_on_a_postgresql_that_does_not_answer() -> None:
    found = java_properties(settings()).values
    assert (found["jdbc.socketTimeout"], found["jdbc.tcpKeepAlive"]) == ("60", "true")


def test_java_gets_credentials_as_they_are_not_as_a_url_spells_them() -> None:
    uri = "postgresql+psycopg://a%40b:p%2Fw%25d@db.example/iceberg"
    found = java_properties(CatalogSettings(uri=uri, warehouse="w")).values
    assert (found["jdbc.user"], found["jdbc.password"]) == ("a@b", "p/w%d")
    assert found["uri"] == "jdbc:postgresql://db.example/iceberg"


def test_credentials_among_the_parameters_of_a_url_do_not_stay_in_it() -> None:
    uri = "postgresql://db.example/iceberg?user=ice&sslmode=verify-full&password=s3%2Fcret"
    found = java_properties(CatalogSettings(uri=uri, warehouse="w")).values
    assert (found["jdbc.user"], found["jdbc.password"]) == ("ice", "s3/cret")
    assert found["uri"] == "jdbc:postgresql://db.example/iceberg?sslmode=verify-full"


def test_a_warehouse_that_a_server_knows_by_name_is_not_taken_for_a_folder() -> None:
    for properties in (pyiceberg_properties(settings("rest")), java_properties(settings("rest")).values):
        assert properties["warehouse"] == "w"
    without = CatalogSettings(type="rest", uri="http://r")
    assert "warehouse" not in pyiceberg_properties(without)
    local = CatalogSettings(uri="sqlite:///catalog.db", warehouse="w")
    assert pyiceberg_properties(local)["warehouse"] == (Path.cwd() / "w").as_uri()


def test_a_table_in_s3_is_read_and_written_with_time_outs_and_the_stores_own_client() -> None:
    lake = CatalogSettings(uri="sqlite:///c.db", warehouse="s3://bucket/path")
    java, python = java_properties(lake).values, pyiceberg_properties(lake)
    assert java["io-impl"].endswith("ResolvingFileIO")
    assert java["http-client.apache.socket-timeout-ms"] == "60000"
    assert python["s3.request-timeout"] == "60"
    module, _, name = python["s3.retry-strategy-impl"].rpartition(".")
    assert getattr(import_module(module), name)().max_attempts == 11
    local = CatalogSettings(uri="sqlite:///c.db", warehouse="w")
    assert "io-impl" not in java_properties(local).values
    assert "s3.request-timeout" not in pyiceberg_properties(local)


def test_a_credential_is_exchanged_at_the_catalog_unless_another_server_is_named() -> None:
    named = PassThrough({"credential": "id:secret", "oauth2-server-uri": "https://other"})
    for properties, expected in (
        (PassThrough({"credential": "id:secret"}), "http://r/v1/oauth/tokens"),
        (named, "https://other"),
    ):
        rest = CatalogSettings(type="rest", uri="http://r/", properties=properties)
        assert pyiceberg_properties(rest)["oauth2-server-uri"] == expected
        assert java_properties(rest).values["oauth2-server-uri"] == expected


@pytest.mark.jvm
def test_java_has_every_word_of_the_table() -> None:
    """Goal: no name is misspelt. Method: Java's class files have texts with their length before them."""
    (jar,) = (path for path in jars_of("spark") if path.name.startswith("iceberg-spark-runtime"))
    with zipfile.ZipFile(jar) as classes:
        iceberg = [
            name for name in classes.namelist() if re.match(r"org/apache/iceberg/(?!shaded).*class$", name)
        ]
        texts = b"".join(classes.read(name) for name in iceberg)
    words = {words.java for words in WORDS.values() if re.fullmatch(r"[\w.-]+", words.java)}
    known = {word for word in words if b"\x01" + len(word).to_bytes(2, "big") + word.encode() in texts}
    assert "s3.endpoint" in known
    assert words - known == set()

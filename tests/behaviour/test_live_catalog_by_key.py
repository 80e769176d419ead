"""Live tables in engines that bring an API key; without one, or with that of a service, they get none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trino.dbapi
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import ForbiddenError, NoSuchTableError, RESTError
from pyspark.sql import SparkSession

from tests.behaviour.engines import DuckDB, EngineFailed, Spark
from tests.behaviour.topic import APP, Topic
from thermocline.dev.stack import TABLE, TOPIC, TRINO_ADMIN, Stack
from thermocline.ingest.owner.owner import Owner
from thermocline.serving.access.clients_edit import Granted, add_key
from thermocline.settings import load_settings

pytestmark = [pytest.mark.full, pytest.mark.trino, pytest.mark.local_files]
COUNT = f"SELECT count(*) AS n FROM live.app.{TABLE}"


def key_of(stack: Stack, name: str, verb: str, scope: dict[str, str]) -> str:
    granted = [Granted(TABLE, (verb,), None, scope)]
    key = add_key(stack.folder / "clients.toml", name, granted, None, datetime.now(UTC))
    assert key is not None
    return key.text


def test_engines_read_live_tables_by_a_key_with_that_verb_alone(
    new_stack: Callable[..., Stack],
    new_owner: Callable[[Stack], Owner],
    new_spark: Callable[[Stack], SparkSession],
    tmp_path: Path,
) -> None:
    stack = new_stack("keyed", has_live_catalog=True, trino_gb=2)
    key = key_of(stack, "engines", "catalog", {})
    lookups = key_of(stack, "service", "lookup", {"app_id": str(APP)})
    text = stack.config_path.read_text()
    text = text.replace("[serving]\n", f'[serving]\nclients_file = "{stack.folder}/clients.toml"\n')
    text = text.replace("[views]\n", f'[views]\nlive_key = "{key}"\n')
    stack.config_path.write_text(text)
    stack.settings = load_settings(stack.config_path)
    assert stack.trino is not None
    stack.start_trino()
    owner, topic = new_owner(stack), Topic(stack.settings.kafka, TOPIC)
    for user in range(20):
        topic.send((APP, f"u{user}", "plan"), "gold")
    topic.flush()
    owner.step()
    for user in range(15, 25):
        topic.send((APP, f"u{user}", "plan"), "blue")
    topic.flush()
    server = stack.serve()
    stack.wait_for(lambda: stack.get("/readyz")[0] == 200, "the server is ready", server)
    url = f"{stack.url}/iceberg"
    duckdb = DuckDB(tmp_path, url, key)
    try:
        assert [row["n"] for row in duckdb.ask(COUNT)] == [25]
    finally:
        duckdb.stop()
    assert [row["n"] for row in Spark(new_spark(stack), url, key).ask(COUNT)] == [25]
    assert len(pyiceberg(url, key).load_table(f"app.{TABLE}").scan().to_arrow()) == 25
    stack.trino.wait()
    assert in_trino(stack, COUNT) == [[25]]
    with pytest.raises(EngineFailed):
        DuckDB(tmp_path, url)
    for other, error in ((None, RESTError), ("thermocline_0_x", RESTError)):
        with pytest.raises(error):
            pyiceberg(url, other).load_table(f"app.{TABLE}")
    with pytest.raises((NoSuchTableError, ForbiddenError)):
        pyiceberg(url, lookups).load_table(f"app.{TABLE}")


def pyiceberg(url: str, key: str | None) -> RestCatalog:
    return RestCatalog("live", uri=url, **({} if key is None else {"token": key}))


def in_trino(stack: Stack, sql: str) -> list[list[Any]]:
    assert stack.trino is not None
    connected = trino.dbapi.connect(host=stack.trino.host, port=stack.trino.port, user=TRINO_ADMIN)
    with closing(connected) as connection, closing(connection.cursor()) as cursor:
        return list(cursor.execute(sql).fetchall())

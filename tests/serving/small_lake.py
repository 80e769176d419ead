"""Small tables in a real catalog, without a broker, and a server of them, asked over HTTP."""

from __future__ import annotations

import http.client
import json
import pickle
import socket
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.partition_spec import partition_spec_of
from thermocline.errors import ConfigInvalid
from thermocline.iceberg import catalog as catalogs
from thermocline.settings import CatalogSettings, KafkaSettings, ServingSettings, Settings, TableSettings

START_SECONDS_MAX = 60.0


def lake_settings(folder: Path, *names: str) -> Settings:
    """A configuration with these tables, whose broker is down; one API worker, at a port that is free."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    return Settings(
        kafka=KafkaSettings(bootstrap_servers="127.0.0.1:9"),
        catalog=CatalogSettings(
            name="lake", type="sql", uri=f"sqlite:///{folder}/c.db", warehouse=str(folder / "w")
        ),
        serving=ServingSettings(state_dir=folder / "state", port=port, workers=1),
        tables={name: table_settings(name) for name in names},
    )


def table_settings(name: str) -> TableSettings:
    """One table's."""
    return TableSettings(
        identifier=f"app.{name}",
        topics=(name,),
        key=("id",),
        entity=("id",),
        columns={"id": "int", "note": "string"},
    )


def create_table(settings: Settings, name: str) -> None:
    """Creates it, with one row."""
    definition = settings.tables[name].definition(name)
    catalog = catalogs.open_catalog(settings.catalog, may_create=True)
    catalog.create_namespace_if_not_exists("app")
    table = catalog.create_table(
        f"app.{name}",
        definition.iceberg_schema(),
        partition_spec=partition_spec_of(definition),
        properties={catalogs.DEFINITION_PROPERTY: definition.to_json()},
    )
    summary = {
        catalogs.SUMMARY_SEAM: json.dumps({name: {"0": 0}}, separators=(",", ":")),
        catalogs.SUMMARY_EPOCH: "1",
        catalogs.SUMMARY_BATCH: "batch",
        catalogs.SUMMARY_CLUSTER: "cluster",
        catalogs.SUMMARY_TOPIC_IDS: "{}",
        catalogs.SUMMARY_DEFINITION_VERSION: "1",
        catalogs.SUMMARY_WATERMARK: "-1",
    }
    row = pa.Table.from_pylist([{"id": 1}], schema=definition.table_schema)
    table.append(row, snapshot_properties=summary)


def get(settings: Settings, path: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", settings.serving.port, timeout=5)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    except (OSError, http.client.HTTPException):
        return 0, None
    finally:
        connection.close()


def until(is_so: Any) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.05)


def read_pickled(path: Path) -> Settings:
    """The configuration that a file has now. Raises `ConfigInvalid` where it has none."""
    content = path.read_bytes()
    if not content:
        raise ConfigInvalid(of=str(path), problems=("it is empty",))
    settings: Settings = pickle.loads(content)
    return settings

"""Query engines of others, which load live tables from a server's catalog."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.behaviour import duckdb_reader
from tests.environments import python_with
from thermocline.iceberg.catalog_properties import duckdb_properties, java_properties
from thermocline.settings import CatalogSettings

CATALOG = "live"


class EngineFailed(Exception):
    """What an engine said instead of an answer."""


class QueryEngine(Protocol):
    """Asks in SQL; the catalog is called `CATALOG`."""

    name: str

    def ask(self, sql: str) -> list[dict[str, Any]]:
        """The rows of a query. Raises `EngineFailed`."""

    def run(self, sql: str) -> None:
        """A statement that changes something. Raises `EngineFailed`."""

    def committed(self, table: str, snapshot_id: int) -> str:
        """How a query names a table as last committed, in the snapshot of this id."""


class DuckDB:
    """Version 1.5.5, the newest with an Iceberg extension, as a process with one connection."""

    name = "DuckDB"

    def __init__(
        self, folder: Path, url: str, key: str | None = None, store: CatalogSettings | None = None
    ) -> None:
        """``store`` are the settings of a catalog whose tables are in S3; none for local files."""
        self._answer = folder / "duckdb-answer.parquet"
        self._process = subprocess.Popen(
            [str(python_with("duckdb-client.txt")), duckdb_reader.__file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        admitted = "AUTHORIZATION_TYPE 'none'" if key is None else f"TOKEN '{key}'"
        try:
            if store is not None:
                words = duckdb_properties(store).values
                said = ", ".join(f"{name} '{value}'" for name, value in words.items())
                self.run(f"CREATE SECRET store (TYPE s3, {said})")
            self.run(f"ATTACH '' AS {CATALOG} (TYPE iceberg, ENDPOINT '{url}', {admitted})")
        except EngineFailed:
            self.stop()
            raise

    def ask(self, sql: str) -> list[dict[str, Any]]:
        """By way of a Parquet file, which keeps every type."""
        self.run(f"COPY ({sql}) TO '{self._answer}' (FORMAT parquet)")
        return rows_of(pq.read_table(self._answer))

    def run(self, sql: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{json.dumps(sql)}\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise EngineFailed(answer["error"])

    def committed(self, table: str, snapshot_id: int) -> str:
        return f"{table} AT (VERSION => {snapshot_id})"  # it can't name a tag

    def stop(self) -> None:
        self._process.communicate()


class Spark:
    """The Spark that ingest has, with the Iceberg library that it has."""

    name = "Spark"

    def __init__(
        self,
        session: SparkSession,
        url: str,
        key: str | None = None,
        store: CatalogSettings | None = None,
    ) -> None:
        """``store`` are the settings of a catalog whose tables are in S3; none for local files."""
        self._session = session
        catalog = f"spark.sql.catalog.{CATALOG}"
        session.conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
        admitted = {} if key is None else {"token": key}
        words = {} if store is None else java_properties(store).values
        files = {name: value for name, value in words.items() if name.startswith(("s3.", "client.", "io-"))}
        ours = {"type": "rest", "uri": url, "cache-enabled": "false", **admitted}
        for name, value in (files | ours).items():
            session.conf.set(f"{catalog}.{name}", value)
        session.conf.set("spark.sql.shuffle.partitions", "2")

    def ask(self, sql: str) -> list[dict[str, Any]]:
        try:
            return rows_of(self._session.sql(sql).toArrow())
        except (PySparkException, Py4JJavaError) as error:
            raise EngineFailed(str(error)) from error

    def run(self, sql: str) -> None:
        self.ask(sql)

    def committed(self, table: str, snapshot_id: int) -> str:
        return f"{table} VERSION AS OF 'committed'"


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.to_pylist(maps_as_pydicts="strict")
    return found

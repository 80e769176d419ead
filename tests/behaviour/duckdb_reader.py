"""Answers SQL statements as a DuckDB of another version than ours; its Python runs this file as a program.

A line of JSON with a statement comes in; one goes out with the rows, values other than JSON's as text, or
with the error.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import duckdb

EXTENSIONS = ("httpfs", "avro", "iceberg")  # the last one needs the others


def connected() -> duckdb.DuckDBPyConnection:
    """In memory, with the extensions as their packages bring them: nothing is fetched."""
    connection = duckdb.connect(config={"autoinstall_known_extensions": False})
    for name in EXTENSIONS:
        package = find_spec(f"duckdb_extension_{name}")
        assert package is not None
        assert package.origin is not None
        (path,) = Path(package.origin).parent.glob(f"extensions/*/{name}.duckdb_extension")
        connection.execute(f"LOAD '{path}'")
    return connection


def answer(connection: duckdb.DuckDBPyConnection, sql: str) -> dict[str, Any]:
    try:
        return {"rows": connection.execute(sql).fetchall()}
    except duckdb.Error as error:
        return {"error": str(error)}


if __name__ == "__main__":
    to_duckdb = connected()
    for line in sys.stdin:
        print(json.dumps(answer(to_duckdb, json.loads(line)), default=str), flush=True)

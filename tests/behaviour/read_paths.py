"""The ways into a table, each a function from a stack to the rows of the cases by user and attribute."""

from __future__ import annotations

import io
from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog.rest import RestCatalog

from tests.behaviour.cases import CASES
from tests.behaviour.topic import APP
from thermocline.cli.server_answers import Client
from thermocline.dev.stack import NO_CERTIFICATES, TABLE, Stack
from thermocline.serving.read import private

Rows = dict[str, dict[str, str]]
FEW = CASES[:3]
"""What `SLOW` read paths, each of whose lookups starts from nothing, are asked for."""
SLOW = ("lookup without a server", "lookup in Trino")


def by_entity(stack: Stack, read_after: str) -> Rows:
    with Client(stack.url) as client:

        def rows_of(user: str) -> Any:
            return client.lookup(TABLE, {"app_id": str(APP), "user_id": user}, read_after)["rows"]

        return {case.name: _attributes(rows_of(case.name)) for case in CASES}


def by_row(stack: Stack, read_after: str) -> Rows:
    rows: Rows = {case.name: {} for case in CASES}
    headers = {"Thermocline-Read-After": read_after}
    with httpx.Client(base_url=stack.url, headers=headers, verify=NO_CERTIFICATES) as client:
        for case in CASES:
            for attribute in sorted({*case.rows_first, *case.rows_second, "plan", "city"}):
                parameters = {"app_id": str(APP), "user_id": case.name, "key": attribute}
                answer = client.get(f"/v1/tables/{TABLE}/rows", params=parameters)
                if answer.status_code == 404:
                    assert answer.json()["code"] == "row-not-found"
                    continue
                (row,) = answer.raise_for_status().json()["rows"]
                rows[case.name][row["key"]] = row["value"]
    return rows


def by_batch(stack: Stack, read_after: str) -> Rows:
    entities = [{"app_id": APP, "user_id": case.name} for case in CASES]
    answer = httpx.post(
        f"{stack.url}/v1/tables/{TABLE}/rows:batch",
        json={"entities": entities},
        headers={"Thermocline-Read-After": read_after},
    )
    results = answer.raise_for_status().json()["results"]
    return {case.name: _attributes(result["rows"]) for case, result in zip(CASES, results, strict=True)}


def by_arrow_extract(stack: Stack, read_after: str) -> Rows:
    by_entity(stack, read_after)  # an extract is as of now; this waits until now includes the records
    return _extracted(stack, "arrow")


def by_parquet_extract(stack: Stack, read_after: str) -> Rows:
    by_entity(stack, read_after)
    return _extracted(stack, "parquet")


def by_extract_without_a_server(stack: Stack, read_after: str) -> Rows:
    del read_after  # its ends are fixed when it begins
    sink = io.BytesIO()
    private.extract(stack.settings, TABLE, None, "arrow", sink, None, lambda _: None)
    return _grouped(pa.ipc.open_stream(sink.getvalue()).read_all())


def by_lookup_without_a_server(stack: Stack, read_after: str) -> Rows:
    del read_after
    return {
        case.name: _attributes(
            private.lookup(stack.settings, TABLE, {"app_id": str(APP), "user_id": case.name})["rows"]
        )
        for case in FEW
    }


def by_live_catalog(stack: Stack, read_after: str) -> Rows:
    catalog = live_catalog(stack, **{"header.Thermocline-Read-After": read_after})
    table = catalog.load_table(f"app.{TABLE}")
    return _grouped(table.scan(selected_fields=("user_id", "key", "value")).to_arrow())


def live_catalog(stack: Stack, **more: str) -> RestCatalog:
    """An engine's, which reaches the store as it is set up to: the catalog gives no credentials."""
    store = {
        name: value for name, value in stack.settings.catalog.properties.items() if name.startswith("s3.")
    }
    return RestCatalog("live", uri=f"{stack.url}/iceberg", **store, **more)


READ_PATHS: dict[str, Callable[[Stack, str], Rows]] = {
    "lookup of an entity": by_entity,
    "lookup of a row": by_row,
    "lookup of a batch": by_batch,
    "extract as Arrow": by_arrow_extract,
    "extract as Parquet": by_parquet_extract,
    "extract without a server": by_extract_without_a_server,
    "lookup without a server": by_lookup_without_a_server,
    "live catalog": by_live_catalog,
}


def _extracted(stack: Stack, format_name: str) -> Rows:
    sink = io.BytesIO()
    with Client(stack.url) as client:
        client.extract(TABLE, None, format_name, sink, lambda _: None)
    if format_name == "parquet":
        return _grouped(pq.read_table(sink))
    return _grouped(pa.ipc.open_stream(sink.getvalue()).read_all())


def _grouped(table: pa.Table) -> Rows:
    return by_user(table.to_pylist())


def by_user(found: Iterable[dict[str, Any]]) -> Rows:
    """The attributes of each case's user; a row of another is a mistake."""
    rows: Rows = defaultdict(dict)
    for row in found:
        assert row["key"] not in rows[row["user_id"]], f"{row} twice"
        rows[row["user_id"]][row["key"]] = row["value"]
    assert rows.keys() <= {case.name for case in CASES}, "rows of nobody"
    return {case.name: rows.get(case.name, {}) for case in CASES}


def _attributes(rows: Iterable[dict[str, Any]]) -> dict[str, str]:
    return {row["key"]: row["value"] for row in rows}

"""What becomes of what a catalog raises."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.exceptions import ServerError, UnauthorizedError

from thermocline import __version__
from thermocline.errors import (
    CatalogUnreachable,
    ConfigInvalid,
    DefinitionNewer,
    DependencyMissing,
    TableRestricted,
)
from thermocline.iceberg.catalog import (
    DEFINITION_PROPERTY,
    RELEASE_PROPERTY,
    defined_by,
    definition_of,
    load_table,
    open_catalog,
)
from thermocline.rules.definition import LiveTable
from thermocline.settings import CatalogSettings

DEFINITION = LiveTable.build(
    name="t", identifier="app.t", topics=("t",), key=("id",), columns={"id": "int", "note": "string"}
)


class Away(InMemoryCatalog):
    """A catalog that raises what it is given."""

    error: Exception

    def load_table(self, identifier: object) -> None:  # type: ignore[override]
        raise self.error


@pytest.mark.parametrize(
    ("error", "detail"),
    [
        (ServerError("500 on line 1\nline 2"), "500 on line 1"),
        (UnauthorizedError("401"), "401"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_whatever_a_catalog_that_is_away_raises_is_named(error: Exception, detail: str) -> None:
    catalog = Away("away")
    catalog.error = error
    with pytest.raises(CatalogUnreachable) as away:
        load_table(catalog, "profiles", "app.profiles")
    assert away.value.detail == detail


@pytest.mark.parametrize(
    ("restrictions", "detail"),
    [
        (None, None),
        ({}, None),
        ({"required-column-projections": [], "required-row-filter": None}, None),
        ({"required-row-filter": {"type": "eq", "term": "id", "value": 1}}, "required-row-filter"),
        ({"required-column-projections": [{"field-id": 2, "action": "mask-null"}]}, "column-projections"),
        ({"something-newer": True}, "something-newer"),
        ([1], r"\[1\]"),
    ],
)
def test_a_table_of_which_the_catalog_hides_a_part_is_refused(
    tmp_path: Path, restrictions: object, detail: str | None
) -> None:
    """Method: what Iceberg's own catalog answers, with what the specification lets it add."""
    memory = InMemoryCatalog("m", warehouse=f"file://{tmp_path}")
    memory.create_namespace("app")
    made = memory.create_table("app.t", DEFINITION.iceberg_schema())
    answer: dict[str, object] = {
        "metadata-location": made.metadata_location,
        "metadata": json.loads(made.metadata.model_dump_json()),
        "config": {},
    }
    if restrictions is not None:
        answer["read-restrictions"] = restrictions

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            is_table = self.path.partition("?")[0].endswith("/tables/t")
            body = json.dumps(answer if is_table else {"defaults": {}, "overrides": {}}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            uri = f"http://127.0.0.1:{server.server_port}"
            catalog = open_catalog(CatalogSettings(type="rest", uri=uri))
            if detail is None:
                assert load_table(catalog, "ours", "app.t").metadata.table_uuid == made.metadata.table_uuid
                return
            with pytest.raises(TableRestricted, match=detail) as restricted:
                load_table(catalog, "ours", "app.t")
            assert (restricted.value.table, restricted.value.identifier) == ("ours", "app.t")
        finally:
            server.shutdown()
            thread.join()


def test_a_catalog_whose_package_is_missing_says_how_to_get_it() -> None:
    with pytest.raises(DependencyMissing) as missing:
        open_catalog(CatalogSettings(type="hive", uri="thrift://127.0.0.1:9", warehouse="s3://b/w"))
    assert "pyiceberg[hive]" in missing.value.next


def _carrying(properties: dict[str, str]) -> Any:
    return SimpleNamespace(properties=properties)


@pytest.mark.parametrize(
    ("changed", "release", "writer", "wanted", "detail"),
    [
        ({"folds_by": "x"}, "9.1.0", "release 9.1.0", "release 9.1.0 or later", "it has folds_by"),
        ({"folds_by": "x"}, None, "a newer release", f"a later one than {__version__}", "it has folds_by"),
        (
            {"folds_by": "x"},
            __version__,
            "a newer release",
            f"a later one than {__version__}",
            "it has folds_by",
        ),
        ({"format": "parquet"}, "9.1.0", "release 9.1.0", "release 9.1.0 or later", "parquet"),
    ],
)
def test_a_definition_of_a_newer_release_names_both_and_says_to_upgrade(
    changed: dict[str, str], release: str | None, writer: str, wanted: str, detail: str
) -> None:
    properties = {DEFINITION_PROPERTY: json.dumps(json.loads(DEFINITION.to_json()) | changed)}
    properties |= {RELEASE_PROPERTY: release} if release else {}
    with pytest.raises(DefinitionNewer) as newer:
        definition_of(_carrying(properties), "t")
    begin = f"the definition of table t was written by {writer}; this is release {__version__}: "
    assert newer.value.what.startswith(begin)
    assert detail in newer.value.what.removeprefix(begin)
    assert newer.value.next == f"upgrade Thermocline here to {wanted}, then: thermocline table show t"


@pytest.mark.parametrize("release", [None, "0.0.9", __version__])
def test_a_definition_that_is_only_wrong_is_not_taken_for_a_newer_releases(release: str | None) -> None:
    properties = {DEFINITION_PROPERTY: json.dumps(json.loads(DEFINITION.to_json()) | {"format": "parquet"})}
    properties |= {RELEASE_PROPERTY: release} if release else {}
    with pytest.raises(ConfigInvalid):
        definition_of(_carrying(properties), "t")


def test_a_newer_release_whose_definition_has_nothing_new_is_read() -> None:
    carried = defined_by(DEFINITION)
    assert carried[RELEASE_PROPERTY] == __version__
    assert definition_of(_carrying(carried | {RELEASE_PROPERTY: "9.1.0"}), "t") == DEFINITION

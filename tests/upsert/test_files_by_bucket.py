"""The list of live files, on a real table: what is said where its manifests can't be read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from tests.partition_spec import partition_spec_of
from thermocline.errors import StorageFailed
from thermocline.iceberg.catalog import DEFINITION_PROPERTY, open_catalog
from thermocline.iceberg.files import local_path
from thermocline.rules.definition import LiveTable
from thermocline.settings import CatalogSettings
from thermocline.upsert.files_by_bucket import live_files


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with one file, in its only bucket."""
    settings = CatalogSettings(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse"))
    catalog = open_catalog(settings, may_create=True)
    catalog.create_namespace("app")
    definition = LiveTable.build(
        name="profiles",
        identifier="app.profiles",
        topics=["profiles"],
        key=["id"],
        columns={"id": "int"},
        buckets=1,
    )
    table = catalog.create_table(
        definition.identifier,
        definition.iceberg_schema(),
        partition_spec=partition_spec_of(definition),
        properties={DEFINITION_PROPERTY: definition.to_json()},
    )
    schema = pa.schema([pa.field("id", pa.int32(), nullable=False)])
    table.append(pa.table({"id": [7]}, schema=schema))
    return table


def test_a_store_that_fails_on_reading_manifests_is_waited_for(table: Table) -> None:
    """Goal: an owner that reads its table again goes on trying, as when the catalog is unavailable."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    by_bucket = live_files(table, snapshot.snapshot_id, "profiles")
    assert {bucket: len(files) for bucket, files in by_bucket.items()} == {0: 1}
    (manifest,) = snapshot.manifests(table.io)
    path = Path(local_path(manifest.manifest_path) or "")
    for break_it in (path.unlink, path.mkdir):
        break_it()
        with pytest.raises(StorageFailed, match="metadata: ") as away:
            live_files(table, snapshot.snapshot_id, "profiles")
        assert away.value.retryable

"""The list of live files, on a real table: what is said where its manifests can't be read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import IntegerType, NestedField

from ingest.files_by_bucket import live_files
from thermocline.errors import StorageFailed
from thermocline.iceberg.catalog import open_catalog
from thermocline.iceberg.files import local_path
from thermocline.settings import CatalogSettings


@pytest.fixture
def table(tmp_path: Path) -> Table:
    """A table with one file, whose only partition stands for a bucket."""
    settings = CatalogSettings(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse"))
    catalog = open_catalog(settings, may_create=True)
    catalog.create_namespace("app")
    schema = Schema(NestedField(1, "id", IntegerType()))
    by_id = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id_bucket"))
    table = catalog.create_table("app.profiles", schema, partition_spec=by_id)
    table.append(pa.table({"id": pa.array([7], pa.int32())}))
    return table


def test_a_store_that_fails_on_reading_manifests_is_waited_for(table: Table) -> None:
    """Goal: an owner that reads its table again goes on trying, as when the catalog is away."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    by_bucket = live_files(table, snapshot.snapshot_id, "profiles")
    assert {bucket: len(files) for bucket, files in by_bucket.items()} == {7: 1}
    (manifest,) = snapshot.manifests(table.io)
    path = Path(local_path(manifest.manifest_path) or "")
    for break_it in (path.unlink, path.mkdir):
        break_it()
        with pytest.raises(StorageFailed, match="metadata: ") as away:
            live_files(table, snapshot.snapshot_id, "profiles")
        assert away.value.retryable

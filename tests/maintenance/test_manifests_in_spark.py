"""Manifests in order of buckets, as Spark reads the table through them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from pyspark.sql import SparkSession

from tests.ingest.small_ingest import NAME, Ingest, settings_of
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import Landed
from thermocline.ingest.engine.spark import start_spark
from thermocline.settings import Settings

pytestmark = [pytest.mark.jvm, pytest.mark.full]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return settings_of(tmp_path_factory.mktemp("manifests"), "sqlite:///catalog.db")


@pytest.fixture(scope="module")
def spark(settings: Settings) -> Iterator[SparkSession]:
    session = start_spark(settings, "tests")
    yield session
    session.stop()


@pytest.mark.parametrize("format_version", [2, 3])
def test_spark_reads_the_same_rows_before_and_after_and_while_batches_go_on(
    settings: Settings, spark: SparkSession, format_version: int
) -> None:
    """Method: batches delete rows of files whose deletes other manifests list after each rewrite."""
    identifier = f"app.version_{format_version}"
    of_version = {"format_version": format_version, "identifier": identifier}
    table = settings.tables[NAME].model_copy(update=of_version)
    of_table = settings.model_copy(update={"tables": {NAME: table}})
    ingest = Ingest(of_table, spark.sparkContext._jvm, seed=format_version)

    def by_spark() -> dict[tuple[str, str], str]:
        rows = spark.sql(f"SELECT user_id, key, value FROM {settings.catalog.name}.{identifier}").collect()
        assert len({(row.user_id, row.key) for row in rows}) == len(rows)
        return {(row.user_id, row.key): row.value for row in rows}

    def commit(change: TableChange) -> None:
        assert isinstance(ingest.owned.committer.commit(*ingest.planned, change), Landed)
        ingest.refresh()
        spark.catalog.refreshTable(f"{settings.catalog.name}.{identifier}")
        assert by_spark() == ingest.expected

    for number in range(12):
        change, ingest.expected = ingest.batch()
        commit(change)
        if number % 4 == 3:
            change = TableChange.carrying_on(ingest.owned.state)
            commit(replace(change, kind="manifests", buckets_together={"data": 1, "deletes": 1}))
    ingest.owned.release()

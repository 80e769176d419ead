"""Row lineage as Spark reads it; moved rows look to PyIceberg, which knows nothing of it, like any others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.ingest.small_ingest import NAME, Ingest, settings_of
from tests.maintenance.kept import Kept, kept_up
from thermocline.iceberg.lineage import lineage
from thermocline.ingest.engine.spark import start_spark
from thermocline.settings import Settings

pytestmark = [pytest.mark.jvm, pytest.mark.full]

Lineage = tuple[int, int]


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Settings:
    return settings_of(tmp_path_factory.mktemp("lineage"), "sqlite:///catalog.db")


@pytest.fixture(scope="module")
def spark(settings: Settings) -> Iterator[SparkSession]:
    session = start_spark(settings, "tests")
    yield session
    session.stop()


@pytest.fixture(scope="module")
def kept(settings: Settings, spark: SparkSession) -> Iterator[Kept]:
    with kept_up(Ingest(settings, spark.sparkContext._jvm, seed=11)) as kept:
        yield kept


def _lineage(spark: SparkSession, settings: Settings) -> dict[int, Lineage]:
    """By offset, which tells one record from any other."""
    rows = spark.sql(
        "SELECT _kafka_offset AS place, _row_id AS id, _last_updated_sequence_number AS number "
        f"FROM {settings.catalog.name}.app.{NAME}"
    ).collect()
    assert len({row.id for row in rows}) == len(rows)
    return {row.place: (row.id, row.number) for row in rows}


def test_spark_finds_the_lineage_of_rows_as_it_was_before_they_moved(
    kept: Kept, spark: SparkSession, settings: Settings
) -> None:
    """Method: what Spark reads before each batch and each rewrite is what it reads after it, row for row."""
    known: dict[int, Lineage] = {}
    carried = 0
    for _ in range(20):
        offset = kept.ingest.owned.state.seam[NAME, 0]
        kept.batch()
        after = _lineage(spark, settings)
        carried += lineage(kept.ingest.owned.table)[-1].carried
        number = lineage(kept.ingest.owned.table)[-1].snapshot.sequence_number
        for place, found in after.items():
            assert found == known[place] if place < offset else found[1] == number
        rewrites = kept.upkeep.done.rewrites
        kept.turn()
        kept.clock.advance(31)
        if kept.upkeep.done.rewrites > rewrites:
            assert _lineage(spark, settings) == after
        known = after
    assert carried
    assert kept.upkeep.done.rewrites
    columns = spark.table(f"{settings.catalog.name}.app.{NAME}").select("user_id", "key", "value")
    assert {(row.user_id, row.key): row.value for row in columns.collect()} == kept.ingest.expected
    assert kept.ingest.rows() == kept.ingest.expected, "by PyIceberg"

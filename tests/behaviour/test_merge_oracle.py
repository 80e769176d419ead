"""Our probe and commit against Spark's own MERGE INTO, batch after batch."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from pyspark.sql import SparkSession

from tests.behaviour.live import KEYED, Live
from tests.behaviour.topic import APP
from tests.tier import quick_or_full
from thermocline.dev.oracle import RowKey
from thermocline.dev.stack import Stack
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.iceberg.catalog_properties import java_properties
from thermocline.iceberg.files import DataFile, plan_files
from thermocline.ingest.engine.engine import start_engine
from thermocline.ingest.owner.owner import Owner
from thermocline.process.clock import SystemClock

# What each table of ours says beside its columns; both are fed the same records.
TABLES = {"merged_v3": "", "merged_v2": "format_version = 2\nsuppress_unchanged = true"}
BATCHES = quick_or_full(2, 4)
RECORDS = 400
MERGE = """
MERGE INTO twin.app.twin t USING changes s
ON t.app_id = s.app_id AND t.user_id = s.user_id AND t.key = s.key
WHEN MATCHED AND s.is_deleted THEN DELETE
WHEN MATCHED THEN UPDATE SET value = s.value
WHEN NOT MATCHED AND NOT s.is_deleted
THEN INSERT (app_id, user_id, key, value) VALUES (s.app_id, s.user_id, s.key, s.value)
"""

Rows = dict[RowKey, str]


class Twin:
    """An Iceberg table that only Spark's MERGE INTO writes; its catalog is one of its own in the session."""

    def __init__(self, spark: SparkSession, live: Live) -> None:
        self._spark = spark
        catalog = "spark.sql.catalog.twin"
        for name, value in {
            **java_properties(live.settings.catalog).values,
            "cache-enabled": "false",
        }.items():
            spark.conf.set(f"{catalog}.{name}", value)
        spark.conf.set(catalog, "org.apache.iceberg.spark.SparkCatalog")
        spark.conf.set("spark.sql.shuffle.partitions", "2")  # of a few rows, not 200
        spark.sql("CREATE NAMESPACE twin.app")
        spark.sql(
            "CREATE TABLE twin.app.twin (app_id int, user_id string, key string, value string) USING iceberg "
            "PARTITIONED BY (bucket(2, user_id)) TBLPROPERTIES "
            "('format-version' = '3', 'write.merge.mode' = 'merge-on-read')"
        )

    def merge(self, changes: dict[RowKey, str | None]) -> None:
        rows = [(*key, value, value is None) for key, value in changes.items()]
        schema = "app_id int, user_id string, key string, value string, is_deleted boolean"
        self._spark.createDataFrame(rows, schema).createOrReplaceTempView("changes")
        self._spark.sql(MERGE)

    def rows(self) -> Rows:
        rows = self._spark.table("twin.app.twin").collect()
        by_key = {(row.app_id, row.user_id, row.key): row.value for row in rows}
        assert len(by_key) == len(rows)
        return by_key


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack("merge", engine="spark")


@pytest.fixture(scope="module")
def owners(stack: Stack) -> Iterator[list[tuple[Live, Owner]]]:
    with ExitStack() as at_end:
        owned = []
        engine = start_engine(stack.settings, "merge")
        at_end.callback(engine.stop)
        for name, more in TABLES.items():
            live = Live(stack, name, choices=f"{KEYED}\n{more}")
            owned.append((live, Owner.open(live.settings, name, SystemClock(), engine=engine)))
            at_end.callback(owned[-1][1].lease.release)
        yield owned


def test_tables_equal_the_twin_that_sql_merges_into(
    stack: Stack, owners: list[tuple[Live, Owner]], new_spark: Callable[[Stack], SparkSession]
) -> None:
    """Goal: probe, deletes and commit do what a MERGE of the folded changes does, in each format version.

    Method: random batches of inserts, updates, deletes and repeats over few keys go through Kafka into our
    tables, one of which suppresses what is there already; the last change of each key goes by MERGE INTO into
    the twin. After each batch all are equal.
    """
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    rng = random.Random(seed)
    twin = Twin(new_spark(stack), owners[0][0])
    said: Rows = {}
    for number in range(BATCHES):
        changes: dict[RowKey, str | None] = {}
        for _ in range(RECORDS):
            user = rng.randrange(30)
            key = (APP, f"u{user}", f"k{rng.randrange(10)}")
            draw = rng.random()
            # As they come: a new value, one that is there already, or none.
            value = (
                said.get(key, "first") if draw < 0.3 else f"v{number}-{rng.random()}" if draw < 0.75 else None
            )
            changes[key] = value
            if value is not None:
                said[key] = value
            for live, _ in owners:
                live.topic.send(key, value, user % 2)
        twin.merge(changes)
        expected = twin.rows()
        for live, owner in owners:
            live.topic.flush()
            owner.step()
            assert live.rows() == expected, live.name
            assert _files_carried_on(owner) == _files_of_the_snapshot(live), live.name
    plain, suppressing = (live.state().totals for live, _ in owners)
    assert suppressing["unchanged"] > plain["unchanged"] > 0
    assert suppressing["applied"] + suppressing["unchanged"] == plain["applied"] + plain["unchanged"]


def _files_carried_on(owner: Owner) -> set[DataFile]:
    """What the next batch would be planned on, which ingest never reads again while it runs."""
    return {file for files in owner.position.files.values() for file in files}


def _files_of_the_snapshot(live: Live) -> set[DataFile]:
    table = load_table(open_catalog(live.settings.catalog), live.name, f"app.{live.name}")
    return set(plan_files(table, live.newest_id()))

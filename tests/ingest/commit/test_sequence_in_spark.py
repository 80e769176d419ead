"""Deletes that a table remembers, as Spark sees them: not at all."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.ingest.small_ingest import CONFIG, NAME, Ingest
from tests.upsert.test_sequence import Event, records_of
from thermocline.ingest.batch.accounting import Accounting
from thermocline.ingest.commit.change import TableChange
from thermocline.ingest.commit.commit import landed
from thermocline.ingest.engine.spark import start_spark
from thermocline.rules.seam import Seam
from thermocline.settings import Settings, load_settings

pytestmark = [pytest.mark.jvm, pytest.mark.full]

SECTION = """
[tables.profiles]
identifier = "app.profiles{version}"
topics = ["profiles"]
key = ["id"]
buckets = 1
format_version = {version}
delete_when = {{ path = "op", values = ["D"] }}
sequence_by = ["version"]

[tables.profiles.columns]
id = "long"
version = "long"
text = "string"
"""


def settings_of(folder: Path, version: int) -> Settings:
    config = folder / f"version-{version}.toml"
    base = CONFIG.format(uri="sqlite:///catalog.db").partition("[tables.")[0]
    config.write_text(base + SECTION.format(version=version))
    return load_settings(config)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sequence")


@pytest.fixture(scope="module")
def spark(folder: Path) -> Iterator[SparkSession]:
    session = start_spark(settings_of(folder, 3), "tests")
    yield session
    session.stop()


@pytest.mark.parametrize("version", [2, 3])
def test_spark_shows_no_delete_that_is_remembered(folder: Path, spark: SparkSession, version: int) -> None:
    """Method: random events in any order, batch by batch; Spark reads what a dict holds."""
    settings = settings_of(folder, version)
    ingest, draw = Ingest(settings, spark.sparkContext._jvm, seed=3), random.Random(3)
    state: dict[int, tuple[int, str | None]] = {}
    for _ in range(8):
        first = ingest.owned.state.seam[NAME, 0]
        events: list[Event] = [
            (draw.randrange(9), draw.randrange(50), draw.choice([None, "one", "two"])) for _ in range(10)
        ]
        for key, sequence, text in events:
            if sequence >= state.get(key, (-1, None))[0]:
                state[key] = (sequence, text)
        done = ingest.run_tasks(records_of(ingest.definition, events, first))
        counts = {"applied": done[0].applied, "superseded": done[0].superseded}
        end = first + len(events)
        change = TableChange(
            seam=Seam({(NAME, 0): end}),
            cluster_id="cluster",
            topic_ids={NAME: "topic"},
            watermark_ms=end,
            drained_ms=end,
            accounting=Accounting(read=len(events), **counts),
            files=done,
        )
        landed(ingest.owned.committer.commit(*ingest.planned, change))
        ingest.refresh()
        rows = spark.sql(f"SELECT id, text FROM {settings.catalog.name}.app.profiles{version}").collect()
        expected = {key: text for key, (_, text) in state.items() if text is not None}
        assert sorted((row.id, row.text) for row in rows) == sorted(expected.items())
    assert any(text is None for _, text in state.values()), "nothing was deleted"
    ingest.owned.release()

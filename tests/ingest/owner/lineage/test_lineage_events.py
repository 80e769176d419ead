"""Lineage events, written out by hand, and read by OpenLineage's own client."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from tests.environments import ROOT, python_with
from thermocline import __version__
from thermocline.ingest.owner.lineage.events import Event, Events
from thermocline.ingest.owner.lineage.happened import Committed, Happened, Volume
from thermocline.kafka.facts import OffsetRange
from thermocline.rules.seam import Seam
from thermocline.settings import load_settings

CONFIG = """
[kafka]
bootstrap_servers = "broker:9092"
[catalog]
type = "rest"
uri = "http://me:hunter22@catalog:8181/v1?token=hunter22"
warehouse = "s3://lake/"
[lineage]
url = "http://collector:5000/api/v1/lineage"
namespace = "prod"
[tables.orders]
identifier = "app.orders"
topics = ["orders", "orders-old"]
key = ["id"]
[tables.orders.columns]
id = "long"
price = "decimal(10,2)"
address = "struct<city: string, zip: int>"
tags = "list<string>"
counts = "map<string, long>"
"""
RUN = "018bcfe5-6800-7abc-8def-0123456789ab"
NOW_MS = 1_700_000_000_123
NOW = "2023-11-14T22:13:20.123Z"
RANGES = (OffsetRange("orders", 0, 10, 14), OffsetRange("orders", 2, 7, 9))
BATCH_ID = "6f1c53b5-9c9a-4f6a-8f56-3b7f3a9d2f10"
RECORDS = {"read": 6, "applied": 3, "superseded": 2, "unchanged": 0, "quarantined": 1, "skipped": 0}
COMMITTED = Committed(
    snapshot_id=4711,
    batch_id=BATCH_ID,
    seam=Seam.of({"orders": {0: 14, 2: 9}, "orders-old": {0: 3}}),
    records=RECORDS,
    written=Volume(rows=5, bytes=2_048, files=2),
    carried_rows=2,
    removed=Volume(rows=2, bytes=900, files=1),
)
STARTED = Happened("ingest", "START", RUN, NOW_MS, RANGES)
COMPLETED = replace(STARTED, type="COMPLETE", committed=COMMITTED)
FAILED = replace(STARTED, type="FAIL", error="engine-failed: no worker is left")
REWRITTEN = Happened(
    "rewrite", "COMPLETE", RUN, NOW_MS, committed=replace(COMMITTED, records=dict.fromkeys(RECORDS, 0))
)

PRODUCER = f"pkg:generic/thermocline-lake@{__version__}"
FACETS = "https://openlineage.io/spec/facets"


def facet(version: str, name: str, /, **content: Any) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": f"{FACETS}/{version}/{name}.json#/$defs/{name}", **content}


def own(file: str, /, **content: Any) -> dict[str, Any]:
    schema = f"pkg:generic/thermocline-lake#docs/lineage/{file}"
    return {"_producer": PRODUCER, "_schemaURL": schema, **content}


TABLE = {"namespace": "s3://lake", "name": "app/orders"}
TABLE_FACETS = {
    "schema": facet(
        "1-2-0",
        "SchemaDatasetFacet",
        fields=[
            {"name": "id", "type": "long"},
            {"name": "price", "type": "decimal(10, 2)"},
            {
                "name": "address",
                "type": "struct",
                "fields": [{"name": "city", "type": "string"}, {"name": "zip", "type": "int"}],
            },
            {"name": "tags", "type": "array", "fields": [{"name": "_element", "type": "string"}]},
            {
                "name": "counts",
                "type": "map",
                "fields": [{"name": "key", "type": "string"}, {"name": "value", "type": "long"}],
            },
            {"name": "_kafka_topic", "type": "string"},
            {"name": "_kafka_partition", "type": "int"},
            {"name": "_kafka_offset", "type": "long"},
            {"name": "_kafka_timestamp", "type": "timestamptz"},
        ],
    ),
    "dataSource": facet("1-0-1", "DatasourceDatasetFacet", name="s3://lake", uri="s3://lake"),
    "storage": facet("1-0-1", "StorageDatasetFacet", storageLayer="iceberg", fileFormat="parquet"),
    "catalog": facet(
        "1-1-0",
        "CatalogDatasetFacet",
        framework="iceberg",
        type="rest",
        name="lake",
        source="thermocline",
        metadataUri="http://catalog:8181/v1",
        warehouseUri="s3://lake/",
    ),
    "symlinks": facet(
        "1-0-1",
        "SymlinksDatasetFacet",
        identifiers=[{"namespace": "http://catalog:8181/v1", "name": "app.orders", "type": "TABLE"}],
    ),
}
ENGINE = facet(
    "1-1-1",
    "ProcessingEngineRunFacet",
    name="Thermocline",
    version=__version__,
    openlineageAdapterVersion=__version__,
)


def job(name: str, kind: str) -> dict[str, Any]:
    job_type = facet(
        "2-0-4", "JobTypeJobFacet", processingType="BATCH", integration="THERMOCLINE", jobType=kind
    )
    return {"namespace": "prod", "name": name, "facets": {"jobType": job_type}}


def topic(name: str, *partitions: dict[str, int]) -> dict[str, Any]:
    source = facet("1-0-1", "DatasourceDatasetFacet", name="kafka://broker:9092", uri="kafka://broker:9092")
    offsets = own("ThermoclineOffsetsInputDatasetFacet-1.json", partitions=list(partitions))
    return {
        "namespace": "kafka://broker:9092",
        "name": name,
        "facets": {"dataSource": source},
        "inputFacets": {"thermocline_offsets": offsets},
    }


TOPICS = [
    topic("orders", {"partition": 0, "first": 10, "end": 14}, {"partition": 2, "first": 7, "end": 9}),
    topic("orders-old"),
]
EVENT = {
    "eventTime": NOW,
    "producer": PRODUCER,
    "schemaURL": "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent",
    "run": {"runId": RUN, "facets": {"processing_engine": ENGINE}},
}


def written(records: dict[str, int]) -> dict[str, Any]:
    statistics = facet("1-0-2", "OutputStatisticsOutputDatasetFacet", rowCount=5, size=2_048, fileCount=2)
    commit = own(
        "ThermoclineCommitOutputDatasetFacet-1.json",
        batchId=BATCH_ID,
        seam={"orders": {"0": 14, "2": 9}, "orders-old": {"0": 3}},
        records=records,
        carriedRows=2,
        removedFiles=1,
    )
    version = facet("1-0-1", "DatasetVersionDatasetFacet", datasetVersion="4711")
    return {
        **TABLE,
        "facets": {**TABLE_FACETS, "version": version},
        "outputFacets": {"outputStatistics": statistics, "thermocline_commit": commit},
    }


@pytest.fixture
def events(tmp_path: Path) -> Events:
    file = tmp_path / "thermocline.toml"
    file.write_text(CONFIG)
    settings = load_settings(file)
    return Events(settings, settings.table("orders").definition("orders"), "s3://lake/app/orders")


def test_a_batch_that_begins_names_its_offsets_and_both_sides(events: Events) -> None:
    assert events.of(STARTED) == {
        **EVENT,
        "eventType": "START",
        "job": job("orders.ingest", "INGEST"),
        "inputs": TOPICS,
        "outputs": [{**TABLE, "facets": TABLE_FACETS}],
    }


def test_a_batch_that_landed_names_its_snapshot_and_what_was_written(events: Events) -> None:
    assert events.of(COMPLETED) == {
        **EVENT,
        "eventType": "COMPLETE",
        "job": job("orders.ingest", "INGEST"),
        "inputs": TOPICS,
        "outputs": [written(RECORDS)],
    }


def test_topics_that_came_and_left_since_are_inputs_as_of_each_batch(events: Events) -> None:
    topics = ("orders", "orders-found")
    found = replace(STARTED, ranges=(*RANGES, OffsetRange("orders-found", 0, 0, 3)), topics=topics)
    first, last = events.of(found)["inputs"]
    assert first == TOPICS[0]
    assert last["name"] == "orders-found"
    read = last["inputFacets"]["thermocline_offsets"]["partitions"]
    assert read == [{"partition": 0, "first": 0, "end": 3}]


def test_a_batch_that_failed_names_the_error_and_no_snapshot(events: Events) -> None:
    error = facet(
        "1-0-1",
        "ErrorMessageRunFacet",
        message="engine-failed: no worker is left",
        programmingLanguage="PYTHON",
    )
    assert events.of(FAILED) == {
        **EVENT,
        "eventType": "FAIL",
        "run": {"runId": RUN, "facets": {"processing_engine": ENGINE, "errorMessage": error}},
        "job": job("orders.ingest", "INGEST"),
        "inputs": TOPICS,
        "outputs": [{**TABLE, "facets": TABLE_FACETS}],
    }


def test_a_rewrite_reads_and_writes_the_table(events: Events) -> None:
    read = facet("1-0-0", "InputStatisticsInputDatasetFacet", rowCount=2, size=900, fileCount=1)
    assert events.of(REWRITTEN) == {
        **EVENT,
        "eventType": "COMPLETE",
        "job": job("orders.rewrite", "REWRITE"),
        "inputs": [{**TABLE, "facets": TABLE_FACETS, "inputFacets": {"inputStatistics": read}}],
        "outputs": [
            written(
                {"read": 0, "applied": 0, "superseded": 0, "unchanged": 0, "quarantined": 0, "skipped": 0}
            )
        ],
    }


def test_no_event_has_a_secret(events: Events) -> None:
    assert "hunter22" not in json.dumps([events.of(one) for one in (STARTED, COMPLETED, FAILED, REWRITTEN)])


def test_the_client_of_openlineage_reads_the_events_and_says_the_same(events: Events) -> None:
    """Goal: nothing is missing, misspelled, or of another version than the schema that it names."""
    sent = [events.of(one) for one in (STARTED, COMPLETED, FAILED, REWRITTEN)]
    done = subprocess.run(
        [str(python_with("openlineage.txt")), str(Path(__file__).with_name("openlineage_reader.py"))],
        input=json.dumps(sent),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert [without_empty(one) for one in json.loads(done.stdout)] == [without_empty(one) for one in sent]


def test_our_own_facets_are_what_their_schemas_say(events: Events) -> None:
    event = events.of(COMPLETED)
    (output,), inputs = event["outputs"], event["inputs"]
    found = [output["outputFacets"]["thermocline_commit"]]
    found += [one["inputFacets"]["thermocline_offsets"] for one in inputs]
    assert len(found) == 3
    for one in found:
        schema_of(one).validate(one)
        for name in one:
            less = {key: value for key, value in one.items() if key != name}
            assert not schema_of(one).is_valid(less), f"{name} may be missing"


def schema_of(found: Event) -> jsonschema_rs.Draft202012Validator:
    """The schema that a facet of ours names, in this repository."""
    package, _, path = found["_schemaURL"].partition("#")
    assert package == "pkg:generic/thermocline-lake"
    schema = json.loads((ROOT / path).read_text())
    return jsonschema_rs.Draft202012Validator(schema, validate_formats=True)


def without_empty(part: Any) -> Any:
    """Without the empty lists and objects that the client adds where nothing is said, and those of ours."""
    if isinstance(part, dict):
        less = {name: without_empty(one) for name, one in part.items()}
        return {name: one for name, one in less.items() if one not in ({}, [])}
    return (
        [without_empty(one) for one in part]
        if isinstance(part, Sequence) and not isinstance(part, str)
        else part
    )

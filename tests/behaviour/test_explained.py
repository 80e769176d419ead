"""Explained lookups of a running server: each place that they name has the row that they say."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import httpx
import pyarrow.parquet as pq
import pytest

from tests.behaviour.topic import APP, Topic
from thermocline.cli.server_answers import Client
from thermocline.dev.stack import TABLE, TOPIC, Stack
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.ingest.owner.owner import Owner
from thermocline.serving.read import private

ENTITY = {"app_id": str(APP), "user_id": "ada"}
PARTITION = 1


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    stack = new_stack("explained", partitions=3, buckets=4)
    stack.wait_until_ready(stack.serve())
    return stack


def told(answer: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """By key: value, offset of the hot record, offset of the cold row's record, value that was replaced."""
    return {
        (one["row"] or one["replaced"])["key"]: (
            one["row"] and one["row"]["value"],
            one["hot"] and one["hot"]["offset"],
            one["cold"] and one["cold"]["record"]["offset"],
            one["replaced"] and one["replaced"]["value"],
        )
        for one in answer["rows"]
    }


def check_places(stack: Stack, answer: dict[str, Any]) -> None:
    """Each file is the table's, and has the row that the answer says, at its place."""
    table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")
    snapshot = table.current_snapshot()
    assert snapshot is not None
    files = set(table.inspect.files()["file_path"].to_pylist())
    for one in answer["rows"]:
        cold = one["cold"]
        if cold is None:
            continue
        assert cold["file"] in files
        assert 0 < cold["commit"] <= (snapshot.sequence_number or 0)
        with table.io.new_input(cold["file"]).open() as source:
            parquet = pq.ParquetFile(source)
            before = sum(parquet.metadata.row_group(at).num_rows for at in range(cold["row_group"]))
            rows = parquet.read_row_group(cold["row_group"], ["key", "value", "_kafka_offset"]).to_pylist()
        row = rows[cold["position"] - before]
        cold_row = one["replaced"] or one["row"]
        assert (row["key"], row["value"]) == (cold_row["key"], cold_row["value"])
        assert row["_kafka_offset"] == cold["record"]["offset"]


def test_each_row_is_where_the_answer_says_with_a_server_and_without(
    stack: Stack, new_owner: Callable[[Stack], Owner]
) -> None:
    """Method: all records go to one partition, so that their offsets are known here."""
    topic, owner = Topic(stack.settings.kafka, TOPIC), new_owner(stack)

    def send(key: str, value: str | None) -> None:
        topic.send((APP, "ada", key), value, PARTITION)

    for key in ("kept", "updated", "deleted"):  # offsets 0 to 2
        send(key, "cold")
    topic.flush()
    owner.catch_up(threading.Event())
    send("updated", "hot")  # 3
    send("deleted", None)  # 4
    send("added", "hot")  # 5
    read_after = topic.flush()
    expected = {
        "added": ("hot", 5, None, None),
        "deleted": (None, None, 2, "cold"),
        "kept": ("cold", None, 0, None),
        "updated": ("hot", 3, 1, "cold"),
    }

    with Client(stack.url) as client:
        client.lookup(TABLE, ENTITY, read_after)

        def is_committed() -> bool:
            rows = client.explained(TABLE, ENTITY)["rows"]
            return all(one["cold"] for one in rows if one["row"] is None or one["row"]["key"] != "added")

        stack.wait_for(is_committed, "the server has the snapshot")
        answers = (
            client.explained(TABLE, ENTITY, read_after),
            private.explained(stack.settings, TABLE, ENTITY),
        )
        for answer in answers:
            assert told(answer) == expected
            check_places(stack, answer)
        page = httpx.get(f"{stack.url}/tables/{TABLE}/lookup", params=ENTITY)
        assert page.status_code == 200
        assert f"record {TOPIC}/{PARTITION}@3" in page.text

        owner.catch_up(threading.Event())
        stack.wait_for(
            lambda: not any(one["hot"] for one in client.explained(TABLE, ENTITY)["rows"]),
            "it has the next one",
        )
        answer = client.explained(TABLE, ENTITY)
    assert told(answer) == {
        "added": ("hot", None, 5, None),
        "kept": ("cold", None, 0, None),
        "updated": ("hot", None, 3, None),
    }
    check_places(stack, answer)
    commits = {one["row"]["key"]: one["cold"]["commit"] for one in answer["rows"]}
    assert commits["kept"] < commits["updated"] == commits["added"]

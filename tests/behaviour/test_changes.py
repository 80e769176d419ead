"""Changes since a read point on real Kafka and Iceberg: through commits, merges and a trimmed log."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.behaviour.topic import APP, Topic
from thermocline.client import Client, Problem
from thermocline.dev.stack import TABLE, TOPIC, Stack
from thermocline.iceberg.catalog import open_table
from thermocline.iceberg.lineage import lineage
from thermocline.ingest.owner.owner import Owner

Rows = dict[tuple[str, str], dict[str, Any]]
KEYS = ("plan", "city", "zip")


def _keyed(rows: list[dict[str, Any]]) -> Rows:
    keyed = {(row["user_id"], row["key"]): row for row in rows}
    assert len(keyed) == len(rows)
    return keyed


def _applied(before: Rows, changes: Rows) -> Rows:
    after = dict(before)
    for key, row in changes.items():
        if row.pop("_change_type") == "upsert":
            after[key] = row
        else:
            after.pop(key, None)
    return after


@pytest.mark.full
def test_changes_across_commits_and_merges_make_the_later_extract(
    new_stack: Callable[..., Stack], new_owner: Callable[[Stack], Owner], tmp_path: Path
) -> None:
    """Goal: a copy that takes changes, by server, client and command, is the table; a cut log refuses.

    Method: rows are written, changed and deleted by several commits, which merge files, then changed once
    more in Kafka alone; the log is trimmed at the end.
    """
    stack = new_stack("changes", partitions=2, buckets=2)
    topic = Topic(stack.settings.kafka, TOPIC)
    owner = new_owner(stack)

    def send(turn: int, users: Iterable[int]) -> None:
        for user in users:
            for place, key in enumerate(KEYS):
                value = None if (user + place + turn) % 4 == 0 else f"{turn}"
                topic.send((APP, f"u{user}", key), value, user % 2)
        topic.flush()

    def commit() -> None:
        while owner.step():
            pass

    send(1, range(40))
    commit()
    server = stack.serve()
    stack.wait_until_ready(server)
    send(2, range(10))
    with Client(stack.url) as client:
        with client.extract(TABLE, read_after=topic.flush()) as extract:
            before, point = _keyed(extract.to_arrow().to_pylist()), extract.read_point
        for turn in range(3, 10):
            send(turn, range(8 * turn, 8 * turn + 16))
            commit()
        assert any(link.carried for link in lineage(open_table(stack.settings, TABLE)))
        send(10, range(12))
        after = topic.flush()
        whole = _keyed(client.extract(TABLE, read_after=after).to_arrow().to_pylist())
        with client.extract(TABLE, since=point, read_after=after) as extract:
            changes = _keyed(extract.to_arrow().to_pylist())
        assert {row["_change_type"] for row in changes.values()} == {"upsert", "delete"}
        assert _applied(before, changes) == whole
        assert client.extract(TABLE, since=extract.read_point).to_arrow().num_rows <= 12 * len(KEYS)
        for place, options in enumerate(([], ["--url", stack.url])):
            path = tmp_path / f"{place}.jsonl"
            stack.run(
                f"since-{place}", "extract", TABLE, "--since", point.to_json(), "-o", str(path), *options
            )
            lines = [json.loads(line) for line in path.read_text().splitlines()]
            types = {key: row["_change_type"] for key, row in _keyed(lines).items()}
            assert types.keys() == changes.keys()
            assert {key for key, type_ in types.items() if type_ == "upsert"} == changes.keys() & whole.keys()
        trimmed = [TopicPartition(TOPIC, 0, point.seam[TOPIC][0] + 1)]
        admin = AdminClient(stack.settings.kafka.client_config())
        for done in admin.delete_records(trimmed).values():
            done.result(30)
        with pytest.raises(Problem, match="since that read point any more") as refused:
            client.extract(TABLE, since=point)
        assert refused.value.code == "read-point-gone"

"""Parts of a table on real Kafka and Iceberg: what a condition leaves, in every format; what a fault cuts."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.behaviour.topic import APP, Topic
from tests.failpoints.arming import arm, disarm
from tests.failpoints.firing import environment
from thermocline.cli.server_answers import Client
from thermocline.dev.stack import TABLE, TOPIC, Command, Stack
from thermocline.ingest.owner.owner import Owner
from thermocline.rules.read_point import ReadPoint
from thermocline.serving.read import private
from thermocline.serving.read.encode import FORMATS
from thermocline.serving.read.wanted import Wanted

USERS = [f"u{number}" for number in range(12)]
KEYS = ("plan", "city", "zip")
Rows = list[dict[str, Any]]
READ: dict[str, Callable[[bytes], Rows]] = {
    "arrow": lambda content: pa.ipc.open_stream(content).read_all().to_pylist(),
    "parquet": lambda content: pq.read_table(io.BytesIO(content)).to_pylist(),
    "csv": lambda content: list(csv.DictReader(io.StringIO(content.decode(), newline=""))),
    "jsonl": lambda content: [json.loads(line) for line in content.splitlines()],
}
CONDITIONS: dict[str, Callable[[dict[str, Any]], bool]] = {
    "value = 'cold'": lambda row: row["value"] == "cold",
    "value = 'hot'": lambda row: row["value"] == "hot",
    f"app_id = {APP} AND user_id = 'u3'": lambda row: row["user_id"] == "u3",
    "user_id IN ('u1', 'u5') AND NOT value LIKE 'h%'": lambda row: (
        row["user_id"] in ("u1", "u5") and row["value"] != "hot"
    ),
    "key > 'plan' OR value = 'hot'": lambda row: row["key"] > "plan" or row["value"] == "hot",
    "NOT key BETWEEN 'a' AND 'n' AND updated_at >= '2000-01-01T00:00:00Z'": lambda row: row["key"] > "n",
}


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack], new_owner: Callable[[Stack], Owner]) -> Stack:
    """Rows of which some are committed, some hot, some changed or deleted beyond the seam."""
    stack = new_stack("extracts", partitions=2, buckets=4)
    topic = Topic(stack.settings.kafka, TOPIC)
    for place, user in enumerate(USERS):
        for key in KEYS:
            topic.send((APP, user, key), "cold", place % 2)
    topic.flush()
    owner = new_owner(stack)
    while owner.step():
        pass
    for place, user in enumerate(USERS):
        if place % 3:
            topic.send((APP, user, "city"), "hot" if place % 3 == 1 else None, place % 2)
        topic.send((APP, user, "new"), "hot", place % 2)
    topic.flush()
    return stack


@pytest.fixture(scope="module")
def server(stack: Stack) -> Iterator[Command]:
    path = stack.folder / "failpoints"
    server = stack.command("serve", "serve", environment=environment(file=path))
    stack.wait_until_ready(server)
    yield server
    disarm(path)


def _sorted(rows: Rows) -> Rows:
    return sorted(rows, key=lambda row: (row["user_id"], row["key"]))


def _extracted(client: Client, format_name: str, wanted: Wanted | None) -> tuple[Rows, ReadPoint]:
    sink = io.BytesIO()
    point = client.extract(TABLE, wanted, format_name, sink, lambda _: None)
    return _sorted(READ[format_name](sink.getvalue())), point


@pytest.mark.full
def test_what_a_condition_leaves_is_the_same_on_every_way(stack: Stack, server: Command) -> None:
    """Goal: an extract with a condition is the filter of the whole extract, and of all lookups.

    Method: nothing is written meanwhile, so all are at one read point; in every format, and without a server.
    """
    with Client(stack.url) as client:
        answers: list[dict[str, Any]] = [
            client.lookup(TABLE, {"app_id": str(APP), "user_id": user}) for user in USERS
        ]
        looked_up: Rows = [row for answer in answers for row in answer["rows"]]
        whole = {name: _extracted(client, name, None) for name in FORMATS}
        (point,) = {point.to_header() for _, point in whole.values()}
        assert {ReadPoint.parse(json.dumps(one["read_point"])).to_header() for one in answers} == {point}
        assert whole["jsonl"][0] == _sorted(looked_up)
        for where, matches in CONDITIONS.items():
            for name in FORMATS:
                found, read_at = _extracted(client, name, Wanted(where=where))
                rows = zip(whole[name][0], _sorted(looked_up), strict=True)
                expected = [row for row, shown in rows if matches(shown)]
                assert (found, read_at.to_header()) == (expected, point), (where, name)
                assert 0 < len(found) < len(looked_up)
            sink = io.BytesIO()
            private.extract(stack.settings, TABLE, Wanted(where=where), "jsonl", sink, None, lambda _: None)
            assert _sorted(READ["jsonl"](sink.getvalue())) == [*filter(matches, _sorted(looked_up))]
        some, _ = _extracted(client, "jsonl", Wanted(where="value = 'hot'", limit=3))
        assert len(some) == 3
        assert all(row in looked_up for row in some)


@pytest.mark.full
@pytest.mark.parametrize("name", ["rows.parquet", "rows.csv", "rows.jsonl", "rows.csv.gz", "rows.arrow"])
def test_an_extract_that_a_fault_cuts_is_no_file_and_no_whole_answer(
    stack: Stack, server: Command, tmp_path: Path, name: str
) -> None:
    """Method: a bucket can't be read once the answer has begun.

    Compressed text of this size is sent at its end. Its fault is a refusal, which the command repeats, so
    no bucket can be read in any attempt.
    """
    file = stack.folder / "failpoints"
    path = tmp_path / name
    try:
        arm(file, "extract.bucket=error" if name.endswith(".gz") else "extract.bucket=error@4")
        command = stack.command("cut", "extract", TABLE, "--url", stack.url, "-o", str(path))
        assert command.process.wait() == 3
        assert [*tmp_path.iterdir()] == []
        if name == "rows.csv":
            arm(file, "extract.bucket=error@4")
            headers = {"Accept": "text/csv", "Accept-Encoding": "identity"}
            with pytest.raises(httpx.RemoteProtocolError, match="incomplete chunked read"):
                httpx.post(f"{stack.url}/v1/tables/{TABLE}/extract", headers=headers)
    finally:
        disarm(file)
    assert stack.command("whole", "extract", TABLE, "--url", stack.url, "-o", str(path)).process.wait() == 0
    assert path.stat().st_size > 0

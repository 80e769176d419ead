"""Lookups, extracts and the live views of one server at one read point: the same values in every column.

A variable says for how many rounds; `make test-all` takes 10:

    export VIEWS_TEST_ROUNDS=50
    .venv/bin/python -m pytest --full tests/views/stacked/test_server_compared_in_trino.py
"""

from __future__ import annotations

import io
import os
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

from tests.behaviour.topic import APP
from tests.views.stacked.hot_server import (
    COLUMNS,
    PARTITIONS,
    USERS,
    Follower,
    Rows,
    Typed,
    as_rows,
    key_of,
    of_partition,
    read_from_server,
    serving,
)
from thermocline.cli.server_answers import Client
from thermocline.dev.stack import Stack
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.serving.read import private
from thermocline.text.shown import json_form

pytestmark = [pytest.mark.trino, pytest.mark.full]

ROUNDS = int(os.environ.get("VIEWS_TEST_ROUNDS", "10"))
TABLE = "hot_compared"
COMMIT_EVERY = 5


def test_lookups_extract_and_live_view_have_the_same_values_at_one_read_point(stack: Stack) -> None:
    """Goal: at one read point, the three read paths agree in every column of every row, decimals, UUIDs,
    binary and times among them; and each is what was written.

    Method: by turns, writing pauses for a round, so that the read point of a lookup of all entities, which
    waits for all that is acknowledged, is that of the view, too; or records come on, and an extract goes back
    to the read point that the rows of the view give away. Every few rounds there is a commit.
    """
    live = Typed(stack, TABLE)
    for user in range(USERS):
        live.put(user, user)
    live.topic.flush()
    live.ingest()
    read_from_server(live)
    followers = [Follower(live.sent[partition]) for partition in range(PARTITIONS)]
    with serving(live) as server, live.traffic(), Client(live.settings.serving.url) as client:
        for number in range(ROUNDS):
            if number % COMMIT_EVERY == COMMIT_EVERY - 1:
                live.ingest()
                server.publish()
            if number % 2:
                point, shown = _moving(live, followers)
            else:
                with live.writing:
                    _wait_for_tailer(live, client)
                    point, looked_up = _looked_up(live, client)
                    shown = live.shown("live" if number % 4 else "live_by_key")
                    assert shown == live.expected
                assert looked_up == {key: _json(row) for key, row in shown.items()}
            assert _extracted(live, point) == {key: _json(row) for key, row in shown.items()}


def _moving(live: Typed, followers: list[Follower]) -> tuple[ReadPoint, Rows]:
    """The view's rows while records come, and of which read point they are."""
    state = live.state()  # nothing is committed meanwhile
    shown = live.shown("live")
    for partition, follower in enumerate(followers):
        # The producer is the only one: what it sent first has the offset 0.
        follower.follow(of_partition(shown, partition), state.seam.get((TABLE, partition), 0))
    end = Seam.of({TABLE: {partition: one.count for partition, one in enumerate(followers)}})
    return ReadPoint(state.snapshot_id, state.seam, end), shown


def _wait_for_tailer(live: Typed, client: Client) -> None:
    """Returns once the server answers with all that was sent."""
    ends = [(partition, len(records)) for partition, records in live.sent.items()]
    read_after = ",".join(f"{TABLE}/{partition}@{end - 1}" for partition, end in ends)
    client.lookup(TABLE, {"app_id": str(APP), "user_id": "u0"}, read_after)


def _looked_up(live: Typed, client: Client) -> tuple[ReadPoint, dict[Any, tuple[Any, ...]]]:
    """Every entity in one answer, by key."""
    users = [key_of(user) for user in range(USERS)]
    answer = client.batch(TABLE, [{"app_id": app, "user_id": name} for app, name, _ in users])
    found = answer["read_point"]
    point = ReadPoint(int(found["snapshot_id"]), Seam.from_dict(found["seam"]), Seam.from_dict(found["end"]))
    keys = {(app, name, at.isoformat()): (app, name, at) for app, name, at in users}
    rows = [row for result in answer["results"] for row in result["rows"]]
    by_key = {
        keys[row["app_id"], row["user_id"], row["at"]]: tuple(row[name] for name in COLUMNS[3:])
        for row in rows
    }
    assert len(by_key) == len(rows)
    return point, by_key


def _extracted(live: Typed, point: ReadPoint) -> dict[Any, tuple[Any, ...]]:
    """The rows of an extract at the read point, by key."""
    sink = io.BytesIO()
    assert private.extract(live.settings, TABLE, None, "arrow", sink, point, lambda _: None) == point
    rows = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
    found = as_rows([tuple(row[name] for name in COLUMNS) for row in rows])
    return {key: _json(row) for key, row in found.items()}


def _json(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row's values as an answer of the HTTP API has them."""
    values = dict(zip(COLUMNS[3:], row, strict=True))
    if isinstance(values["identity"], bytes):
        values["identity"] = UUID(bytes=values["identity"])
    return tuple(json_form(value) for value in values.values())

"""Reading a served table while things fail: each answer is right as of its own read point, or refused."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa

from tests.behaviour.topic import APP, Topic
from thermocline.cli.server_answers import Client
from thermocline.dev.oracle import RowKey
from thermocline.errors import ThermoclineError
from thermocline.rules.seam import Seam

USERS = 8
# What failed is tried again, a died process started, a hot tier filled, a snapshot indexed: seconds at most.
PATIENCE_SECONDS = 60.0


def write(topic: Topic, number: int) -> None:
    """A few records: inserts, updates and deletes. Asks the log nothing, which would meet failpoints."""
    for user in range(USERS):
        row = (APP, f"u{user}", f"k{(number + user) % 3}")
        topic.send(row, None if (number + user) % 5 == 0 else f"{number}", user % 2)
    topic.flush()


class Reads:
    """Lookups and extracts through one server, compared with the oracle of the topic's producer."""

    def __init__(self, client: Client, table: str, topic: Topic) -> None:
        self.client = client
        self.refused: list[ThermoclineError] = []
        self._table = table
        self._topic = topic
        self._lookup_end = self._extract_end = Seam()

    def read(self) -> None:
        """Every entity, and an extract: right, or refused."""
        for user in range(USERS):
            self._refusable(partial(self.look_up, f"u{user}"))
        self._refusable(self.extract)

    def wait_until_right(self) -> None:
        """Returns once every read path answers with all that was written."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not self._is_right():
            assert time.monotonic() < deadline, self.refused[-1:]
            time.sleep(0.02)

    def look_up(self, user: str) -> None:
        answer: dict[str, Any] = self.client.lookup(self._table, {"app_id": str(APP), "user_id": user})
        end = Seam.from_dict(answer["read_point"]["end"])
        found = {row["key"]: row["value"] for row in answer["rows"]}
        assert found == {key: value for (_, name, key), value in self._replayed(end).items() if name == user}
        assert end.at_least(self._lookup_end), "a session goes back in time"
        self._lookup_end = end

    def extract(self) -> None:
        sink = io.BytesIO()
        point = self.client.extract(self._table, None, "arrow", sink, lambda _: None)
        rows = pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()
        by_key = {(row["app_id"], row["user_id"], row["key"]): row["value"] for row in rows}
        assert len(by_key) == len(rows), "a key is extracted twice"
        assert by_key == self._replayed(point.end)
        self._extract_end = point.end

    def _is_right(self) -> bool:
        refused_before = len(self.refused)
        self.read()
        written = self._topic.oracle.end
        reached = self._lookup_end.at_least(written) and self._extract_end.at_least(written)
        return reached and len(self.refused) == refused_before

    def _refusable(self, read: Callable[[], object]) -> None:
        try:
            read()
        except ThermoclineError as error:
            self.refused.append(error)

    def _replayed(self, end: Seam) -> dict[RowKey, str]:
        return {key: row["value"] for key, row in self._topic.oracle.rows(end).items()}

"""Tables whose records a test makes and a dict keeps, and how every read path shows them."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa

from thermocline.dev.broker import LocalKafka
from thermocline.dev.stack import Stack, StackOptions
from thermocline.iceberg.catalog import current_state, load_table, open_catalog
from thermocline.ingest.owner.owner import Owner
from thermocline.process.clock import SystemClock
from thermocline.serving.read import private
from thermocline.settings import load_settings

KEYS = [f"k{number}" for number in range(8)]
Row = dict[str, Any]


class ToldTable:
    """A table with the key ``id``, and its topic of two partitions; ``ends`` are theirs."""

    def __init__(self, stack: Stack, name: str) -> None:
        self.stack, self.name = stack, name
        self.ends = [0, 0]

    def looked_up(self) -> dict[str, Row]:
        """By the server, once it has all that was written."""
        last = [f"{self.name}/{partition}@{end - 1}" for partition, end in enumerate(self.ends) if end]
        answer = httpx.post(
            f"{self.stack.url}/v1/tables/{self.name}/rows:batch",
            json={"entities": [{"id": key} for key in KEYS]},
            headers={"Thermocline-Read-After": ",".join(last)},
            timeout=30,
        )
        assert answer.status_code == 200, answer.text
        rows = [row for result in answer.json()["results"] for row in result["rows"]]
        return {row["id"]: row for row in rows}

    def extracted(self) -> dict[str, Row]:
        """Without a server."""
        sink = io.BytesIO()
        private.extract(self.stack.settings, self.name, None, "arrow", sink, None, lambda _: None)
        return {row["id"]: row for row in pa.ipc.open_stream(sink.getvalue()).read_all().to_pylist()}

    def ingest(self) -> None:
        """All that was written."""
        owner = Owner.open(self.stack.settings, self.name, SystemClock())
        try:
            owner.catch_up(threading.Event())
        finally:
            owner.close()

    def counts(self) -> dict[str, int]:
        """The accounts of all batches."""
        table = load_table(open_catalog(self.stack.settings.catalog), self.name, f"app.{self.name}")
        return dict(current_state(table, self.name).totals)


@contextmanager
def told_stack(
    folder: Path, catalog: str, sections: Iterable[str], topics: Sequence[str], kafka: LocalKafka
) -> Iterator[Stack]:
    """A stack on a broker, with these topics and these tables in its configuration, which are not created."""
    with Stack(folder, StackOptions(catalog=catalog, engine="local", kafka=kafka)) as stack:
        base = stack.config_path.read_text().partition("[tables.")[0]
        stack.config_path.write_text(base + "".join(sections))
        stack.settings = load_settings(stack.config_path)
        for name in topics:
            kafka.create_topic(name, 2)
        yield stack

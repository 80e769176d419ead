"""Ingest: a million upserts from Kafka to one commit, into an empty table and into a full one.

First all of it with values in JSON, then the first million with the same values in Avro.
"""

from __future__ import annotations

import argparse
import io
import json
import tempfile
import time
from collections.abc import Iterable, Iterator
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import fastavro

from benchmarks._report import cpu_seconds, report, say
from benchmarks._table import KEYS_PER_USER, write
from thermocline.dev.stack import TABLE, Stack, StackOptions
from thermocline.dev.workload import Event, Workload
from thermocline.ingest.owner.owner import Owner
from thermocline.process.clock import SystemClock
from thermocline.settings import load_settings

SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Attribute",
    "fields": [
        {"name": "value", "type": "string"},
        {"name": "updated_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
WARM_UP: Final = 10_000
COLUMNS: Final = f"[tables.{TABLE}.columns]"
AVRO: Final = 'format = "avro"\nkey_format = "json"\nvalue_schema_file = "attribute.avsc"\n\n'


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    figures = _in_json(options) | {"first_million_avro": _in_avro(options)}
    report("ingest", options.seed, figures)


def _in_json(options: argparse.Namespace) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, _stack(folder) as stack:
        stack.start()
        workload = _workload(options)
        changes = iter(workload)
        owner = _warm_owner(stack, islice(changes, WARM_UP))
        try:
            figures = {}
            for name, events in (
                ("first_million", workload.load()),
                ("second_million", islice(changes, options.records)),
                ("fifty_thousand", islice(changes, 50_000)),
                ("one_thousand", islice(changes, 1_000)),
            ):
                write(stack, events)
                figures[name] = _batch(owner)
                say(f"  {name}: {figures[name]}")
        finally:
            owner.close()
    return figures


def _in_avro(options: argparse.Namespace) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder, _stack(folder) as stack:
        (stack.folder / "attribute.avsc").write_text(json.dumps(SCHEMA))
        stack.config_path.write_text(stack.config_path.read_text().replace(COLUMNS, AVRO + COLUMNS))
        stack.settings = load_settings(stack.config_path)
        stack.start()
        workload = _workload(options)
        owner = _warm_owner(stack, _encoded(islice(workload, WARM_UP)))
        try:
            write(stack, _encoded(workload.load()))
            figures = _batch(owner)
        finally:
            owner.close()
    say(f"  first_million_avro: {figures}")
    return figures


def _stack(folder: str) -> Stack:
    return Stack(Path(folder), StackOptions(partitions=8, buckets=16, is_measured=True))


def _workload(options: argparse.Namespace) -> Workload:
    return Workload(options.seed, options.records // KEYS_PER_USER, KEYS_PER_USER)


def _warm_owner(stack: Stack, events: Iterable[Event]) -> Owner:
    """One that has committed these."""
    say(f"warming up: {WARM_UP:,} records")
    owner = Owner.open(stack.settings, TABLE, SystemClock())
    write(stack, events)
    _batch(owner)
    return owner


def _encoded(events: Iterable[Event]) -> Iterator[Event]:
    """The same with values in Avro."""
    parsed = fastavro.parse_schema(SCHEMA)
    for event in events:
        value = None
        if event.value is not None:
            row = json.loads(event.value)
            sink = io.BytesIO()
            at = datetime.fromisoformat(row["updated_at"])
            fastavro.schemaless_writer(sink, parsed, {**row, "updated_at": at})
            value = sink.getvalue()
        yield event._replace(value=value)


def _batch(owner: Owner) -> dict[str, float]:
    """One batch from planning to commit: seconds, records a second, CPU seconds of Spark and its workers."""
    before, cpu_before, started = owner.committer, cpu_seconds(), time.monotonic()
    seam_before = owner.position.seam
    owner.step()
    seconds, cpu = time.monotonic() - started, cpu_seconds() - cpu_before
    assert before is owner.committer
    records = sum(offset - seam_before[topic, p] for topic, p, offset in owner.position.seam.items())
    return {
        "records": records,
        "seconds": round(seconds, 2),
        "records_per_second": round(records / seconds),
        "records_per_cpu_second": round(records / cpu),
    }


if __name__ == "__main__":
    main()

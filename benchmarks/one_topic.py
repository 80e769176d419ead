"""What tables take that are fed by one topic, of a server that has nothing to do, and how fresh they are.

Several checkouts may be measured in one run, in turns, on the same tables.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
from confluent_kafka import Producer

from benchmarks._report import percentiles_ms, report, say
from benchmarks.tables import cpu_seconds_of, processes_of
from thermocline.dev.stack import Command, Stack, StackOptions
from thermocline.ingest.commit.java import small_jvm
from thermocline.ingest.table.create import create_table
from thermocline.settings import load_settings

TOPIC: Final = "events"
RECORDS: Final = 1_000
SETTLE_SECONDS: Final = 10.0
PATIENCE_SECONDS: Final = 300.0
_SECTION: Final = """
[tables.{name}]
identifier = "app.{name}"
topics = ["{topic}"]
start = "earliest"
key = ["id", "field"]
entity = ["id"]
buckets = 2
columns = {{ id = "int", field = "string", value = "string" }}
"""


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, nargs="+", default=[1, 20, 100])
    parser.add_argument("--seconds", type=float, default=30.0, help="of a server at rest")
    parser.add_argument("--samples", type=int, default=200, help="of freshness, in one of the tables")
    parser.add_argument("--code", type=Path, nargs="+", default=[Path.cwd()], help="the checkouts to measure")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    names = [f"t{number:03}" for number in range(max(options.tables))]
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, Stack(Path(folder), StackOptions(engine="local")) as stack:
        bench = Bench(stack, names)
        for tables in options.tables:
            for code in options.code:
                say(f"{tables} tables, {code}")
                figures = bench.run(names[:tables], code, options)
                found.append({"code": str(code), "tables": tables, **figures})
                say(json.dumps(found[-1]))
    report("one_topic", options.seed, {"windows": found})


class Bench:
    """A broker with one topic, and tables that it feeds."""

    def __init__(self, stack: Stack, names: Sequence[str]) -> None:
        self._stack = stack
        self._base = stack.config_path.read_text().partition("[tables.")[0]
        stack.kafka.start()
        stack.kafka.wait()
        stack.kafka.create_topic(TOPIC, 4, {"message.timestamp.type": "LogAppendTime"})
        settings = load_settings(self._config_of(names))
        with small_jvm(settings.catalog):  # one for all of them
            for name in names:
                create_table(settings, name)
        self._producer = Producer({**settings.kafka.client_config(), "linger.ms": 0, "log_level": 0})
        for identity in range(RECORDS):
            self._send(identity, "first")

    def run(self, names: Sequence[str], code: Path, options: argparse.Namespace) -> dict[str, Any]:
        """One server of these tables, by one checkout."""
        environment = {"PYTHONPATH": str(code.absolute()), "PYTHONSAFEPATH": "1"}
        log_path = self._stack.folder / "serve.log"
        serve = Command(self._config_of(names), log_path, "serve", environment=environment)
        try:
            began = time.monotonic()
            self._stack.wait_for(self._is_ready, "the server is ready", serve, timeout=PATIENCE_SECONDS)
            ready_seconds = time.monotonic() - began
            time.sleep(SETTLE_SECONDS)
            return {
                "ready_after_seconds": round(ready_seconds, 1),
                **_at_rest(_tailers_of(serve), options.seconds),
                "freshness": self._freshness(names, options.samples, random.Random(options.seed)),
            }
        finally:
            serve.stop()

    def _is_ready(self) -> bool:
        return self._stack.get("/readyz")[0] == httpx.codes.OK

    def _freshness(self, names: Sequence[str], samples: int, rng: random.Random) -> dict[str, float]:
        """Acknowledged by Kafka until a lookup shows it: single records, each looked up in one table."""
        seconds = []
        with httpx.Client(base_url=self._stack.url, timeout=30) as client:
            for _ in range(samples):
                name, value, identity = rng.choice(names), f"fresh-{time.time_ns()}", rng.randrange(RECORDS)
                self._send(identity, value)
                acknowledged_at = time.monotonic()
                while value not in client.get(f"/v1/tables/{name}/rows", params={"id": identity}).text:
                    if time.monotonic() - acknowledged_at > PATIENCE_SECONDS:
                        raise RuntimeError(f"{name} does not show {value}")
                seconds.append(time.monotonic() - acknowledged_at)
                time.sleep(rng.random() * 0.1)
        return percentiles_ms(seconds)

    def _send(self, identity: int, value: str) -> None:
        key = json.dumps({"id": identity, "field": "f"}).encode()
        self._producer.produce(TOPIC, json.dumps({"value": value}).encode(), key)
        self._producer.flush()

    def _config_of(self, names: Sequence[str]) -> Path:
        sections = "".join(_SECTION.format(name=name, topic=TOPIC) for name in names)
        path = self._stack.folder / f"one-topic-{len(names)}.toml"
        path.write_text(self._base + sections)
        return path


def _tailers_of(serve: Command) -> list[psutil.Process]:
    found = [one for one in processes_of(serve) if "thermocline: tailer" in " ".join(one.cmdline())]
    if not found:
        raise RuntimeError("the server has no tailer")
    return found


def _at_rest(tailers: Sequence[psutil.Process], seconds: float) -> dict[str, Any]:
    """Memory (each page counted once), processor, threads and connections of all tailer processes."""
    before = cpu_seconds_of(tailers)
    time.sleep(seconds)
    return {
        "processes": len(tailers),
        "cores": round((cpu_seconds_of(tailers) - before) / seconds, 4),
        "threads": sum(one.num_threads() for one in tailers),
        "connections": sum(len(one.net_connections("tcp")) for one in tailers),
        "memory_mb": round(sum(one.memory_full_info().pss for one in tailers) / 1e6),
    }


if __name__ == "__main__":
    main()

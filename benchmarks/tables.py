"""Many small tables, ingested by one process and served by one server: memory, CPU at rest, freshness.

Beside it one table of them alone, as its own ingest process and its own server would take.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import httpx
import psutil
from confluent_kafka import Producer

from benchmarks._report import percentiles_ms, report, say
from thermocline.dev.stack import Command, Stack, StackOptions
from thermocline.ingest.commit.java import small_jvm
from thermocline.ingest.table.create import create_table
from thermocline.settings import load_settings

INTERVAL_SECONDS: Final = 20.0
SAMPLES: Final = 200
REST_SECONDS: Final = 40.0
PATIENCE_SECONDS: Final = 900.0
_SECTION: Final = """
[tables.{name}]
identifier = "app.{name}"
topics = ["{name}"]
start = "earliest"
key = ["id", "field"]
entity = ["id"]
buckets = 2
commit_interval_seconds = {seconds}
columns = {{ id = "int", field = "string", value = "string" }}
"""


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=100)
    parser.add_argument("--records", type=int, default=200, help="of a table's batch")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    names = [f"t{number:03}" for number in range(options.tables)]
    with tempfile.TemporaryDirectory() as folder, Stack(Path(folder), StackOptions(engine="local")) as stack:
        bench = Bench(stack, names, options.records)
        bench.prepare()
        say("one table alone")
        alone = bench.run(names[:1], random.Random(options.seed))
        say(f"{len(names)} tables")
        together = bench.run(names, random.Random(options.seed))
    figures = {
        "tables": len(names),
        "records_per_batch": options.records,
        "one_table_alone": alone,
        "together": together,
    }
    report("tables", options.seed, figures)


class Bench:
    """A broker, the tables, and what is started on them."""

    def __init__(self, stack: Stack, names: list[str], records: int) -> None:
        self._stack, self._names, self._records = stack, names, records
        self._base = stack.config_path.read_text().partition("[tables.")[0]
        self._producer = Producer({**stack.settings.kafka.client_config(), "linger.ms": 0, "log_level": 0})
        self._sent = 0

    def prepare(self) -> None:
        """All topics and tables."""
        self._stack.kafka.start()
        self._stack.kafka.wait()
        settings = load_settings(self.config_of(self._names))
        with small_jvm(settings.catalog):  # one for all of them
            for name in self._names:
                self._stack.kafka.create_topic(name, 1, {"message.timestamp.type": "LogAppendTime"})
                create_table(settings, name)

    def run(self, names: list[str], rng: random.Random) -> dict[str, Any]:
        """One ingest process and one server for these tables."""
        config = self.config_of(names)
        ingest = Command(config, self._stack.folder / f"ingest-{len(names)}.log", "ingest", "run")
        serve = Command(config, self._stack.folder / f"serve-{len(names)}.log", "serve")
        try:
            began = time.monotonic()
            self.wait(lambda: len(said_by(ingest, "ownership taken")) == len(names), ingest)
            owned_seconds = time.monotonic() - began
            self.wait(lambda: self._stack.get("/readyz")[0] == httpx.codes.OK, serve)
            ready_seconds = time.monotonic() - began
            figures = {
                "owned_after_seconds": round(owned_seconds, 1),
                "served_after_seconds": round(ready_seconds, 1),
                "one_batch_of_each": self.batch(names, ingest),
                "freshness": self._freshness(names, rng),
            }
            self.wait(lambda: self._is_committed(names), ingest)
            time.sleep(INTERVAL_SECONDS)  # what was begun comes to its end
            return {**figures, **_at_rest({"ingest": ingest, "serve": serve})}
        finally:
            ingest.tell_to_stop()
            serve.stop()
            ingest.stop()

    def batch(self, names: list[str], ingest: Command) -> dict[str, float]:
        """A batch into each table: from the first commit to the last of the round that commits them all."""
        before = len(said_by(ingest, "committed"))
        for name in names:
            for number in range(self._records):
                self._send(name, number, "batch")
        self._producer.flush()
        acknowledged_at = time.time()
        self.wait(lambda: len(said_by(ingest, "committed")) - before >= len(names), ingest)
        lines = said_by(ingest, "committed")[before:]
        ends = sorted(datetime.fromisoformat(line["time"]).timestamp() for line in lines)
        first_took = min(line["run_seconds"] + line["commit_seconds"] for line in lines)
        return {
            "first_to_last_seconds": round(ends[-1] - ends[0] + first_took, 2),
            "all_after_seconds": round(ends[-1] - acknowledged_at, 2),
            "commit_interval_seconds": INTERVAL_SECONDS,
        }

    def _freshness(self, names: list[str], rng: random.Random) -> dict[str, float]:
        """Acknowledged by Kafka until a lookup shows it: single records into random tables, nothing else."""
        seconds = []
        with httpx.Client(base_url=self._stack.url, timeout=30) as client:
            for number in range(SAMPLES):
                name, value = rng.choice(names), f"fresh-{number}"
                identity = rng.randrange(self._records)
                self._send(name, identity, value)
                self._producer.flush()
                acknowledged_at = time.monotonic()
                while value not in client.get(f"/v1/tables/{name}/rows", params={"id": identity}).text:
                    if time.monotonic() - acknowledged_at > PATIENCE_SECONDS:
                        raise RuntimeError(f"{name} does not show {value}")
                seconds.append(time.monotonic() - acknowledged_at)
                time.sleep(rng.random() * 0.1)
        return percentiles_ms(seconds)

    def _is_committed(self, names: list[str]) -> bool:
        _, status = self._stack.get("/status")
        points = [status["tables"][name].get("read_point") for name in names]
        return all(point and point["seam"] == point["end"] for point in points)

    def _send(self, name: str, identity: int, value: str) -> None:
        self._sent += 1
        key = json.dumps({"id": identity, "field": "f"}).encode()
        self._producer.produce(name, json.dumps({"value": value}).encode(), key)
        self._producer.poll(0)

    def config_of(self, names: list[str]) -> Path:
        """A configuration of these tables."""
        sections = "".join(_SECTION.format(name=name, seconds=INTERVAL_SECONDS) for name in names)
        path = self._stack.folder / f"tables-{len(names)}.toml"
        path.write_text(self._base + sections)
        return path

    def wait(self, condition: Any, *watched: Command) -> None:
        """Until it is so; raises where one of the commands ends before."""
        self._stack.wait_for(condition, "the tables come along", *watched, timeout=PATIENCE_SECONDS)


def _at_rest(commands: dict[str, Command]) -> dict[str, Any]:
    """Memory (each page counted once) and CPU of processes that have nothing to do."""
    before = {name: cpu_seconds_of(processes_of(command)) for name, command in commands.items()}
    time.sleep(REST_SECONDS)
    return {
        f"{name}_at_rest": {
            "processes": len(processes_of(command)),
            "threads": sum(process.num_threads() for process in processes_of(command)),
            "memory_mb": round(sum(p.memory_full_info().pss for p in processes_of(command)) / 1e6),
            "cores": round((cpu_seconds_of(processes_of(command)) - before[name]) / REST_SECONDS, 3),
        }
        for name, command in commands.items()
    }


def processes_of(command: Command) -> list[psutil.Process]:
    """It and all below it."""
    process = psutil.Process(command.process.pid)
    return [process, *process.children(recursive=True)]


def cpu_seconds_of(processes: Iterable[psutil.Process]) -> float:
    """What they have taken of the processor so far."""
    seconds = 0.0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            seconds += times.user + times.system
    return seconds


def said_by(command: Command, message: str) -> list[dict[str, Any]]:
    """Its log's lines of that message."""
    found = []
    for line in command.log_path.read_text().splitlines():
        if f'"{message}"' in line:
            with suppress(ValueError):  # it is being written
                found.append(json.loads(line))
    return found


if __name__ == "__main__":
    main()

"""Tables of one topic, each read alone and read together: a large batch into a few, small ones into many.

The many have a `where` each, so that each takes its part of the topic; they are on the local engine. In some
of their rounds, only a few of them get records.
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import psutil
from confluent_kafka import Producer

from benchmarks._report import cpu_seconds, report, say
from thermocline.dev.stack import Stack, StackOptions
from thermocline.ingest.commit.java import small_jvm
from thermocline.ingest.commit.java_metadata import JavaMetadata
from thermocline.ingest.engine.engine import start_engine
from thermocline.ingest.owner.owner import Owner
from thermocline.ingest.owner.scans import step_together
from thermocline.ingest.table.create import create_table
from thermocline.kafka.log import Log
from thermocline.process.clock import SystemClock
from thermocline.settings import Settings, load_settings

TOPIC: Final = "shared"
PARTITIONS: Final = 8
WARM_UP: Final = 10_000
ROUNDS: Final = 3
_SECTION: Final = """
[tables.{name}]
identifier = "app.{name}"
topics = ["{topic}"]
start = "earliest"
key = ["id", "kind"]
entity = ["id"]
buckets = {buckets}
{where}
columns = {{ id = "int", kind = "string", value = "string" }}
"""


def main() -> None:
    """Run it and print the line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=1_000_000, help="of the batch into a few tables")
    parser.add_argument("--few", type=int, default=5)
    parser.add_argument("--many", type=int, default=200)
    parser.add_argument("--round-records", type=int, default=10_000, help="of a round into many tables")
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    figures = {"few": _few(options), "many": _many(options)}
    report("shared_scans", options.seed, figures)


def _few(options: argparse.Namespace) -> dict[str, Any]:
    alone = [f"alone{number}" for number in range(options.few)]
    together = [f"together{number}" for number in range(options.few)]
    with _tables(options.seed, "spark", [*alone, *together], buckets=16) as (bench, owners):
        bench.write(WARM_UP, 1)
        alone_owners, shared = owners[: options.few], owners[options.few :]
        say("warming up")
        _step_each(owners)
        bench.write(options.records, 1)
        figures: dict[str, Any] = {"tables": options.few, "records": options.records}
        figures["read_alone"] = bench.timed(lambda: _step_each(alone_owners))
        figures["read_together"] = bench.timed(lambda: _step_all(shared))
        say(f"  {figures}")
    return figures


def _many(options: argparse.Namespace) -> dict[str, Any]:
    names = [f"kind{number:04}" for number in range(options.many)]
    with _tables(options.seed, "local", names, buckets=1, is_filtered=True) as (bench, owners):
        figures: dict[str, Any] = {"tables": options.many, "records_per_round": options.round_records}
        figures["memory_after_start_mb"] = _memory_mb()
        together, alone = (lambda: _step_all(owners)), (lambda: _step_each(owners))
        for name, step, kinds in (
            ("read_together", together, options.many),
            ("read_together_most_without_records", together, options.few),
            ("read_alone", alone, options.many),
        ):
            bench.write(options.round_records, kinds)
            bench.timed(step)  # what is made once
            rounds = []
            for _ in range(ROUNDS):
                bench.write(options.round_records, kinds)
                rounds.append(bench.timed(step))
            figures[name] = sorted(rounds, key=lambda one: one["seconds"])[ROUNDS // 2]
            figures[name]["memory_mb"] = _memory_mb()
            say(f"  {name}: {figures[name]}")
    return figures


def _step_each(owners: Sequence[Owner]) -> None:
    """The same, each table by itself."""
    for owner in owners:
        while owner.step():
            pass


def _step_all(owners: Sequence[Owner]) -> None:
    """A round, until none is behind; raises what a table ended with."""
    behind = list(owners)
    while behind:
        stepped = [one for group in step_together(behind) for one in group]
        for _, outcome in stepped:
            if isinstance(outcome, Exception):
                raise outcome
        behind = [owner for owner, outcome in stepped if outcome]


class Bench:
    """A topic of its tables, and what was asked of their catalog."""

    def __init__(self, stack: Stack, seed: int) -> None:
        self._stack, self._rng = stack, random.Random(seed)
        self._producer = Producer({**stack.settings.kafka.client_config(), "linger.ms": 20, "log_level": 0})
        self._asked = 0

    def write(self, records: int, kinds: int) -> None:
        """Records of random keys, each of one of so many kinds, acknowledged."""
        for _ in range(records):
            kind = f"kind{self._rng.randrange(kinds):04}"
            key = json.dumps({"id": self._rng.randrange(1_000_000), "kind": kind}).encode()
            value = json.dumps({"value": f"{self._rng.getrandbits(64):016x}"}).encode()
            while True:
                try:
                    self._producer.produce(TOPIC, value, key)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        self._producer.flush()

    def timed(self, work: Callable[[], object]) -> dict[str, float]:
        """How long it takes, on the clock and of the processor, and requests of the catalog."""
        started, cpu, asked = time.monotonic(), cpu_seconds(), self._asked
        work()
        return {
            "seconds": round(time.monotonic() - started, 2),
            "cpu_seconds": round(cpu_seconds() - cpu, 2),
            "catalog_requests": self._asked - asked,
        }

    def count_requests(self) -> None:
        """From now on, loads of metadata and swaps count."""
        for name in ("start", "publish", "refresh"):
            made = getattr(JavaMetadata, name)

            def counted(*arguments: Any, made: Any = made) -> Any:
                self._asked += 1
                return made(*arguments)

            setattr(JavaMetadata, name, counted)


@contextmanager
def _tables(
    seed: int, engine: str, names: Sequence[str], buckets: int, is_filtered: bool = False
) -> Iterator[tuple[Bench, list[Owner]]]:
    """A broker with the topic, and an owner in this process for each table."""
    with ExitStack() as undo:
        folder = Path(undo.enter_context(tempfile.TemporaryDirectory()))
        stack = undo.enter_context(Stack(folder, StackOptions(engine=engine, is_measured=True)))
        stack.start_broker()
        stack.kafka.create_topic(TOPIC, PARTITIONS)
        settings = _settings(stack, names, buckets, is_filtered)
        say(f"{len(names)} tables")
        with small_jvm(settings.catalog):  # one for all of them
            for name in names:
                create_table(settings, name)
        running = start_engine(settings, names[0])
        undo.callback(running.stop)
        log, owners = Log(settings.kafka), list[Owner]()
        for name in names:
            owners.append(Owner.open(settings, name, SystemClock(), engine=running))
            undo.callback(owners[-1].close)
            owners[-1].log = log
        bench = Bench(stack, seed)
        bench.count_requests()
        yield bench, owners


def _settings(stack: Stack, names: Sequence[str], buckets: int, is_filtered: bool) -> Settings:
    sections = [
        _SECTION.format(
            name=name,
            topic=TOPIC,
            buckets=buckets,
            where=f'where = {{ field = "kind", is = "{name}" }}' if is_filtered else "",
        )
        for name in names
    ]
    path = stack.folder / "shared.toml"
    path.write_text(stack.config_path.read_text().partition("[tables.")[0] + "".join(sections))
    return load_settings(path)


def _memory_mb() -> int:
    """Of this process and all below it but the broker, each page once."""
    held = 0
    for one in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with suppress(psutil.NoSuchProcess):  # it has ended
            if "kafka.Kafka" not in one.cmdline():
                held += one.memory_full_info().pss
    return round(held / 1e6)


if __name__ == "__main__":
    main()

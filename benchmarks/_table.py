"""A table of a given size, filled the way a user's is: through Kafka and ingest."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from pathlib import Path

from benchmarks._report import say
from ingest.owner import Owner
from thermocline.clock import SystemClock
from thermocline.embedded.oracle import Oracle
from thermocline.embedded.stack import TABLE, TOPIC, Stack
from thermocline.embedded.workload import Event, Workload, produce

KEYS_PER_USER = 10


class Forgetful(Oracle):
    """An oracle that remembers nothing: millions of records would take the memory that is measured."""

    def acknowledge(self, record: object) -> None:
        del record


def write(stack: Stack, events: Iterable[Event]) -> int:
    """Produce the events as fast as the broker takes them; how many."""
    started = time.monotonic()
    count = produce(stack.settings.kafka.client_config(), TOPIC, events, Forgetful())
    say(f"  {count:,} records produced in {time.monotonic() - started:.1f} s")
    return count


def filled(folder: Path, rows: int, seed: int, workers: int = 1) -> Stack:
    """A started stack whose table holds ``rows`` rows of ``rows / 10`` users, all committed."""
    say(f"filling a table with {rows:,} rows")
    stack = Stack(folder, partitions=8, buckets=16, workers=workers).start()
    write(stack, Workload(seed, rows // KEYS_PER_USER, KEYS_PER_USER).load())
    owner = Owner.open(stack.settings, TABLE, SystemClock())
    started = time.monotonic()
    owner.catch_up(threading.Event())
    say(f"  committed in {time.monotonic() - started:.1f} s")
    owner.close()
    return stack

"""Which faults come when: drawn by weights from a seed alone, never from what happens meanwhile."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

# A round's faults begin within so many seconds, so that some of them overlap.
ROUND_SECONDS: Final = 10.0
FAULTS_PER_ROUND: Final = (6, 7, 8, 9, 10)
# Longer than SQLite's busy time (30 s): rarely, since a round waits for it.
LONG_LOCK: Final = 0.04
LONG_LOCK_SECONDS: Final = (31.0, 60.0)
EXTRACT_EVERY: Final = 2
TABLE_EVERY: Final = 3
VERIFY_EVERY: Final = 5


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of fault: how often it is drawn, and between how many seconds it lasts."""

    weight: float
    seconds: tuple[float, float] = (0.0, 0.0)
    needs: str = ""  # "disk": small file systems of our own; "failpoints"; "sqlite" or "lake": the catalog


KINDS: Final[Mapping[str, Kind]] = {
    "owner killed": Kind(10),
    "owner and all its processes killed": Kind(6),
    "owner frozen": Kind(6, (0.3, 5.0)),
    "owner frozen, another takes over": Kind(8, (5.0, 12.0)),
    "second owner beside the first": Kind(5),
    "owner told to stop": Kind(3),
    "Spark's JVM killed": Kind(4),
    "a Spark Python worker killed": Kind(7),
    "tailer killed": Kind(10),
    "tailer frozen": Kind(6, (0.3, 6.0)),
    "API worker killed": Kind(8),
    "API worker frozen": Kind(6, (0.3, 6.0)),
    "server's parent killed": Kind(4),
    "server and all its processes killed": Kind(5),
    "server told to stop": Kind(2),
    "broker killed": Kind(5, (0.3, 8.0)),
    "broker frozen": Kind(4, (1.0, 9.0)),
    "catalog locked": Kind(6, (1.0, 10.0), "sqlite"),
    "warehouse's disk full": Kind(5, (1.0, 8.0), "disk"),
    "server's disk full": Kind(4, (1.0, 8.0), "disk"),
    "server's disk nearly full": Kind(2, (1.0, 8.0), "disk"),
    "hot tier removed": Kind(4),
    "hot tier removed while the server is down": Kind(4),
    "partitions added": Kind(1.5),
    "transaction left open, then committed": Kind(2, (1.0, 8.0)),
    "transaction left open, then aborted": Kind(2, (1.0, 8.0)),
    "burst of records": Kind(5, (1.0, 4.0)),
    "failpoint in ingest": Kind(24, (10.0, 20.0), "failpoints"),
    "failpoint in serving": Kind(18, (5.0, 10.0), "failpoints"),
    "clocks apart": Kind(4, (2.0, 10.0), "failpoints"),
    "store fails now and then": Kind(10, (2.0, 10.0), "lake"),
    "store away": Kind(4, (1.0, 8.0), "lake"),
    "store full": Kind(5, (1.0, 8.0), "lake"),
    "store frozen": Kind(4, (1.0, 8.0), "lake"),
    "store busy": Kind(4, (1.0, 8.0), "lake"),
    "REST catalog fails now and then": Kind(10, (2.0, 10.0), "lake"),
    "REST catalog away": Kind(4, (1.0, 10.0), "lake"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: it begins ``at`` seconds into its round. ``choice`` in [0, 1) says which of several."""

    kind: str
    at: float
    seconds: float
    choice: float

    def __str__(self) -> str:
        lasting = f" for {self.seconds:.1f} s" if self.seconds else ""
        return f"{self.at:4.1f} s  {self.kind}{lasting}"

    def pick(self, things: Sequence[str]) -> str:
        """One of several, always the same one."""
        return things[int(self.choice * len(things))]


@dataclass(frozen=True, slots=True)
class Round:
    """Some faults, and what is compared once they are over, beside lookups of everybody."""

    number: int
    faults: tuple[Fault, ...]
    with_extract: bool
    with_table: bool
    with_verify: bool


def rounds(seed: int, missing: frozenset[str] = frozenset()) -> Iterator[Round]:
    """Rounds without end; ``missing`` names what `Kind.needs` and this machine does not have."""
    drawn = random.Random(seed)
    kinds = {name: kind for name, kind in KINDS.items() if kind.needs not in missing}
    weights = [kind.weight for kind in kinds.values()]
    number = 0
    while True:
        number += 1
        names = drawn.choices(list(kinds), weights, k=drawn.choice(FAULTS_PER_ROUND))
        faults = [_fault(name, drawn) for name in names]
        yield Round(
            number,
            tuple(sorted(faults, key=lambda fault: fault.at)),
            number % EXTRACT_EVERY == 0,
            number % TABLE_EVERY == 0,
            number % VERIFY_EVERY == 0,
        )


def _fault(name: str, drawn: random.Random) -> Fault:
    seconds = drawn.uniform(*KINDS[name].seconds)
    if name == "catalog locked" and drawn.random() < LONG_LOCK:
        seconds = drawn.uniform(*LONG_LOCK_SECONDS)
    return Fault(name, drawn.uniform(0, ROUND_SECONDS), seconds, drawn.random())

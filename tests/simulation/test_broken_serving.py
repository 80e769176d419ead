"""The simulation of serving can fail: product lines are broken one at a time, and it finds each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from inspect import unwrap
from itertools import count, islice
from typing import Any, Final

import pytest

from tests.simulation.broken import broken
from tests.simulation.chance import history_of
from tests.simulation.edges import simulated
from tests.simulation.faults import Violation
from tests.simulation.history import History
from thermocline.rules import fold
from thermocline.serving.cold import index
from thermocline.serving.hot import (
    compatibility,
    leases,
    manifest,
    merge,
    partial,
    pinned,
    tier,
    view,
    winners,
)
from thermocline.serving.read.lookup import TableReader
from thermocline.serving.tail.tailer import Tailer

SEED: Final = 21
# Half as many again as the one takes that is found last; some three seconds where nothing is found.
HISTORIES_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a product's function, and what stands in its place."""

    name: str
    function: Callable[..., Any]
    line: str
    instead: str


LINES: Final = (
    Line("the overlay does not hide cold rows", fold.overlay, "if key not in winners}", "}"),
    Line("records before the seam count", winners._folded, "if offset < first:", "if False:"),
    Line(
        "the oldest generation decides",
        winners.newest_values,
        "found.setdefault(stored_key, value)",
        "found[stored_key] = value",
    ),
    Line(
        "a record that leaves its row's value as it is forgets what older generations have of it",
        partial.resolved,
        "value = merged(value, older)",
        "pass",
    ),
    Line(
        "and what its own generation has of it",
        partial.laid_over,
        "merged(value, older)",
        "value",
    ),
    Line("hot tombstones are left out", winners._folded, "winners[key] = None", "del winners[key]"),
    Line(
        "between partitions the last one met wins",
        winners._folded,
        "if key in rows and _order(rows[key]) > _order(row):",
        "if False:",
    ),
    Line(
        "a generation begins where the one before began",
        tier.HotTier._roll,
        "replace(part, start=part.end)",
        "replace(part, start=part.start)",
    ),
    Line(
        "eviction looks at where a generation starts",
        tier.HotTier.evict,
        "up_to.at_least(generation.meta().end.only(counting))",
        "up_to.at_least(generation.meta().start.only(counting))",
    ),
    Line(
        "eviction does not wait for readers",
        tier.HotTier.tend,
        "self.evict(self._leases.needed(newest))",
        "self.evict(newest)",
    ),
    Line(
        "the reader that is furthest decides what is needed",
        leases.Leases.needed,
        "min(seam.get(place) for seam in (newest, *leased))",
        "max(seam.get(place) for seam in (newest, *leased))",
    ),
    Line(
        "a merge puts the older records last",
        merge.Merge._run,
        "for source in (self.older, self.newer):",
        "for source in (self.newer, self.older):",
    ),
    Line(
        "hot records are laid over a snapshot that they do not fit",
        compatibility.incompatibility,
        "if problem is not None:",
        "if False:",
    ),
    Line(
        "files of another boot are taken over",
        manifest.read_manifest,
        "(manifest.format, manifest.boot_id) == (FORMAT, boot_id())",
        "True",
    ),
    Line(
        "a pin reads what still grows",
        pinned.Pin._sealed,
        "listed = manifest.generations[:-1]",
        "listed = manifest.generations",
    ),
    Line(
        "a pin asks the oldest generation first",
        unwrap(pinned.PinnedHot._transactions),
        "reversed(self._generations)",
        "self._generations",
    ),
    Line(
        "a removed tier is served for ever", view.HotReader.refresh, "if stamp != self._stamp:", "if False:"
    ),
    Line(
        "what an answer reached is kept for the next one",
        TableReader._reach,
        "if last is not None and is_same_snapshot and last.start is view.start and last.hot_end is view.end:",
        "if last is not None and is_same_snapshot:",
    ),
    Line(
        "cached rows outlive their deletes",
        index._fingerprint,
        "place = (file.data.path, deletes.path, deletes.offset) if deletes else (file.data.path,)",
        "place = (file.data.path,)",
    ),
    Line(
        "the log's identity is not asked",
        Tailer._check_log,
        "check_identity(self._table, newest.state.cluster_id, newest.state.topic_ids, log_now, topics)",
        "pass",
    ),
)


def test_each_line_is_there_to_be_broken() -> None:
    for line in LINES:
        with broken(line.function, line.line, line.instead):
            pass


@pytest.mark.full
@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_a_broken_line_is_found(line: Line) -> None:
    with simulated(), broken(line.function, line.line, line.instead):
        found = next((kind for history in _served() if (kind := _kind_of(history))), None)
    assert found is not None, f"{HISTORIES_MAX} histories of seed {SEED} found nothing"


@pytest.mark.full
def test_the_same_histories_find_nothing_where_no_line_is_broken() -> None:
    with simulated():
        for history in _served():
            kind = _kind_of(history)
            assert kind is None, f"{kind}\n{history}"


@cache
def _served() -> list[History]:
    all_of = (history_of(SEED, number) for number in count())
    return list(islice((one for one in all_of if one.around.is_served), HISTORIES_MAX))


def _kind_of(history: History) -> str | None:
    try:
        history.run()
    except Violation as violation:
        return violation.kind
    return None

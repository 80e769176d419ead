"""Columns that change in histories: every answer is by those of its snapshot, and no id is given twice."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Any, Final

import pytest

from tests.simulation.broken import broken
from tests.simulation.runner import run_histories, run_many
from tests.simulation.test_simulation import SECONDS_MAX, words
from thermocline.ingest.owner import table_batch
from thermocline.ingest.owner.schema_watch import SchemaWatch
from thermocline.rules import alteration
from thermocline.serving.hot import compatibility

# With those that `test_simulation` has, one of ten, and that it has more of with --full.
HISTORIES: Final = 5_000
SEED: Final = 41
# Each is found in the first ten.
BROKEN_HISTORIES_MAX: Final = 50
CHUNK: Final = 10

# What must have happened in that many histories, or they prove nothing.
EVENTS: Final = """
"alter add: done" "alter drop: done" "alter widen: done" "alter rename: done" "alter swap: done"
"alter order: done" "alter add: refused" "alter drop: failed" "columns taken up" "answers with other columns"
"lookup compared" "extract compared" "lookups over hot records" "landed with rows" crashed "bad record"
"late swap landed" "late swap refused" "foreign replace" "rewrite taken over" "rolled back" CreateTopic
"unknown settled as landed" "unknown settled as not landed" "stopped owner-lost" "stopped commit-unknown"
"stopped definition-changed" "upkeep rewrites" "serves at the end" "crash before publish"
"""


@pytest.mark.full
@pytest.mark.timeout(SECONDS_MAX)
def test_every_answer_is_by_the_columns_of_its_snapshot_in_any_history() -> None:
    """Goal: as in all histories, while columns come, go, widen and are renamed. Oracle: `SeenTable`."""
    report = run_many(SEED, HISTORIES, processes=2, is_changing=True)
    print("\n".join(report.lines()))
    assert not report.failures
    assert [event for event in words(EVENTS) if not report.counts[event]] == []


BROKEN: Final[dict[str, tuple[Callable[..., Any], str, str, set[str]]]] = {
    "a batch is not read again by the columns that it needs": (
        table_batch.read_for,
        "if owner.schemas.takes_up(owner, read.result):",
        "if owner.schemas.takes_up(owner, read.result) and False:",
        {"row-stale", "file-missing"},
    ),
    "what somebody dropped is taken up again": (
        SchemaWatch.planned,
        "dropped_paths(owner.table.properties, definition)",
        "()",
        {"dropped-came-back"},
    ),
    "the id of a dropped column is given to another one": (
        alteration.plan_alteration,
        "_columns_changed(current, wanted, last_column_id, drop)",
        "_columns_changed(current, wanted, 0, drop)",
        {"field-id-given-twice", "field-ids-differ"},
    ),
    "hot records are laid over a snapshot of other columns": (
        compatibility.incompatibility,
        "if problem is not None:",
        "if False:",
        {"columns-differ", "row-stale", "row-missing", "row-extra", "unexpected-error"},
    ),
}


def test_each_line_is_there_to_be_broken() -> None:
    for function, line, instead, _ in BROKEN.values():
        with broken(function, line, instead):
            pass


@pytest.mark.full
@pytest.mark.parametrize("name", BROKEN)
def test_broken_columns_are_found(name: str) -> None:
    function, line, instead, kinds = BROKEN[name]
    with broken(function, line, instead):
        for first in count(0, CHUNK):
            assert first < BROKEN_HISTORIES_MAX, "not found"
            report = run_histories(SEED, first, CHUNK, is_changing=True)
            if report.failures:
                assert report.failures[0].kind in kinds, report.failures[0]
                return

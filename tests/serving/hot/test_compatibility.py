"""What makes hot records unfit for a snapshot: each rule alone."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from tests.serving.hot_log import DEFINITION, PLACES, START
from thermocline.rules.identity import NEVER_MS
from thermocline.rules.seam import Seam
from thermocline.serving.hot.compatibility import incompatibility

OTHER_TOPICS = replace(DEFINITION, version=2, topics=("more",))
ANOTHER = replace(DEFINITION, suppress_unchanged=not DEFINITION.suppress_unchanged)
SNAPSHOT = {
    "definition_json": DEFINITION.to_json(),
    "definition": DEFINITION,
    "source": "the log",
    "seam": START,
    "tombstones_from_ms": 5_000,
}
HOT = {
    "definition_json": DEFINITION.to_json(),
    "topics": frozenset(DEFINITION.topics),
    "source": "the log",
    "start": START,
    "complete_from_ms": 5_000,
}


def _misfit(hot: dict[str, Any], **snapshot: Any) -> str | None:
    index: Any = SimpleNamespace(**(SNAPSHOT | snapshot))
    held: Any = SimpleNamespace(**(HOT | hot))
    return incompatibility(index, held)


@pytest.mark.parametrize(
    ("hot", "why"),
    [
        ({}, None),
        ({"definition_json": OTHER_TOPICS.to_json()}, None),
        ({"definition_json": ANOTHER.to_json()}, "another definition"),
        ({"topics": frozenset({"profiles", "later"})}, "not read from more"),
        ({"source": "another"}, "another log"),
        (
            {"start": START.merged_max(Seam({PLACES[0]: 101}))},
            "more/0@100, profiles/0@101, profiles/1@100, beyond the snapshot's more",
        ),
        ({"complete_from_ms": 5_001}, "may lack deletes"),
    ],
)
def test_hot_records_fit_when_each_rule_holds(hot: dict[str, Any], why: str | None) -> None:
    found = _misfit(hot)
    assert found is None if why is None else found is not None and why in found


def test_no_delete_is_missing_below_which_there_is_no_row() -> None:
    assert _misfit({"complete_from_ms": 1 << 62}, tombstones_from_ms=NEVER_MS) is None

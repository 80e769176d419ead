"""Asks for everything once the traffic has stopped, and compares what was answered with the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import pyarrow as pa

from embedded.demo.history import History
from embedded.demo.lookups import Entity, Lookups, row_of_json
from embedded.demo.site import Site
from embedded.demo.stage import Stage
from embedded.demo.traffic import Traffic
from embedded.demo.verdict import Check, compare_accounts, compare_kept, compare_rows
from embedded.demo.view_examination import ask_views
from embedded.demo.view_examination import comparisons as view_comparisons
from embedded.oracle import Row
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam

BATCH_ENTITIES: Final = 1_000
"""As many as one request may ask for."""
DIFFERENCES_SHOWN: Final = 10
"""More of them say nothing that the first ones don't."""


def examine(site: Site, traffic: Traffic, stage: Stage) -> dict[str, Check]:
    """All comparisons by name, each shown as it is made. Nothing more is written meanwhile.

    All doors are asked before anything is compared, while much of the answer is still beyond the seam.
    """
    end = site.oracle.end
    lookups = site.lookups()
    extracted, point = _extract(lookups, end, stage)
    looked_up = _look_up_all(lookups, traffic.entities, end, stage)
    of_views = ask_views(site, point, stage)
    stage.say("\nAgainst the oracle, a plain replay of what Kafka acknowledged:\n", "bold")
    task = stage.begin("the oracle")
    history = History(site.oracle.records())
    rows = history.rows()
    stage.end(task, f"{len(site.oracle):,} records come to {len(rows):,} rows")
    commits = traffic.look()
    comparisons: dict[str, Callable[[], Check]] = {
        "the extract": lambda: compare_rows(rows, extracted),
        "the lookups": lambda: compare_rows(rows, looked_up),
        "the lookups under way": lambda: compare_kept(traffic.kept, history),
        **view_comparisons(of_views, traffic, history, extracted),
        "the commits' accounts": lambda: compare_accounts(Seam(), commits, traffic.garbage),
    }
    return {name: _shown(stage, name, compare) for name, compare in comparisons.items()}


def _extract(lookups: Lookups, end: Seam, stage: Stage) -> tuple[list[Row], ReadPoint]:
    task = stage.begin("extract the whole table")
    content, point = lookups.extract(end)
    rows: list[Row] = pa.ipc.open_stream(content).read_all().to_pylist()
    hot = sum(end - point.seam.get((topic, p)) for topic, p, end in point.end.items())
    stage.end(task, f"{len(rows):,} rows, {hot:,} records beyond the seam laid over Iceberg")
    return rows, point


def _look_up_all(lookups: Lookups, entities: Sequence[Entity], end: Seam, stage: Stage) -> list[Row]:
    task = stage.begin("look up every user")
    rows: list[Row] = []
    for first in range(0, len(entities), BATCH_ENTITIES):
        task.note = f"{first:,} of {len(entities):,}"
        for found in lookups.entities(entities[first : first + BATCH_ENTITIES], end):
            rows.extend(map(row_of_json, found))
    stage.end(task, f"{len(rows):,} rows of {len(entities):,} users")
    return rows


def _shown(stage: Stage, title: str, compare: Callable[[], Check]) -> Check:
    task = stage.begin(title)
    check = compare()
    stage.end(task, f"{check.compared}: {check.outcome}", check.agrees)
    for difference in check.differences[:DIFFERENCES_SHOWN]:
        stage.say(f"      {difference}")
    return check

"""Asks the views in Trino for everything once the traffic has stopped, and what to compare that with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from embedded.demo.cuts import Cuts
from embedded.demo.history import History
from embedded.demo.site import Site
from embedded.demo.stage import Stage
from embedded.demo.traffic import Traffic
from embedded.demo.verdict import Check, compare_rows, key_of
from embedded.demo.view_door import View
from embedded.demo.view_verdict import compare_seen
from embedded.oracle import Row
from thermocline.rules.read_point import ReadPoint

PINNED_NAME: Final = "demo"
LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class ViewAnswers:
    """All rows of each view, and of one pinned at the extract's read point; how far the log had come."""

    live: Sequence[Row]
    by_key: Sequence[Row]
    pinned: Sequence[Row]
    cuts: Cuts


def ask_views(site: Site, point: ReadPoint, stage: Stage) -> ViewAnswers | None:
    """Everything that the views say, nothing being written meanwhile; None without Trino."""
    if site.connect is None:
        return None
    margin_seconds = site.stack.settings.views.margin_seconds
    cuts = Cuts(site.oracle.records(), round(margin_seconds * 1000))
    door = site.view_door()
    task = stage.begin("pin the extract's moment")
    pin = ("views", "pin", site.table, "--at", point.to_header(), "--name", PINNED_NAME)
    site.stack.run("views-pin", *pin)
    pinned = door.all_rows(f"at_{PINNED_NAME}")
    stage.end(task, f"{len(pinned):,} rows in {site.table_in_trino}_at_{PINNED_NAME}")
    task = stage.begin("ask both live views")
    by_key = door.all_rows(View.BY_KEY)
    # The full view leaves out what is younger than its margin; by now little is.
    while site.clock.now_ms() <= cuts.newest_ms + margin_seconds * 1000:
        site.clock.sleep(LOOK_SECONDS)
    live = door.all_rows(View.LIVE)
    stage.end(task, f"{len(live):,} rows, {len(by_key):,} by key")
    return ViewAnswers(live, by_key, pinned, cuts)


def comparisons(
    answers: ViewAnswers | None, traffic: Traffic, history: History, extracted: Sequence[Row]
) -> Mapping[str, Callable[[], Check]]:
    """What there is to compare, by name; nothing without Trino."""
    if answers is None:
        return {}
    rows = history.rows()
    of_extract = {key_of(row): row for row in extracted}
    return {
        "the live view": lambda: compare_rows(rows, answers.live),
        "the live view by key": lambda: compare_rows(rows, answers.by_key),
        "the pinned view": lambda: compare_rows(rows, answers.pinned),
        "the pinned view, extracted": lambda: compare_rows(of_extract, answers.pinned, "the extract"),
        "the views under way": lambda: compare_seen(
            traffic.seen, traffic.refused_by_trino, history, answers.cuts
        ),
    }

"""What a comment tells, and when a view has to be replaced."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.views.test_lifetime import NOW
from thermocline.rules.definition import LiveTable
from thermocline.rules.seam import Seam
from thermocline.views.plan import PlannedView, instant_of
from thermocline.views.published import PublishedView, ViewAction, verdict
from thermocline.views.render import Mode, ViewPlan
from thermocline.views.render_view import withdrawn_view
from thermocline.views.render_window import LogWindow
from thermocline.views.sql import literal

DEFINITION = LiveTable.build(
    name="t", identifier="app.t", topics=["t"], key=["id"], columns={"id": "int", "value": "string"}
)
SEAM, END = Seam({("t", 0): 10}), Seam({("t", 0): 30})
NUMBERS = {1: 1, 2: 2}
LIFE_MS = 1_000_000


def planned(
    until_ms: int | None = NOW + LIFE_MS, end: Seam | None = END, snapshot_id: int = 1, **more: Any
) -> PlannedView:
    margin_ms = None if end is not None else 2_000
    window = LogWindow("kafka", ("t",), SEAM, end=end, margin_ms=margin_ms)
    plan = ViewPlan(Mode.LIVE, DEFINITION, "lake", snapshot_id, window, instant_of(until_ms), **more)
    return PlannedView(plan, until_ms, "it's a reason")


def judged(found: PlannedView, wanted: PlannedView, now_ms: int = NOW) -> ViewAction:
    return verdict(PublishedView.parse(found.comment), wanted, now_ms, NUMBERS.get)


def test_a_comment_says_all_that_is_compared() -> None:
    found = PublishedView.parse(planned().comment)
    assert found == PublishedView("live", "app.t", 1, planned().digest, END, NOW + LIFE_MS, None, 1)


def test_a_view_of_a_live_table_is_replaced_with_the_definition_and_not_with_a_snapshot() -> None:
    """A view keeps the types of its columns, and those may change while the text stays the same."""
    found = planned(None, live="live")
    said = PublishedView.parse(found.comment)
    assert said == PublishedView("live", "app.t", None, found.digest, None, None, None, 1)
    assert judged(found, planned(None, snapshot_id=2, live="live")) is ViewAction.KEEP
    altered = replace(found, plan=replace(found.plan, definition=replace(DEFINITION, version=2)))
    assert judged(found, altered) is ViewAction.REPLACE
    for other in (planned(), planned(None, live="elsewhere")):
        assert judged(found, other) is judged(other, found) is ViewAction.REPLACE


def test_the_statement_carries_that_comment_and_says_when_the_view_ends() -> None:
    statement = planned().statement
    assert f"COMMENT {literal(planned().comment)}\n" in statement
    assert statement.startswith("-- app.t_live ends at ")
    assert "it's a reason" in statement.splitlines()[0]


@pytest.mark.parametrize(
    "comment",
    [
        None,
        "",
        "words",
        "[]",
        "{}",
        '{"thermocline": 1}',
        '{"thermocline": {"mode": "live"}}',
        "5",
        '{"a": 1}',
    ],
)
def test_another_comment_is_not_ours(comment: str | None) -> None:
    assert PublishedView.parse(comment) is None


def test_the_same_view_is_kept_and_a_view_that_is_not_there_is_made() -> None:
    assert judged(planned(), planned()) is ViewAction.KEEP
    assert verdict(None, planned(), NOW, NUMBERS.get) is ViewAction.REPLACE


@pytest.mark.parametrize(
    "other",
    [
        planned(snapshot_id=2),
        planned(row_filter="id = 1"),
        planned(end=None),
        planned(end=Seam({("t", 0): 31})),
    ],
)
def test_a_view_that_shows_something_else_is_replaced(other: PlannedView) -> None:
    assert judged(planned(), other) is ViewAction.REPLACE


def test_a_newer_view_is_never_replaced_by_an_older_one() -> None:
    assert judged(planned(snapshot_id=2), planned(snapshot_id=1)) is ViewAction.NEWER


def test_a_view_that_ends_beyond_the_log_is_replaced() -> None:
    """The log was asked after the view was found, and is shorter: what it gains next would be in the view."""
    assert judged(planned(), planned(end=Seam({("t", 0): 29}))) is ViewAction.REPLACE


def test_a_snapshot_that_the_table_does_not_have_is_none_to_wait_for() -> None:
    """The view was found before the table was loaded: its snapshot is expired, or of a table that is gone."""
    assert judged(planned(snapshot_id=9), planned()) is ViewAction.REPLACE


def test_a_withdrawn_view_is_replaced_once_there_is_something_to_show() -> None:
    comment = withdrawn_view(DEFINITION, "lake", Mode.LIVE, "[offsets-gone] it's gone").split("COMMENT '")[1]
    found = PublishedView.parse(comment.split("'\nSECURITY")[0].replace("''", "'"))
    assert found is not None
    assert found.withdrawn == "[offsets-gone] it's gone"
    assert verdict(found, planned(), NOW, NUMBERS.get) is ViewAction.REPLACE


def test_it_is_replaced_when_half_of_its_life_is_over_and_another_would_live_longer() -> None:
    later = planned(until_ms=NOW + LIFE_MS // 2 + LIFE_MS)
    assert judged(planned(), later, NOW + LIFE_MS // 10) is ViewAction.KEEP
    assert judged(planned(), later, NOW + LIFE_MS // 2) is ViewAction.KEEP
    assert judged(planned(), later, NOW + LIFE_MS // 2 + 1) is ViewAction.REPLACE
    assert judged(planned(), planned(), NOW + LIFE_MS // 2) is ViewAction.KEEP


def test_a_life_that_became_shorter_counts_at_once() -> None:
    assert judged(planned(), planned(until_ms=NOW + LIFE_MS - 1)) is ViewAction.REPLACE
    assert judged(planned(until_ms=None), planned()) is ViewAction.REPLACE
    assert judged(planned(), planned(until_ms=None)) is ViewAction.REPLACE
    assert judged(planned(until_ms=None), planned(until_ms=None)) is ViewAction.KEEP


def test_the_digest_is_of_what_a_view_shows_and_not_of_its_end() -> None:
    assert planned(until_ms=None).digest == planned().digest
    assert replace(planned(), because="another").digest == planned().digest

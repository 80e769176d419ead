"""What a rewrite would take, by those that were made; and how views stand beside the newest snapshot."""

from __future__ import annotations

import pytest

from thermocline.serving.status.debt import debt_of
from thermocline.serving.status.document import BucketStatus
from thermocline.serving.status.view_states import view_states
from thermocline.serving.tail.table_facts import CommitFact, RewriteFact, TableFacts, VersionFact, ViewFact


def bucket(number: int, dead_rows: int, rewrite_bytes: int) -> BucketStatus:
    return BucketStatus(
        bucket=number,
        files=3,
        bytes=9_000,
        rows=100,
        dead_rows=dead_rows,
        delete_files=2,
        rewrite_bytes=rewrite_bytes,
        is_bad=False,
    )


def test_a_rewrite_takes_as_long_for_each_byte_as_those_before() -> None:
    buckets = [bucket(0, 25, 6_000), bucket(1, 0, 0), bucket(2, 300, 4_000)]
    rewrites = [RewriteFact(1_000, 1.0), RewriteFact(3_000, 1.0)]
    debt = debt_of(buckets, rewrites)
    assert (debt.dead_rows, debt.delete_files, debt.rewrite_bytes) == (325, 6, 10_000)
    assert debt.rewrite_seconds == 5.0
    assert debt.worst_dead_share == 0.75
    assert debt_of(buckets).rewrite_seconds is None, "there was none"
    assert debt_of([bucket(1, 0, 0)], rewrites).rewrite_seconds == 0.0


@pytest.mark.parametrize(
    ("view", "state"),
    [
        (ViewFact("app.t_live", "live", "12", None, 2, ""), "newest"),
        (ViewFact("app.t_live", "live", "11", None, 2, ""), "older"),
        (ViewFact("app.t_live", "live", "12", 5_000, 2, ""), "ended"),
        (ViewFact("app.t_live", "live", "12", 5_001, 2, ""), "newest"),
        (ViewFact("app.t_live", "live", None, None, 2, ""), "now"),
        (ViewFact("app.t_live", "live", None, None, 1, ""), "older"),
        (ViewFact("app.t_live", "live", None, None, 2, "[offsets-gone] no"), "withdrawn"),
    ],
)
def test_a_view_stands_as_it_does_beside_the_newest_snapshot(view: ViewFact, state: str) -> None:
    commits = tuple(CommitFact(one, 0, "commit", 0, 0, 0, None) for one in ("12", "11"))
    versions = (VersionFact(1, 0), VersionFact(2, 0))
    facts = TableFacts("uuid", 0, 60.0, recent=commits, versions=versions, views=(view,))
    assert [one.state for one in view_states(facts, now_ms=5_000)] == [state]

"""Which snapshots may leave the metadata."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pyiceberg.table.refs import SnapshotRef
from pyiceberg.table.snapshots import Snapshot

from thermocline.iceberg.lineage import lineage
from thermocline.maintenance.expiry import KeepRule, expirable

NOW_MS = 10**12
HOUR_MS = 3_600_000
RULE = KeepRule(seconds=4 * 3_600)


def table_of(ages_hours: list[float], foreign: frozenset[int] = frozenset(), **refs: SnapshotRef) -> Any:
    """A history of one snapshot after another, with ids from 1 on, oldest first."""
    snapshots = [
        Snapshot.model_validate(
            {
                "snapshot-id": number,
                "parent-snapshot-id": number - 1 or None,
                "sequence-number": number,
                "timestamp-ms": NOW_MS - int(age * HOUR_MS),
                "manifest-list": f"file:///{number}",
                "summary": {"operation": "append"}
                | ({} if number in foreign else {"thermocline.seam": "{}"}),
            }
        )
        for number, age in enumerate(ages_hours, start=1)
    ]
    main = ref_of(len(snapshots), "branch")
    # Without PyIceberg's `snapshot_by_id`, which looks through all of them each time.
    metadata = SimpleNamespace(refs={"main": main} | refs)
    return SimpleNamespace(
        snapshots=lambda: snapshots, current_snapshot=lambda: snapshots[-1], metadata=metadata
    )


def ref_of(snapshot_id: int, kind: str) -> SnapshotRef:
    return SnapshotRef.model_validate({"snapshot-id": snapshot_id, "type": kind})


def ids(table: Any, rule: KeepRule = RULE, leased: frozenset[int] = frozenset()) -> list[int]:
    return [snapshot.snapshot_id for snapshot in expirable(table, leased, rule, NOW_MS)]


def test_old_snapshots_go_but_the_newest_ten_stay() -> None:
    assert ids(table_of([100.0 - n for n in range(20)])) == list(range(1, 11))
    assert ids(table_of([5.0] * 5 + [0.5] * 20)) == [1, 2, 3, 4, 5]


def test_beyond_a_number_younger_ones_go_too_but_none_of_the_last_twenty_minutes() -> None:
    ages = [1.0 - n / 1000 for n in range(600)] + [0.2] * 100
    assert ids(table_of(ages)) == list(range(1, 201))
    assert ids(table_of([0.3] * 700)) == []


def test_a_lease_keeps_what_it_names() -> None:
    assert ids(table_of([9.0] * 15), leased=frozenset({2})) == [1, 3, 4, 5]


def test_what_a_tag_or_a_branch_names_stays() -> None:
    tag = ref_of(2, "tag")
    assert ids(table_of([9.0] * 15, month=tag)) == [1, 3, 4, 5]
    branch = ref_of(3, "branch")
    assert ids(table_of([9.0] * 15, audit=branch)) == [4, 5]


def test_the_newest_snapshot_with_a_seam_stays_whatever_came_after_it() -> None:
    table = table_of([9.0] * 20, foreign=frozenset(range(4, 21)))
    assert ids(table) == [1, 2, *range(4, 11)]


def test_a_history_is_walked_from_the_newest_snapshot_as_far_as_it_is_needed() -> None:
    table = table_of([9.0] * 20)
    assert [link.snapshot_id for link in lineage(table)] == list(range(1, 21))
    table.snapshots()[:] = [one for one in table.snapshots() if one.snapshot_id != 12]
    newest = [[link.snapshot_id for link in lineage(table, count)] for count in (1, 3, 99)]
    assert newest == [[20], [18, 19, 20], list(range(13, 21))]

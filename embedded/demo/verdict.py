"""The verdict: answers against the oracle, key by key. Values in, differences out."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from embedded.demo.commits import Commit
from embedded.demo.history import History
from embedded.demo.lookups import Entity, read_point_of, row_of_json
from embedded.demo.readers import Kept
from embedded.oracle import Row, RowKey
from thermocline.rules.seam import Seam
from thermocline.text.shown import Columns, json_form, json_text

OUTCOMES = ("applied", "superseded", "unchanged", "quarantined", "skipped", "filtered")


@dataclass(frozen=True, slots=True)
class Check:
    """One comparison: what was compared, and a sentence for each difference."""

    compared: str
    differences: tuple[str, ...]

    @property
    def agrees(self) -> bool:
        """Whether nothing differs."""
        return not self.differences

    @property
    def outcome(self) -> str:
        """In words."""
        return "all agree" if self.agrees else f"{len(self.differences):,} DIFFERENCES"


def compare_rows(oracle: Mapping[RowKey, Row], answered: Iterable[Row], truth: str = "the oracle") -> Check:
    """Whether exactly the oracle's rows were answered, each once and with its values.

    ``truth`` is what stands for the oracle in the sentences.
    """
    found: dict[RowKey, Row] = {}
    differences: list[str] = []
    for row in answered:
        key = key_of(row)
        if key in found:
            differences.append(f"{named(key)}: answered twice, {_said(found[key])} and {_said(row)}")
        found[key] = row
    return Check(f"{len(oracle):,} rows, key by key", (*differences, *differing(oracle, found, truth)))


def compare_kept(kept: Sequence[Kept], history: History) -> Check:
    """Whether each answer was right at its own read point, and none went back behind an earlier one."""
    differences: list[str] = []
    reached = Seam()
    for answer in kept:
        document = json.loads(answer.content)
        point = read_point_of(document)
        rows = {key_of(row): row for row in map(row_of_json, document["rows"])}
        if len(rows) < len(document["rows"]):
            differences.append(f"{named(answer.entity)}: a row twice at {point.to_header()}")
        oracle = history.rows_of(answer.entity, point.end)
        differences += [f"{line}, at {point.to_header()}" for line in differing(oracle, rows)]
        if not point.end.at_least(reached):
            differences.append(
                f"{named(answer.entity)}: answered at {point.end}, after an answer at {reached}"
            )
        reached = reached.merged_max(point.end)
    return Check(f"{len(kept):,} lookups, each as of its own read point", tuple(differences))


def compare_accounts(
    start: Seam, commits: Sequence[Commit], garbage: Sequence[tuple[str, int, int]]
) -> Check:
    """Whether every record between two seams is accounted for, and what was set aside is the garbage alone.

    ``garbage`` has the topic, partition and offset of each bad record.
    """
    differences: list[str] = []
    seam = start
    for commit in commits:
        records = sum(offset - seam.get((topic, p)) for topic, p, offset in commit.seam.items())
        accounted = sum(commit.counts.get(outcome, 0) for outcome in OUTCOMES)
        if not records == commit.counts["read"] == accounted:
            differences.append(
                f"snapshot {commit.snapshot_id}: {records} records up to its seam, "
                f"{commit.counts['read']} read, {accounted} accounted for"
            )
        seam = commit.seam
    due = sum(seam.covers(*place) for place in garbage)
    quarantined = sum(commit.counts.get("quarantined", 0) for commit in commits)
    if quarantined != due:
        differences.append(f"{due} bad records were committed past, {quarantined} are in quarantine")
    total = sum(commit.counts["read"] for commit in commits)
    compared = f"{total:,} records in {len(commits)} commits, {quarantined} quarantined"
    return Check(compared, tuple(differences))


def differing(
    oracle: Mapping[RowKey, Row], found: Mapping[RowKey, Row], truth: str = "the oracle"
) -> list[str]:
    """A sentence for each key on which the two sides differ, sorted by key."""
    return [
        f"{named(key)}: {truth} says {_said(oracle.get(key))}, the answer {_said(found.get(key))}"
        for key in sorted(oracle.keys() | found.keys())
        if oracle.get(key) != found.get(key)
    ]


def key_of(row: Row) -> RowKey:
    """A row's key."""
    return row["app_id"], row["user_id"], row["key"]


def named(key: RowKey | Entity) -> str:
    """A row's key, or an entity, by its columns."""
    return str(Columns(zip(("app_id", "user_id", "key"), key, strict=False)))


def _said(row: Row | None) -> str:
    return (
        "that there is no such row"
        if row is None
        else f"{json_text(row['value'])} ({json_form(row['updated_at'])})"
    )

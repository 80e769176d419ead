"""The snapshots of main that a table still holds, oldest first, and what each of them says of itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from pyiceberg.table.snapshots import Snapshot

from thermocline.errors import ThermoclineError, first_line
from thermocline.iceberg.catalog import (
    SUMMARY_ACCEPTED,
    SUMMARY_CARRIED,
    SUMMARY_REPLAYED,
    SUMMARY_SEAM,
    SUMMARY_TAKEN_IN,
    SUMMARY_TAKEN_OVER,
    SUMMARY_TOPICS_ADDED,
    SUMMARY_TOPICS_LEFT,
    SnapshotState,
    ancestors,
    is_rewrite,
    state_of,
)
from thermocline.iceberg.expired import expired_lineage

if TYPE_CHECKING:
    from pyiceberg.table import Table

__all__ = ["Link", "lineage", "link_of", "links_back", "whole_lineage"]


@dataclass(frozen=True, slots=True)
class Link:
    """One snapshot of main, and what it says of itself.

    ``state`` is None where it carries no seam (``is_foreign``), or where what it says can't be read
    (``problem``).
    """

    snapshot: Snapshot
    summary: Mapping[str, str]
    state: SnapshotState | None
    problem: str = ""

    @property
    def snapshot_id(self) -> int:
        """The snapshot's id."""
        return self.snapshot.snapshot_id

    @property
    def is_foreign(self) -> bool:
        """Whether another writer made it."""
        return SUMMARY_SEAM not in self.summary

    @property
    def is_first(self) -> bool:
        """Whether the table began with it."""
        return self.snapshot.parent_snapshot_id is None

    @property
    def is_accepted(self) -> bool:
        """Whether somebody accepted with it that the log does not go on where the table was."""
        return SUMMARY_ACCEPTED in self.summary

    @property
    def is_replay(self) -> bool:
        """Whether its records come from the quarantine, so from before its seam."""
        return SUMMARY_REPLAYED in self.summary

    @property
    def is_rotation(self) -> bool:
        """Whether topics came or left with it by themselves: nothing else of the definition changed."""
        return SUMMARY_TOPICS_ADDED in self.summary or SUMMARY_TOPICS_LEFT in self.summary

    @property
    def taken_in(self) -> str:
        """What its rows were taken from, where that is no topic of the table; else empty."""
        return self.summary.get(SUMMARY_TAKEN_IN, "")

    @property
    def is_beside_the_log(self) -> bool:
        """Whether it says more than the log between its seam and that of the snapshot before."""
        return self.is_replay or bool(self.taken_in)

    @property
    def carried(self) -> int:
        """How many rows it wrote that were there before, in files that it merged."""
        text = self.summary.get(SUMMARY_CARRIED, "0")
        return int(text) if text.isdecimal() else 0

    @property
    def taken_over(self) -> tuple[int, ...]:
        """Snapshots of others that were proved to be rewrites when it came on top of them, oldest first."""
        ids = self.summary.get(SUMMARY_TAKEN_OVER, "").split(",")
        return tuple(int(one) for one in ids if one.isdecimal())

    @property
    def is_rewrite(self) -> bool:
        """Whether it says that it changed files and no rows, as compaction does."""
        return is_rewrite(self.snapshot)


def lineage(table: Table, newest: int | None = None) -> tuple[Link, ...]:
    """The snapshots of main that the table still holds, oldest first; of these so many of the newest.

    Empty for a table without any.
    """
    return tuple(link_of(one) for one in islice(ancestors(table), newest))[::-1]


def whole_lineage(table: Table) -> tuple[Link, ...]:
    """The same, and before them those that were expired, as far as maintenance noted what they said.

    Of these, files may be gone; but for single ones that a view, a tag or a reader kept in the metadata.
    Raises `OSError` where notes can't be read.
    """
    return tuple(links_back(table))[::-1]


def links_back(table: Table) -> Iterator[Link]:
    """The same, newest first, and none of them held: there may be a hundred thousand expired ones."""
    oldest = None
    for oldest in ancestors(table):
        yield link_of(oldest)
    if oldest is not None and oldest.parent_snapshot_id is not None:
        yield from map(link_of, expired_lineage(table, oldest.parent_snapshot_id))


def link_of(snapshot: Snapshot) -> Link:
    """What a snapshot says of itself."""
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    state, problem = None, ""
    if SUMMARY_SEAM in summary:
        try:
            with suppress(ThermoclineError):  # it carries no seam
                state = state_of(snapshot, "")
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            problem = first_line(error)
    return Link(snapshot, summary, state, problem)

"""The answers of the views under way against the oracle: each as of some moment while it was asked for."""

from __future__ import annotations

from collections.abc import Sequence

from embedded.demo.cuts import Cuts, Place
from embedded.demo.history import History
from embedded.demo.verdict import Check, differing, key_of
from embedded.demo.view_door import Seen, View
from embedded.oracle import Row, RowKey
from thermocline.rules.seam import Seam

Reached = dict[tuple[View, Place], int]
"""How far the answers to one session have come."""


def compare_seen(sessions: Sequence[Sequence[Seen]], refused: int, history: History, cuts: Cuts) -> Check:
    """Whether each answer was right at some point between its question and itself, in every partition.

    Of a session's answers none may go back behind an earlier one. Answers say nothing of where they stand,
    so it is taken that each stands where it must stand at least.
    """
    differences: list[str] = []
    for answers in sessions:
        reached: Reached = {}
        for seen in answers:
            differences += _of_rows(seen, history, cuts, reached) if seen.entities else _of_count(seen, cuts)
    count = sum(map(len, sessions))
    if not count:
        differences.append("Trino gave no answer at all")
    words = f", {refused:,} refused" if refused else ""
    return Check(f"{count:,} answers from Trino{words}, each as of when it was asked", tuple(differences))


def _of_rows(seen: Seen, history: History, cuts: Cuts, reached: Reached) -> list[str]:
    found: dict[RowKey, Row] = {key_of(row): row for row in seen.rows}
    name = f"{seen.view} of {', '.join(user_id for _, user_id in seen.entities)}"
    if len(found) < len(seen.rows):
        return [f"{name}: a row twice"]
    stood: dict[Place, int] = {}
    for place in cuts.places:
        least = max(cuts.least(place, seen), reached.get((seen.view, place), 0))
        most = max(least, cuts.most(place, seen))
        cut = history.cut_of(seen.entities, place, found, least, most)
        # Where there is none, the least one shows the difference.
        stood[place] = least if cut is None else cut
        reached[seen.view, place] = stood[place]
    end = Seam(stood)
    oracle = {key: row for entity in seen.entities for key, row in history.rows_of(entity, end).items()}
    return [f"{name}: {line}, from {end} on" for line in differing(oracle, found)]


def _of_count(seen: Seen, cuts: Cuts) -> list[str]:
    fewest, most = cuts.row_counts(seen)
    if fewest <= seen.count <= most:
        return []
    return [f"{seen.view}: {seen.count:,} rows, where there were {fewest:,} to {most:,}"]

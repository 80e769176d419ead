"""An explained lookup: each row of an entity, and where it came from.

The reader's own steps are taken one by one, so that the rows are those of a lookup at the same read point.
Whoever asks is told no more of them than a lookup shows.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from msgspec import Raw, json

from thermocline.serving.cold.entity_rows import NO_ROWS, joined
from thermocline.serving.cold.place import RecordPlace
from thermocline.serving.read.look import counting
from thermocline.serving.store.storage import failures_noted, storage_named

if TYPE_CHECKING:
    from collections.abc import Mapping

    from thermocline.process.clock import Clock
    from thermocline.serving.cold.entity_rows import EntityRows, JsonRow, JsonRows
    from thermocline.serving.cold.place import ColdPlace
    from thermocline.serving.cold.reader import Entity
    from thermocline.serving.read.look import Hits, Look
    from thermocline.serving.read.lookup import TableReader
    from thermocline.serving.read.sight import Sight


@dataclass(frozen=True, slots=True)
class Looked:
    """A look for one entity, or for none where none of its rows may be seen; and the seconds it took."""

    look: Look
    seconds: float


@dataclass(frozen=True, slots=True)
class ExplainedRow:
    """A row as a lookup sends it, or None if a tombstone deleted it, and where it came from.

    ``hot`` is the record that decided about the row. Without one, the row is the snapshot's, and ``cold`` is
    its place there; or it was deleted, and the tombstone's place is not known. ``replaced`` is the cold row
    that the record took the place of; then ``cold`` is the place of that one.
    """

    row: JsonRow | None
    hot: RecordPlace | None
    cold: ColdPlace | None
    replaced: JsonRow | None


@dataclass(frozen=True, slots=True)
class StepSeconds:
    """The seconds that each step took: the view of the hot tier, the cold rows, the overlay, the places."""

    look: float
    cold_rows: float = 0.0
    overlay: float = 0.0
    places: float = 0.0


@dataclass(frozen=True, slots=True)
class Explained:
    """The rows of an entity by ``look``, sorted by key and with those that were deleted."""

    rows: tuple[ExplainedRow, ...]
    look: Look
    seconds: StepSeconds

    @property
    def live_rows(self) -> JsonRows:
        """The rows as a lookup sends them."""
        return joined(one.row for one in self.rows if one.row is not None)


def looked(reader: TableReader, entity: Entity, sight: Sight, clock: Clock) -> Looked:
    """The first step, of the thread that looks. Raises as `TableReader.look`."""
    began_at = clock.monotonic()
    look = reader.look((entity,) if sight.may_see(entity) else ())  # safety: explained-entity
    return Looked(look, clock.monotonic() - began_at)


def explain(reader: TableReader, begun: Looked, sight: Sight, clock: Clock) -> Explained:
    """The rest of an explained lookup. Reads files.

    Whoever sees only a part of the table is told neither of deleted rows nor of files.

    Raises `StorageFailed` where a file can't be read.
    """
    look = begun.look
    if not look.entities:
        return Explained((), look, StepSeconds(begun.seconds))
    (entity,), (hits,) = look.entities, look.hits
    times = [clock.monotonic()]
    with storage_named(reader.name):
        cold = reader.cold_rows(look.cold, entity)
    times.append(clock.monotonic())
    (rows,) = reader.overlay(look, (cold,))
    times.append(clock.monotonic())
    places: Mapping[bytes, ColdPlace] = {}
    if sight.is_whole:  # safety: explained-files
        with storage_named(reader.name), failures_noted(look.cold.reader):
            places = look.cold.reader.places(look.cold.index, entity)
    times.append(clock.monotonic())
    explained = _explained(dict(counting(cold, hits)), cold, json.decode(rows, type=list[Raw]), places)
    seen = tuple(one for row in explained if (one := _seen(row, sight)) is not None)
    return Explained(seen, look, StepSeconds(begun.seconds, *(b - a for a, b in pairwise(times))))


def _explained(
    hits: Hits, cold: EntityRows, rows: list[Raw], places: Mapping[bytes, ColdPlace]
) -> list[ExplainedRow]:
    before = cold.by_key()
    keys = sorted({*before, *hits})
    deleted = {key for key, hit in hits.items() if hit is None or not hit.payload}
    laid = dict(zip([key for key in keys if key not in deleted], map(bytes, rows), strict=True))
    found = []
    for key in keys:
        hit = hits.get(key)
        hot = RecordPlace(hit.topic, hit.partition, hit.offset, hit.timestamp_ms) if hit else None
        replaced = before.get(key) if key in hits else None
        if key in deleted and replaced is None:
            continue  # a row that came and went beyond the seam
        found.append(ExplainedRow(laid.get(key), hot, places.get(key), replaced))
    return found


def _seen(row: ExplainedRow, sight: Sight) -> ExplainedRow | None:
    """What may be seen of a row; None if a lookup would not tell of it."""
    if sight.is_whole:
        return row
    shown = _seen_row(row.row, sight)
    if shown is None:  # safety: explained-rows
        return None
    replaced = _seen_row(row.replaced, sight)  # safety: explained-replaced
    return ExplainedRow(shown, row.hot, row.cold, replaced)


def _seen_row(row: JsonRow | None, sight: Sight) -> JsonRow | None:
    if row is None:
        return None
    rows = sight.rows(b"[%b]" % row)
    return None if rows == NO_ROWS else rows[1:-1]

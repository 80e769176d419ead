"""Looks at a table: a view of the hot tier, the snapshot below it, and the read point of both."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from thermocline.rules.fold import loses
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.serving.cold.entity_rows import EntityRows
from thermocline.serving.cold.row_json import RowJson
from thermocline.serving.store.fed_by import fed_by

if TYPE_CHECKING:
    from thermocline.serving.cold.entity_rows import JsonRows
    from thermocline.serving.cold.index import ColdIndex, ColdRows
    from thermocline.serving.cold.reader import Entity
    from thermocline.serving.hot.record import HotRow
    from thermocline.serving.hot.view import HotView


Hits = Mapping[bytes, "HotRow | None"]


def counting(cold: EntityRows, hits: Hits) -> Iterator[tuple[bytes, HotRow | None]]:
    """The hits of an entity that do not lose against its cold rows, each with its key."""
    return (
        (key, row)
        for key, row in hits.items()
        if row is None or not loses(row.sequence, cold.sequences.get(key))
    )


# What a hot row and its key take beside their bytes.
HIT_OVERHEAD_BYTES: Final = 300


@dataclass(frozen=True, slots=True)
class ColdSide:
    """One snapshot and what reads it; replaced as a whole when a newer one is served."""

    index: ColdIndex
    reader: ColdRows
    rows: RowJson


class Look(NamedTuple):
    """What one view of the hot tier gave, and the snapshot that it is to be laid over.

    ``hits`` has one mapping for each entity asked for: key → row, or None for a tombstone. ``point_number``
    counts the reader's read points: at the same one, an entity has the same rows. ``known`` has these as they
    are sent, or None for an entity that was not asked for at this one. ``age_seconds`` is infinite before the
    log was read to its end for the first time, in every partition that the seam names.
    """

    cold: ColdSide
    entities: Sequence[Entity]
    hits: Sequence[Hits]
    known: Sequence[JsonRows | None]
    read_point: ReadPoint
    read_point_json: bytes
    point_number: int
    age_seconds: float
    is_stale: bool


@dataclass(frozen=True, slots=True)
class HeldView:
    """A view of the hot tier that stays open until its ``__exit__`` is called, and how old it is.

    It fits the snapshot of ``index``; a lookup in both has the read point.
    """

    view: HotView
    age_seconds: float
    index: ColdIndex
    read_point: ReadPoint


@dataclass(slots=True)
class LaidRows:
    """An entity's rows as they are sent, what they were made of, and the last read point that has them."""

    entity: Entity
    form: RowJson
    cold: EntityRows
    hits: Hits
    json: JsonRows
    point_number: int

    @property
    def weight(self) -> int:
        """About the bytes of memory that it takes, cold rows included: the other cache may let go of them."""
        own = len(self.json) if self.hits else 0  # without hits, it is the cold rows' own
        hot = sum(
            len(key) + HIT_OVERHEAD_BYTES + len(row.payload if row else b"") for key, row in self.hits.items()
        )
        return self.cold.weight + own + hot + 2 * len(self.entity.prefix) + HIT_OVERHEAD_BYTES


@dataclass(frozen=True, slots=True)
class Reached:
    """What the last answer reached, kept with its JSON: most answers share it with the one before.

    ``start`` and ``hot_end`` are those of its view of the hot tier, which fitted the snapshot.
    """

    index: ColdIndex
    start: Seam
    hot_end: Seam
    read_point: ReadPoint
    read_point_json: bytes
    point_number: int
    has_all_partitions: bool


def comparable_end(index: ColdIndex, last: Reached) -> Seam:
    """The end of an earlier answer, of the topics whose offsets mean the same records for this snapshot."""
    before, end = last.index, last.read_point.end
    if index.table_uuid != before.table_uuid:
        return Seam()
    if index.source == before.source:
        return end
    shared = fed_by(index.source).shared_with(fed_by(before.source))
    return end.only(shared.intersection(index.definition.topics))


def has_all_partitions(index: ColdIndex, view: HotView) -> bool:
    """Whether the hot tier reads every partition that the seam names of the topics that feed the table."""
    topics, end = index.definition.topics, view.end
    return all((topic, p) in end for topic, p, _ in index.seam.items() if topic in topics)

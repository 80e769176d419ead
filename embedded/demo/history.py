"""What each row was at any read point, so that an answer from the midst of the traffic can be judged."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from embedded.demo.lookups import Entity
from embedded.oracle import Acknowledged, Row, RowKey, row_of
from thermocline.rules.seam import Seam


@dataclass(slots=True)
class _Versions:
    """One row's records, by offset; they are all in one partition, as its key is always the same."""

    place: tuple[str, int]
    offsets: list[int] = field(default_factory=list)
    rows: list[Row | None] = field(default_factory=list)

    def before(self, cut: int) -> Row | None:
        newest = bisect_left(self.offsets, cut) - 1
        return self.rows[newest] if newest >= 0 else None


class History:
    """All that was acknowledged, in the order of the log."""

    def __init__(self, records: Iterable[Acknowledged]) -> None:
        """Takes the records partition by partition, in the order of the offsets."""
        self._entities: defaultdict[Entity, dict[RowKey, _Versions]] = defaultdict(dict)
        for record in records:
            key, row = row_of(record)
            place = (record.topic, record.partition)
            versions = self._entities[key[:2]].setdefault(key, _Versions(place))
            assert versions.place == place, f"{key} was written to two partitions"
            versions.offsets.append(record.offset)
            versions.rows.append(row)

    def rows(self) -> dict[RowKey, Row]:
        """All rows, from all records."""
        versions = (item for rows in self._entities.values() for item in rows.items())
        newest = ((key, of_row.rows[-1]) for key, of_row in versions)
        return {key: row for key, row in newest if row is not None}

    def rows_of(self, entity: Entity, end: Seam) -> dict[RowKey, Row]:
        """The rows of an entity, from the records before ``end``."""
        found = {
            key: versions.before(end.get(versions.place))
            for key, versions in self._entities.get(entity, {}).items()
        }
        return {key: row for key, row in found.items() if row is not None}

    def cut_of(
        self,
        entities: Sequence[Entity],
        place: tuple[str, int],
        found: Mapping[RowKey, Row],
        least: int,
        most: int,
    ) -> int | None:
        """The least cut of a partition at which the entities' rows there were those found.

        It lies between ``least`` and ``most``, both included; None where there is none.
        """
        rows = (item for entity in entities for item in self._entities.get(entity, {}).items())
        here = [(key, versions) for key, versions in rows if versions.place == place]
        changes = {
            offset + 1 for _, versions in here for offset in versions.offsets if least <= offset < most
        }
        for cut in sorted({least, *changes}):
            if all(versions.before(cut) == found.get(key) for key, versions in here):
                return cut
        return None

"""A merge of two neighbouring sealed generations into one, a little at a time."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from thermocline.failpoints import failpoint
from thermocline.serving.hot import ordered, partial
from thermocline.serving.hot.generation import Covered, Generation, Meta

if TYPE_CHECKING:
    import lmdb

    from thermocline.rules.definition import LiveTable

    Stored = tuple[bytes, bytes]
    LaidOver = Callable[[Iterable[Stored], Mapping[bytes, bytes], lmdb.Transaction[bytes]], Iterator[Stored]]

# Copied in 2 to 4 ms, which is all that a step delays the tailer by.
STEP_RECORDS: Final = 4_000
# The newer one's records go in between the older one's, so pages split, and each step copies what it changes.
ROOM: Final = 4
MAP_BYTES_MIN: Final = 4 << 20


class Merge:
    """The making of one generation from two. Nobody else sees it before it is done.

    ``laid_over`` is how the newer one's records meet those of the older one; None: they take their place.
    """

    def __init__(
        self, path: Path, older: Generation, newer: Generation, laid_over: LaidOver | None = None
    ) -> None:
        """Creates the file; the two stay as they are."""
        self.older = older
        self.newer = newer
        map_bytes = max(MAP_BYTES_MIN, ROOM * (older.used_bytes + newer.used_bytes))
        self.merged = Generation(path, map_bytes, is_writer=True)
        self._laid_over_by = laid_over
        self._is_whole = False
        self._steps = self._run()

    def is_done(self) -> bool:
        """Takes one step, and tells whether all is copied. One that failed never is done."""
        failpoint("hot.merge")
        next(self._steps, None)  # safety: merge-whole
        return self._is_whole

    def abandon(self) -> None:
        """Removes what was made."""
        self._steps.close()
        self.merged.delete()

    def _run(self) -> Generator[None]:
        for source in (self.older, self.newer):  # safety: hot-merge-order
            with source.read() as transaction:
                records = source.all_records(transaction)
                while step := list(islice(records, STEP_RECORDS)):
                    if self._laid_over_by is not None and source is self.newer:
                        step = self._laid_over(self._laid_over_by, step)  # safety: hot-merge-merges
                    self.merged.fill(step, ascending=source is self.older)
                    yield
        self.merged.write({}, Meta(0, whole_cover(self.older.meta(), self.newer.meta())))
        self._is_whole = True

    def _laid_over(
        self, laid_over: LaidOver, newer: Sequence[tuple[bytes, bytes]]
    ) -> list[tuple[bytes, bytes]]:
        with self.merged.read() as older:
            return list(laid_over(newer, {}, older))


def laid_over_by(definition: LiveTable) -> LaidOver | None:
    """How a table's records meet older ones of the same row and partition; None: they take their place."""
    if definition.merging.is_ordered:
        return ordered.laid_over
    return partial.laid_over if definition.merging.is_partial else None


def smallest_neighbours(generations: Sequence[Generation]) -> tuple[Generation, Generation]:
    """The two that lie side by side and are the least work to merge."""
    return min(pairwise(generations), key=lambda pair: pair[0].used_bytes + pair[1].used_bytes)


def whole_cover(older: Meta, newer: Meta) -> tuple[Covered, ...]:
    """What two neighbours hold records of, also of topics that left in between."""
    ended = {part.place for part in newer.covered}
    left = [part for part in older.covered if part.place not in ended]  # safety: merged-topics-that-left
    return tuple(sorted([*covered_by([older, newer]), *left], key=lambda part: part.place))


def covered_by(metas: Sequence[Meta]) -> tuple[Covered, ...]:
    """What consecutive generations cover together; a partition may have joined with any of them.

    One that left with any of them is not covered any more.
    """
    started: dict[tuple[str, int], int] = {}
    for meta in metas:
        for part in meta.covered:
            started.setdefault(part.place, part.start)
    return tuple(replace(part, start=started[part.place]) for part in metas[-1].covered)

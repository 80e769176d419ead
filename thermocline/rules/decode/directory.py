"""Records of a route, as its directory reads them: the value of each, and no row."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import Final

from thermocline.rules.decode.record import Bad, Decoded, Stage
from thermocline.rules.decode.routed import ReadsTexts
from thermocline.rules.headers import HeadersOf, no_headers
from thermocline.rules.routes.directory import Admission, Outcome
from thermocline.rules.routing import Source

__all__ = ["DirectoryDecoder"]

_ALL: Final = Admission()


class DirectoryDecoder:
    """Finds the values of a route's records; see `Decoder`.

    A record is filtered, since its row is another table's, or bad, if it has no value that can have one. So
    is a tombstone without a value: all tables read it. ``admission`` says which values may come. ``came`` are
    the new ones of all that was decoded, a little more than there may be at most, and ``outcomes`` counts
    what became of records. ``places`` are where the last ones that were decoded have values whose schema is
    wanted: new ones, and those that are unnamed.
    """

    def __init__(
        self, source: Source, reader: ReadsTexts, columns: Sequence[str], wants_schemas: bool = False
    ) -> None:
        """For records with a value at that source, which the reader reads; ``columns`` stay without rows."""
        self.admission = _ALL
        self.came: set[str] = set()
        self.places: dict[str, list[int]] = {}
        self.outcomes: Counter[Outcome] = Counter()
        self._source = source
        self._reader = reader
        self._columns = tuple(columns)
        self._wants_schemas = wants_schemas

    def decode(
        self,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        headers_of: HeadersOf = no_headers,
        topic: str | None = None,
    ) -> Decoded:
        """Decodes records given as aligned raw keys and values; see `Decoder`."""
        read = self._reader.read(keys, values, headers_of, topic)
        texts = read.of[self._source]
        found = {text: self.admission.of(text) for text in set(texts.values) if text is not None}
        bad = dict(read.bad)
        untold = frozenset(texts.untold)
        for index, text in enumerate(texts.values):
            if index in bad or index in untold:
                continue
            reason = f"it has no value at {self._source}"
            if text is not None:
                self.outcomes[found[text]] += 1
                reason = self.admission.reason(text, found[text])
            if reason:
                bad[index] = Bad(index, Stage.CONTRACT, reason)
        self._note(text for text, outcome in found.items() if outcome == "new")
        self.places = self._places(texts.values, untold)
        filtered = [index for index in range(len(values)) if index not in bad]
        listed = [bad[index] for index in sorted(bad)]
        return Decoded([], {name: [] for name in self._columns}, [], listed, filtered=filtered)

    def _places(self, texts: Sequence[str | None], untold: Collection[int]) -> dict[str, list[int]]:
        wanted = self.came | self.admission.unnamed if self._wants_schemas else ()
        found: dict[str, list[int]] = {}
        if wanted:
            for index, text in enumerate(texts):
                if text is not None and text in wanted and index not in untold:
                    found.setdefault(text, []).append(index)
        return found

    def _note(self, new: Iterable[str]) -> None:
        for text in new:
            if len(self.came) <= self.admission.tables_max:
                self.came.add(text)

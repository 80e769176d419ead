"""Fields of values that no column is read from: of a sample of the records, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import msgspec

from thermocline.rules.decode.connect import are_in_values, unwrapped
from thermocline.rules.decode.json_object import REFUSALS
from thermocline.rules.definition import JSON_FORMATS, LiveTable

__all__ = ["NAMES_MAX", "OTHER", "SAMPLE_VALUES", "UnreadFields", "bounded"]

SAMPLE_VALUES: Final = 8
"""Of a chunk: each is parsed once more, which takes about as long as a hundredth of decoding the chunk."""
NAMES_MAX: Final = 20
OTHER: Final = "(other)"
_NAME_CHARACTERS_MAX: Final = 100
_ROWS: Final = {"debezium": "after", "maxwell": "data"}
"""By envelope: where an event has its row."""

_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class UnreadFields:
    """Counts fields that no column of a table is read from, in values that are JSON."""

    def __init__(self, definition: LiveTable) -> None:
        """For the records of that table; of other formats nothing is counted."""
        self._is_json = definition.format in JSON_FORMATS[:1]
        self._row = _ROWS.get(definition.envelope)
        self._may_have_schema = are_in_values(definition)
        rule = definition.delete_when.path[:1] if definition.delete_when is not None else ()
        self._read = {column.read_from[0] for column in definition.columns if column.is_in_row} | set(rule)

    def of(self, values: Sequence[bytes | None]) -> Mapping[str, int]:
        """By name, in how many of the first `SAMPLE_VALUES` a field is that no column is read from."""
        if not self._is_json:
            return {}
        found: Counter[str] = Counter()
        sample = values[:SAMPLE_VALUES]
        if self._may_have_schema:
            sample, _ = unwrapped(sample)
        for value in sample:
            found.update(name[:_NAME_CHARACTERS_MAX] for name in self._names(value) if name not in self._read)
        return bounded(found)

    def _names(self, value: bytes | None) -> Iterator[str]:
        try:
            fields = _fields(value or b"{}")
            if self._row is not None:
                fields = _fields(fields.get(self._row, b"{}"))
        except REFUSALS:  # which decoding says
            return
        yield from fields


def bounded(counts: Mapping[str, int], known: Sequence[str] = ()) -> dict[str, int]:
    """The same with at most `NAMES_MAX` names, ``known`` ones first; the rest are `OTHER`."""
    found = dict(counts)
    names = [name for name in known if name in found]
    names += sorted(name for name in found if name not in known and name != OTHER)
    kept = {name: found.pop(name) for name in names[:NAMES_MAX]}
    return kept | {OTHER: sum(found.values())} if found else kept

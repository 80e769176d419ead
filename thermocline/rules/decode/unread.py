"""Fields of values that no column is read from: of a sample of the records, by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from thermocline.rules.decode.connect import are_in_values, unwrapped
from thermocline.rules.decode.json_object import REFUSALS
from thermocline.rules.definition import JSON_FORMATS, LiveTable
from thermocline.rules.headers import HeadersOf, no_headers

__all__ = ["NAMES_MAX", "OTHER", "SAMPLE_VALUES", "Sampled", "UnreadFields", "bounded"]

SAMPLE_VALUES: Final = 8
"""Of a chunk: each is parsed once more, which takes about as long as a hundredth of decoding the chunk."""
NAMES_MAX: Final = 20
OTHER: Final = "(other)"
_NAME_CHARACTERS_MAX: Final = 100
_ROWS: Final = {"debezium": "after", "maxwell": "data"}
"""By envelope: where an event has its row."""

_fields: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class Sampled:
    """How many values were looked at, and by name in how many of them a field is that no column is read from.

    Deletes, and values that are no JSON object, are not among them. The last name may be `OTHER`.
    """

    values: int = 0
    names: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Sampled) -> Sampled:
        """Both together, with names up to the bound."""
        names = Counter(self.names)
        names.update(other.names)
        return Sampled(
            self.values + other.values, bounded(names, [one for one in self.names if one != OTHER])
        )


class UnreadFields:
    """Counts fields that no column of a table is read from, in values that are JSON."""

    def __init__(self, definition: LiveTable) -> None:
        """For the records of that table; of other formats nothing is counted."""
        self._is_json = definition.format in JSON_FORMATS[:1]
        self._row = _ROWS.get(definition.envelope)
        self._may_have_schema = are_in_values(definition)
        rule = definition.delete_when.path[:1] if definition.delete_when is not None else ()
        routes = {source.field[0] for source in definition.route.sources if source.field}
        in_row = {column.read_from[0] for column in definition.columns if column.is_in_row}
        self._read = in_row | routes | set(rule)

    def is_read(self, name: str) -> bool:
        """Whether a column is read from a field of that name, or whether a record is a delete."""
        return name in self._read

    def of(
        self,
        values: Sequence[bytes | None],
        values_max: int = SAMPLE_VALUES,
        headers_of: HeadersOf = no_headers,  # noqa: ARG002  (see `contract.undeclared.Undeclared`)
    ) -> Sampled:
        """What ``values_max`` of some values have, evenly of all; nothing of formats other than JSON."""
        if not self._is_json:
            return Sampled()
        found: Counter[str] = Counter()
        sample = values[:: max(len(values) // values_max, 1)][:values_max]
        if self._may_have_schema:
            sample, _ = unwrapped(sample)
        looked_at = 0
        for value in sample:
            row = self._row_of(value) if value else None
            if row is not None:
                looked_at += 1
                found.update({name[:_NAME_CHARACTERS_MAX] for name in row if name not in self._read})
        return Sampled(looked_at, bounded(found))

    def _row_of(self, value: bytes) -> Mapping[str, object] | None:
        """The fields of a row; None where there is no row, or none that can be read, which decoding says."""
        try:
            fields = _fields(value)
            if self._row is None:
                return fields
            return _fields(fields[self._row]) if self._row in fields else None
        except REFUSALS:
            return None


def bounded(counts: Mapping[str, int], known: Sequence[str] = ()) -> dict[str, int]:
    """The same with at most `NAMES_MAX` names, ``known`` ones first; the rest are `OTHER`."""
    found = dict(counts)
    names = [name for name in known if name in found]
    names += sorted(name for name in found if name not in known and name != OTHER)
    kept = {name: found.pop(name) for name in names[:NAMES_MAX]}
    return kept | {OTHER: sum(found.values())} if found else kept

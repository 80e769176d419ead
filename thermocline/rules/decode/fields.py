"""Values that have none of the fields that a table's columns are read from.

Each such value would be a row of nulls: another producer's record, or one whose names are spelled otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import msgspec

from thermocline.rules.decode.envelopes import Rows
from thermocline.rules.decode.json_object import REFUSALS
from thermocline.rules.definition import LiveTable
from thermocline.text.shown import json_text

__all__ = ["ANY_ROW", "RowFields", "needed_fields", "without_fields"]

NAMES_SHOWN_MAX: Final = 5

_names: Final = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


@dataclass(frozen=True, slots=True)
class RowFields:
    """The fields of which a row needs one, and the path at which a value has its row.

    ``needed``: as `needed_fields` gives them; where there are none, every row is taken.
    """

    needed: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()

    def problem(self, path: tuple[str, ...], names: Iterable[str]) -> str:
        """Why what is at a path, with fields of these names, is no row of the table; empty if it may be."""
        names = list(names)
        if path != self.path or not self.needed or not names or not self.needed.keys().isdisjoint(names):
            return ""
        return _reason(self.needed, names)


ANY_ROW: Final = RowFields()


def needed_fields(definition: LiveTable) -> Mapping[str, str]:
    """The columns by the fields of which a value needs one; none where anything is taken.

    Those of the key count, too, since a value may repeat them, and so does what says that a record deletes,
    or that it is the table's.
    With key columns in the value alone, their own rule refuses a value that has no field.
    """
    if not definition.require_fields or definition.key_from != "key":
        return {}
    if not any(column.is_in_row for column in definition.value_columns):
        return {}
    needed = {column.read_from[0]: column.name for column in definition.columns if column.is_in_row}
    if definition.delete_when is not None and definition.delete_when.path:
        needed.setdefault(definition.delete_when.path[0], "delete_when")
    for source in definition.route.sources:
        if source.field:
            needed.setdefault(source.field[0], "where")
    return needed


def without_fields(
    needed: Mapping[str, str], values: Sequence[bytes | None], rows: Rows
) -> Iterator[tuple[int, str]]:
    """The JSON values that are an object with fields, none of them needed: by index, and why each is bad."""
    columns = rows.columns.values()
    if any(None not in column for column in columns):  # as in most chunks, and told in no time
        return
    for index, row in enumerate(zip(*columns, strict=True)):
        if values[index] is None or any(value is not None for value in row):
            continue
        names = () if index in rows.refused else _fields_of(values[index] or b"")
        if names and needed.keys().isdisjoint(names):  # safety: needs-a-field
            yield index, _reason(needed, names)


def _fields_of(text: bytes) -> Sequence[str]:
    try:
        return list(_names(text))
    except REFUSALS:
        return ()


def _reason(needed: Mapping[str, str], names: Sequence[str]) -> str:
    shown = ", ".join(json_text(name[:100]) for name in islice(names, NAMES_SHOWN_MAX))
    more = ", ..." if len(names) > NAMES_SHOWN_MAX else ""
    folded = {field.casefold(): field for field in needed}
    alike = next((name for name in names if name.casefold() in folded), None)
    hint = ""
    if alike is not None:
        field = folded[alike.casefold()]
        hint = f"; column {needed[field]} is read from {json_text(field)}, and case counts"
    return f"the value has none of the table's fields, but {shown}{more}{hint}"

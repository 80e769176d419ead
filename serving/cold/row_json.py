"""Rows as JSON, by the rules of a definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from thermocline.rules.decode import Unpacker, json_row
from thermocline.rules.keys import decode_one

if TYPE_CHECKING:
    from thermocline.rules.definition import Column, LiveTable
    from thermocline.serving.cold.entity_rows import JsonRow
    from thermocline.serving.cold.reader import Entity, Row
    from thermocline.serving.hot.record import HotRow

_fields_of = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class RowJson:
    """Rows as JSON, by the rules of one definition: every declared column, in declared order.

    Times are RFC 3339 with Z, decimals and UUIDs strings, binary base64.
    """

    def __init__(self, definition: LiveTable) -> None:
        self._definition = definition
        names = [column.name for column in definition.columns]
        self._form = row_form(definition.columns)
        hot_names = [*definition.key, *(column.name for column in definition.value_columns)]
        self._places = [hot_names.index(name) for name in names]
        self._unpack = Unpacker(definition).unpack

    def cold(self, row: Row) -> JsonRow:
        """From the values in declared order."""
        return json_row(self._form(*row))

    def hot(self, entity: Entity, key: bytes, row: HotRow, cold: JsonRow | None) -> JsonRow:
        """From the key, which begins like the entity's, and what the hot tier keeps beside it.

        Columns that no hot record set are as in the ``cold`` row, or null where there is none.
        """
        known = entity.values
        rest = decode_one(self._definition, key[len(entity.prefix) :], first=len(known))
        values = (*known, *rest, *self._unpack(row.payload))
        if row.kept:
            values = self._filled(values, row.kept, cold)
        return json_row(self._form(*[values[place] for place in self._places]))

    def _filled(self, values: Sequence[Any], kept: Sequence[int], cold: JsonRow | None) -> tuple[Any, ...]:
        fields = {} if cold is None else _fields_of(cold)
        filled = list(values)
        for place, column in enumerate(self._definition.value_columns):
            if place in kept:
                filled[len(self._definition.key) + place] = fields.get(column.name)  # safety: lookup-fills
        return tuple(filled)


def row_form(columns: Sequence[Column]) -> Callable[..., msgspec.Struct]:
    """What makes of the natural values of one row, in the order of the columns, what is to be encoded.

    A value may also be JSON already (``msgspec.Raw``), and a decimal its text.
    """
    # A struct is encoded in half the time of a dict. Columns may be named as no attribute of Python can.
    fields = [f"column_{place}" for place in range(len(columns))]
    rename = {field: column.name for field, column in zip(fields, columns, strict=True)}
    form = msgspec.defstruct("Row", fields, rename=rename)
    spelled = {place: spell for place, one in enumerate(columns) if (spell := one.type.spelled) is not None}
    if not spelled:
        return form

    def make(*values: Any) -> msgspec.Struct:
        row = list(values)
        for place, spell in spelled.items():
            if row[place] is not None and not isinstance(row[place], (msgspec.Raw, str)):
                row[place] = spell(row[place])
        return form(*row)

    return make

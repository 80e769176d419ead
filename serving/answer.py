"""The JSON of answers: rows by the rules of a definition, and how fresh they are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from serving.entity_rows import NO_ROWS
from thermocline.errors import BadParameter, RowNotFound
from thermocline.rules.decode import Unpacker, json_row
from thermocline.rules.keys import decode_one
from thermocline.text.shown import Columns

if TYPE_CHECKING:
    from serving.cold.reader import Entity, Row
    from serving.entity_rows import JsonRow, JsonRows
    from serving.hot.record import HotRow
    from serving.hot.refused import RefusedRecords
    from serving.lookup import Look
    from thermocline.rules.definition import Column, LiveTable

BATCH_BYTES_MAX: Final = 64 << 20
"""Of the rows of a batch: it is made as a whole, by the event loop that answers all other lookups."""

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


def answer_json(table: str, look: Look, entity: Entity, rows: JsonRows, refused: RefusedRecords) -> bytes:
    """The JSON answer for one entity.

    Raises:
        RowNotFound: the entity is a whole key, and there is no such row.
    """
    definition = look.cold.index.definition
    if rows == NO_ROWS and len(entity.values) == len(definition.key):
        raise RowNotFound(
            table=table,
            key=str(Columns(zip(definition.key, entity.values, strict=True))),
            read_point=look.read_point.to_dict(),
            age_seconds=age_or_none(look.age_seconds),
            stale=look.is_stale,
            refused=tuple(msgspec.to_builtins(one) for one in refused.listed),
            refused_unlisted=tuple(msgspec.to_builtins(one) for one in refused.unlisted),
        )
    return _answer(look, refused, {"table": table, "rows": msgspec.Raw(rows)})


def batch_json(table: str, look: Look, results: Sequence[JsonRows], refused: RefusedRecords) -> bytes:
    """The JSON answer for several entities, in the order in which they were asked for.

    Raises `BadParameter` where it would be larger than `BATCH_BYTES_MAX`.
    """
    if sum(map(len, results)) > BATCH_BYTES_MAX:
        problem = f"their rows take more than {BATCH_BYTES_MAX >> 20} MiB: ask for fewer at a time"
        raise BadParameter(name="entities", problem=problem)
    items = [{"rows": msgspec.Raw(rows)} for rows in results]
    return _answer(look, refused, {"table": table, "results": items})


def refused_json(table: str, look: Look, refused: RefusedRecords, has_more: bool) -> bytes:
    """The JSON answer to which records were refused, also where none was."""
    answer = {"table": table, "refused": refused.listed, "more": has_more}
    return _answer(look, refused._replace(listed=()), answer)


def age_or_none(age_seconds: float) -> float | None:
    """The age to the millisecond; None where it is not known, since JSON has no infinity."""
    return round(age_seconds, 3) if math.isfinite(age_seconds) else None


def _answer(look: Look, refused: RefusedRecords, answer: dict[str, Any]) -> bytes:
    answer["read_point"] = msgspec.Raw(look.read_point_json)
    answer["age_seconds"] = age_or_none(look.age_seconds)
    answer["stale"] = look.is_stale
    if refused.listed:
        answer["refused"] = refused.listed
    if refused.unlisted:
        answer["refused_unlisted"] = refused.unlisted  # safety: refused-unlisted-told
    return json_row(answer)

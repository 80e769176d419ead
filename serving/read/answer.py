"""The JSON of answers: rows by the rules of a definition, and how fresh they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from thermocline.errors import BadParameter, RowNotFound
from thermocline.rules.decode import json_row
from thermocline.serving.cold.entity_rows import NO_ROWS
from thermocline.text.shown import Columns

if TYPE_CHECKING:
    from thermocline.serving.cold.entity_rows import JsonRow, JsonRows
    from thermocline.serving.cold.reader import Entity
    from thermocline.serving.hot.refused import RefusedRecords
    from thermocline.serving.read.explained import Explained
    from thermocline.serving.read.look import Look

BATCH_BYTES_MAX: Final = 64 << 20
"""Of the rows of a batch: it is made as a whole, by the event loop that answers all other lookups."""


def answer_json(table: str, look: Look, entity: Entity, rows: JsonRows, refused: RefusedRecords) -> bytes:
    """The JSON answer for one entity.

    Raises:
        RowNotFound: the entity is a whole key, and there is no such row.
    """
    _check_found(table, look, entity, rows != NO_ROWS, refused)
    return _answer(look, refused, {"table": table, "rows": msgspec.Raw(rows)})


def explained_json(table: str, explained: Explained, entity: Entity, refused: RefusedRecords) -> bytes:
    """The JSON answer to where the rows of one entity come from.

    Raises:
        RowNotFound: the entity is a whole key, and nothing is known of such a row, not even that it was
            deleted.
    """
    look = explained.look
    _check_found(table, look, entity, bool(explained.rows), refused)
    rows = [
        {"row": _raw(one.row), "hot": one.hot, "cold": one.cold, "replaced": _raw(one.replaced)}
        for one in explained.rows
    ]
    return _answer(look, refused, {"table": table, "rows": rows, "seconds": explained.seconds})


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


def _raw(row: JsonRow | None) -> msgspec.Raw | None:
    return None if row is None else msgspec.Raw(row)


def _check_found(table: str, look: Look, entity: Entity, is_found: bool, refused: RefusedRecords) -> None:
    definition = look.cold.index.definition
    if is_found or len(entity.values) < len(definition.key):
        return
    raise RowNotFound(
        table=table,
        key=str(Columns(zip(definition.key, entity.values, strict=True))),
        read_point=look.read_point.to_dict(),
        age_seconds=age_or_none(look.age_seconds),
        stale=look.is_stale,
        refused=tuple(msgspec.to_builtins(one) for one in refused.listed),
        refused_unlisted=tuple(msgspec.to_builtins(one) for one in refused.unlisted),
    )


def _answer(look: Look, refused: RefusedRecords, answer: dict[str, Any]) -> bytes:
    answer["read_point"] = msgspec.Raw(look.read_point_json)
    answer["age_seconds"] = age_or_none(look.age_seconds)
    answer["stale"] = look.is_stale
    if refused.listed:
        answer["refused"] = refused.listed
    if refused.unlisted:
        answer["refused_unlisted"] = refused.unlisted  # safety: refused-unlisted-told
    return json_row(answer)

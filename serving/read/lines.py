"""Rows as lines of text: JSON, as lookups give them, and CSV.

A value in CSV is spelled as in JSON, without its quotes, but for doubles, which Arrow spells (``1``,
``1e+16``); what is nested is the text of its JSON. Text is always in quotes, and null is nothing at all, so
the two can be told apart: ``,"",`` and ``,,``. Numbers never are in quotes, nor are decimals.
Source: RFC 4180; JSON lines is one JSON document a line.
"""

from __future__ import annotations

import io
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from thermocline.rules.column_types import Token
from thermocline.rules.decode import json_lines, json_row
from thermocline.serving.cold.reader import natural
from thermocline.serving.cold.row_json import row_form

if TYPE_CHECKING:
    from thermocline.rules.column_types import ColumnType
    from thermocline.rules.definition import Column

ROWS: Final = 4_096
"""Of a piece: the interpreter makes it in about ten milliseconds, for which lookups may have to wait."""
_CSV: Final = csv.WriteOptions(include_header=False, eol="\r\n")


def encode_json_lines(columns: Sequence[Column], batches: Iterable[pa.RecordBatch]) -> Generator[bytes]:
    """The rows as JSON objects, each in a line."""
    row = row_form(columns)
    for piece in _pieces(batches):
        values = [_values(of.type, array) for of, array in zip(columns, piece.columns, strict=True)]
        yield json_lines(row(*cells) for cells in zip(*values, strict=True))


def encode_csv(columns: Sequence[Column], batches: Iterable[pa.RecordBatch]) -> Generator[bytes]:
    """A header and the rows."""
    names = [column.name for column in columns]
    yield _written(pa.table([[name] for name in names], names))
    write = _written_plain if any(_has_exponents(of.type) for of in columns) else _written
    for piece in _pieces(batches):
        cells = [_cells(of.type, array) for of, array in zip(columns, piece.columns, strict=True)]
        yield write(pa.table(cells, names))


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS):
            yield batch.slice(start, ROWS)


def _values(of: ColumnType, array: pa.Array) -> list[Any]:
    texts = of.entry.texts
    if texts is not None and of.entry.token is Token.NUMBER:  # in a third of the time that objects would take
        return texts(of, array).to_pylist()  # type: ignore[no-any-return]
    return natural(of, array)


def _has_exponents(of: ColumnType) -> bool:
    """Whether Arrow may write a number with an exponent where we don't."""
    return of.entry.token is Token.NUMBER and of.spelled is not None


def _written(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    csv.write_csv(table, sink, _CSV)
    return sink.getvalue()


def _written_plain(table: pa.Table) -> bytes:
    """The same as Arrow writes, in three times its time; but decimals, which are text here, get no quotes."""
    lines = _joined(*(_cell_texts(column.combine_chunks()) for column in table.columns), by=",")
    whole: bytes = _joined(lines, "", by="\r\n").buffers()[2].to_pybytes()
    return whole


def _cell_texts(values: pa.Array) -> pa.Array:
    texts = values.cast(_TEXT)
    if pa.types.is_string(values.type):
        texts = _joined('"', pc.replace_substring(texts, '"', '""'), '"', by="")
    return pc.fill_null(texts, "")


def _joined(*parts: pa.Array | str, by: str) -> pa.Array:
    whole = (pa.scalar(one, _TEXT) if isinstance(one, str) else one for one in (*parts, by))
    return pc.binary_join_element_wise(*whole)


def _cells(of: ColumnType, array: pa.Array) -> pa.Array:
    """A column as CSV writes it: numbers, or text."""
    if of.fields:
        spell = of.spelled or (lambda value: value)
        whole = (None if value is None else json_row(spell(value)).decode() for value in natural(of, array))
        return pa.array(whole, pa.string())
    texts = of.entry.texts
    if of.entry.token is Token.NUMBER:
        return array if texts is None or not _has_exponents(of) else texts(of, array).cast(_TEXT)
    return array if texts is None else texts(of, array)


_TEXT: Final = pa.large_string()
"""Of cells that are written already: those of a piece may have more than 2 GB. Text is `pa.string` before."""

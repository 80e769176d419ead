"""Rows as lines of text: JSON, as lookups give them, and CSV.

A value in CSV is spelled as in JSON, without its quotes, but for doubles, which Arrow spells (``1``,
``1e+16``); what is nested is the text of its JSON. Text is always in quotes, and null is nothing at all, so
the two can be told apart: ``,"",`` and ``,,``. Decimals are in quotes where they have more than six places.
Source: RFC 4180; JSON lines is one JSON document a line.
"""

from __future__ import annotations

import io
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from serving.answer import row_form
from serving.cold.reader import natural
from thermocline.rules.column_types import Kind
from thermocline.rules.decode import decimal_texts, json_lines, json_row

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
        values = [natural(of.type, array) for of, array in zip(columns, piece.columns, strict=True)]
        yield json_lines(row(*cells) for cells in zip(*values, strict=True))


def encode_csv(columns: Sequence[Column], batches: Iterable[pa.RecordBatch]) -> Generator[bytes]:
    """A header and the rows."""
    names = pa.schema([(column.name, pa.string()) for column in columns])
    yield _written(pa.table([[]] * len(columns), schema=names), csv.WriteOptions(eol="\r\n"))
    for piece in _pieces(batches):
        cells = [_cells(of.type, array) for of, array in zip(columns, piece.columns, strict=True)]
        yield _written(pa.table(cells, names.names), _CSV)


def _pieces(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS):
            yield batch.slice(start, ROWS)


def _written(table: pa.Table, options: csv.WriteOptions) -> bytes:
    sink = io.BytesIO()
    csv.write_csv(table, sink, options)
    return sink.getvalue()


def _cells(of: ColumnType, array: pa.Array) -> pa.Array:
    """A column as CSV writes it: numbers, or text."""
    if of.kind in _AS_THEY_ARE:
        return array
    if of.kind in (Kind.TIMESTAMPTZ, Kind.TIMESTAMP):
        return _times(of, array)
    if of.kind is Kind.DECIMAL:
        return array if of.spelled is None else decimal_texts(of, array)
    spell = of.spelled or (lambda value: value)
    texts = (None if value is None else json_row(spell(value)).decode() for value in natural(of, array))
    if of.fields:
        return pa.array(texts, pa.string())
    return pa.array((text and text[1:-1] for text in texts), pa.string())  # base64 and UUIDs, in quotes


def _times(of: ColumnType, array: pa.Array) -> pa.Array:
    """Times as RFC 3339 has them, with six digits of a fraction or none."""
    # Of a time with a zone, Arrow makes text thirty times as slowly.
    texts = array.view(pa.timestamp("us")).cast(pa.string())
    texts = pc.binary_replace_slice(texts, _DATE_LENGTH, _DATE_LENGTH + 1, "T")
    texts = pc.replace_substring(texts, ".000000", "")
    return pc.binary_join_element_wise(texts, "Z", "") if of.kind is Kind.TIMESTAMPTZ else texts


_DATE_LENGTH: Final = 10  # a blank follows
_AS_THEY_ARE: Final = (
    Kind.INT,
    Kind.LONG,
    Kind.DOUBLE,
    Kind.BOOLEAN,
    Kind.DATE,
    Kind.STRING,
    Kind.JSON,
)

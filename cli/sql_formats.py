"""The results of SQL as text and files: values look as in the JSON of a lookup."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from thermocline.cli.file_format import Format
from thermocline.errors import SqlRefused
from thermocline.text.shown import json_form, json_text

if TYPE_CHECKING:
    import pyarrow as pa

    from thermocline.rules.definition import Column
    from thermocline.serving.read.encode import Chunk
    from thermocline.serving.read.sql import Answer

    Encoder = Callable[[pa.Schema, Iterable[pa.RecordBatch]], Generator[Chunk]]

NANOSECONDS: Final = 1_000_000_000


def encode_csv(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Generator[Chunk]:
    """CSV with a line of names; null is empty, what is nested is JSON."""
    yield _csv_lines([schema.names])
    for batch in batches:
        yield _csv_lines(
            [["" if value is None else text_of(value) for value in row] for row in rows_of(batch)]
        )


def encode_json_lines(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Generator[Chunk]:
    """An object a line."""
    for batch in batches:
        yield "".join(f"{line}\n" for line in _objects(schema, batch)).encode()


def json_document(answer: Answer) -> Iterator[str]:
    """One JSON document in pieces: the columns' types, the rows, and where they were read."""
    types = {field.name: str(field.type) for field in answer.schema}
    yield f'{{"columns": {json_text(types)}, "rows": ['
    separator = "\n"
    for batch in answer.batches():
        for line in _objects(answer.schema, batch):
            yield f"{separator}{line}"
            separator = ",\n"
    points = {name: point.to_dict() for name, point in answer.read_points.items()}
    yield f'\n], "read_points": {json_text(points)}}}\n'


def rows_of(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """The rows as values of Python; maps are dicts, intervals ISO 8601 durations.

    Raises:
        SqlRefused: a value is none of Python's.
    """
    columns = zip(batch.schema.names, batch.columns, strict=True)
    return zip(*(_values(name, column) for name, column in columns), strict=True)


def _values(name: str, column: pa.Array) -> list[Any]:
    try:
        return [_plain(value) for value in column.to_pylist(maps_as_pydicts="strict")]
    except (OverflowError, TypeError, ValueError) as error:  # years over 9999, infinite times, nested keys
        raise _unwritable(f'column "{name}"', error) from error


def _unwritable(what: str, error: Exception) -> SqlRefused:
    return SqlRefused(problem=f"{what} can't be written ({error}): cast it to VARCHAR")


def text_of(value: object) -> str:
    """A value in a cell."""
    shown = json_form(value)
    return shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)


def _objects(schema: pa.Schema, batch: pa.RecordBatch) -> Iterator[str]:
    return (json_text(dict(zip(schema.names, row, strict=True))) for row in rows_of(batch))


def _csv_lines(rows: Iterable[Iterable[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


def _plain(value: Any) -> Any:
    """An interval as text; it is a tuple to Python."""
    if hasattr(value, "nanoseconds"):
        seconds, rest = divmod(value.nanoseconds, NANOSECONDS)
        fraction = f".{rest:09d}".rstrip("0") if rest else ""
        return f"P{value.months}M{value.days}DT{seconds}{fraction}S"
    return value


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows as a server's encoders take them; their columns are none of a table's."""

    schema: pa.Schema
    given: Iterable[pa.RecordBatch]
    columns: tuple[Column, ...] = ()

    def batches(self) -> Iterable[pa.RecordBatch]:
        return self.given


def _encoded(format_name: str) -> Encoder:
    def encode(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Generator[Chunk]:
        from thermocline.serving.read.encode import encoded

        try:
            yield from encoded(_Rows(schema, batches), format_name)
        except NotImplementedError as error:  # Arrow's, of a type that Parquet has nothing for
            raise _unwritable("a column", error) from error

    return encode


ENCODERS: Final[dict[str, Encoder]] = {
    Format.ARROW: _encoded(Format.ARROW),
    Format.PARQUET: _encoded(Format.PARQUET),
    Format.CSV: encode_csv,
    Format.JSONL: encode_json_lines,
}

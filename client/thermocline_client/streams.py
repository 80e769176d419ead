"""Decodes extracts as they arrive, batch by batch, from Arrow's stream format.

An Arrow stream ends with a mark. A stream without it was cut, and raises `StreamCut`, although Arrow alone
would take it for complete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import httpx

from .answers import ReadPoint
from .errors import StreamCut

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""Source: Arrow columnar format, "IPC Streaming Format"."""
READ_POINT: Final = "Thermocline-Read-Point"
ARROW: Final = "application/vnd.apache.arrow.stream"
FORMATS: Final[Mapping[str, tuple[str, bytes]]] = {
    "arrow": (ARROW, END_OF_STREAM),
    "parquet": ("application/vnd.apache.parquet", b"PAR1"),
    "csv": ("text/csv", b""),
    "jsonl": ("application/x-ndjson", b""),
}
"""Each format's media type, and the bytes that a complete stream ends with. Text has none: HTTP alone says
whether it is complete."""


class ExtractInfo:
    """The table and read point of an extract, and its age when it began.

    ``age_seconds`` is the time since every partition was last read to its end. ``stale`` is true if that is
    above the server's ``serving.stale_after_seconds``.
    """

    def __init__(self, table: str, headers: Mapping[str, str]) -> None:
        """Reads the headers of the answer."""
        self.table = table
        self.read_point = ReadPoint.of(json.loads(headers[READ_POINT]))
        self.age_seconds = float(headers["Thermocline-Age-Seconds"])
        self.stale = headers["Thermocline-Stale"] == "true"


class Received:
    """Counts the bytes of a stream, and tells whether it is complete."""

    def __init__(self, url: str, end_mark: bytes) -> None:
        """A complete stream ends with ``end_mark``."""
        self._url = url
        self._end_mark = end_mark
        self._tail = b""
        self.bytes = 0

    def add(self, chunk: bytes) -> None:
        """Takes the next bytes."""
        self.bytes += len(chunk)
        self._tail = (self._tail + chunk)[-len(END_OF_STREAM) :]

    def check_end(self) -> None:
        """Checks that the stream is complete. Raises `StreamCut`."""
        if not self._tail.endswith(self._end_mark):
            raise self.cut("it has no end mark")

    def cut(self, detail: str) -> StreamCut:
        """Returns the error for a stream that ends here."""
        return StreamCut(self._url, f"the extract broke off after {self.bytes} bytes: {detail}")


class Decoder:
    """Decodes chunks of bytes to record batches. ``take`` returns the next chunk, None at the end."""

    def __init__(self, url: str, take: Callable[[], bytes | None]) -> None:
        self._received = Received(url, END_OF_STREAM)
        self._source = _Source(take, self._received)
        self._reader: Any = None

    def open(self) -> pa.Schema:
        """Returns the schema. Raises `StreamCut`."""
        import pyarrow as pa

        self._reader = self._read(lambda: pa.ipc.open_stream(self._source))
        return self._reader.schema

    def next(self) -> pa.RecordBatch | None:
        """Returns the next batch, None after the last one of a complete stream. Raises `StreamCut`."""
        batch = self._read(lambda: next(self._reader, None))
        if batch is None:
            self._read(self._source.drain)
            self._received.check_end()
        return batch

    def _read(self, read: Callable[[], Any]) -> Any:
        import pyarrow as pa

        try:
            return read()
        except httpx.TransportError as error:
            raise self._received.cut(str(error) or type(error).__name__) from error
        except (pa.ArrowInvalid, OSError) as error:
            raise self._received.cut(str(error)) from error


def format_of(name: str) -> tuple[str, bytes]:
    """Returns a format's media type and end mark. Raises `ValueError` for an unknown format."""
    if name not in FORMATS:
        raise ValueError(f'"{name}" is not one of the formats {", ".join(FORMATS)}')
    return FORMATS[name]


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """Returns the rows as a pandas frame."""
    frame: pd.DataFrame = table.to_pandas()
    return frame


def to_polars(table: pa.Table) -> pl.DataFrame:
    """Returns the rows as a Polars frame."""
    import polars as pl

    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def to_duckdb(table: pa.Table, connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyRelation:
    """Returns the rows as a relation of a connection, by default DuckDB's own."""
    import duckdb

    return duckdb.from_arrow(table) if connection is None else connection.from_arrow(table)


class _Source:
    """A file for Arrow to read, made of chunks."""

    closed = False

    def __init__(self, take: Callable[[], bytes | None], received: Received) -> None:
        self._take = take
        self._received = received
        self._left = memoryview(b"")

    def read(self, size: int) -> bytes:
        parts: list[memoryview] = []
        while size > 0 and self._more():
            part = self._left[:size]
            self._left = self._left[len(part) :]
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def drain(self) -> None:
        """Reads the rest of a complete answer, so that its connection can be used again."""
        while self._more():
            self._left = memoryview(b"")

    def _more(self) -> bool:
        while not self._left:
            chunk = self._take()
            if chunk is None:
                return False
            self._received.add(chunk)
            self._left = memoryview(chunk)
        return True

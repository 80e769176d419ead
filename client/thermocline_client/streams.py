"""Extracts as they come in: Arrow's stream format, decoded batch by batch.

An Arrow stream ends with a mark. One without it was cut, and raises `StreamCut` where Arrow alone would take
it for complete.
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
"""By name: the media type, and what a complete stream ends with; for text, HTTP alone says that it is."""


class ExtractInfo:
    """What an extract reflects, and how old it was when it began."""

    def __init__(self, table: str, headers: Mapping[str, str]) -> None:
        """From the headers of the answer."""
        self.table = table
        self.read_point = ReadPoint.of(json.loads(headers[READ_POINT]))
        self.age_seconds = float(headers["Thermocline-Age-Seconds"])
        self.stale = headers["Thermocline-Stale"] == "true"


class Received:
    """The bytes of a stream so far, and whether that is all of them."""

    def __init__(self, url: str, end_mark: bytes) -> None:
        """``end_mark``: what a complete stream ends with."""
        self._url = url
        self._end_mark = end_mark
        self._tail = b""
        self.bytes = 0

    def add(self, chunk: bytes) -> None:
        """Some more."""
        self.bytes += len(chunk)
        self._tail = (self._tail + chunk)[-len(END_OF_STREAM) :]

    def check_end(self) -> None:
        """Makes sure that the stream is complete. Raises `StreamCut`."""
        if not self._tail.endswith(self._end_mark):
            raise self.cut("it has no end mark")

    def cut(self, detail: str) -> StreamCut:
        """What it is if nothing more comes."""
        return StreamCut(self._url, f"the extract broke off after {self.bytes} bytes: {detail}")


class Decoder:
    """Record batches out of chunks of bytes. ``take`` gives the next chunk, or None where there is none."""

    def __init__(self, url: str, take: Callable[[], bytes | None]) -> None:
        self._received = Received(url, END_OF_STREAM)
        self._source = _Source(take, self._received)
        self._reader: Any = None

    def open(self) -> pa.Schema:
        """The schema. Raises `StreamCut`."""
        import pyarrow as pa

        self._reader = self._read(lambda: pa.ipc.open_stream(self._source))
        return self._reader.schema

    def next(self) -> pa.RecordBatch | None:
        """The next batch; None after the last one of a complete stream. Raises `StreamCut`."""
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
    """The media type and the end mark of a format. Raises `ValueError`."""
    if name not in FORMATS:
        raise ValueError(f'"{name}" is not one of the formats {", ".join(FORMATS)}')
    return FORMATS[name]


def to_pandas(table: pa.Table) -> pd.DataFrame:
    """The rows as a pandas frame."""
    frame: pd.DataFrame = table.to_pandas()
    return frame


def to_polars(table: pa.Table) -> pl.DataFrame:
    """The rows as a Polars frame."""
    import polars as pl

    frame = pl.from_arrow(table)
    assert isinstance(frame, pl.DataFrame)
    return frame


def to_duckdb(table: pa.Table, connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyRelation:
    """The rows as a relation, of a connection or of the default one."""
    import duckdb

    return duckdb.from_arrow(table) if connection is None else connection.from_arrow(table)


class _Source:
    """Chunks as a file that Arrow reads from."""

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
        """Takes what is left, which only a complete answer has, so that the connection can be kept."""
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

"""Extracts as they come in: Arrow's stream format, decoded batch by batch.

An Arrow stream ends with a mark. One without it was cut, and raises `StreamCut` where Arrow alone would take
it for complete.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import httpx

from thermocline.client.answers import ReadPoint
from thermocline.client.errors import StreamCut

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

ARROW: Final = "application/vnd.apache.arrow.stream"
END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""Source: Arrow columnar format, "IPC Streaming Format"."""


class Stated:
    """What an extract says of itself before its rows."""

    def __init__(self, table: str, headers: Mapping[str, str]) -> None:
        """From the headers of the answer."""
        self.table = table
        self.read_point = ReadPoint.of(json.loads(headers["Thermocline-Read-Point"]))
        self.age_seconds = float(headers["Thermocline-Age-Seconds"])
        self.stale = headers["Thermocline-Stale"] == "true"


class Decoder:
    """Record batches out of chunks of bytes. ``take`` gives the next chunk, or None where there is none."""

    def __init__(self, url: str, take: Callable[[], bytes | None]) -> None:
        self._url = url
        self._source = _Source(take)
        self._reader: Any = None

    def open(self) -> pa.Schema:
        """The schema. Raises `StreamCut`."""
        import pyarrow as pa

        self._reader = self._read(lambda: pa.ipc.open_stream(self._source))
        return self._reader.schema

    def next(self) -> pa.RecordBatch | None:
        """The next batch; None after the last one of a complete stream. Raises `StreamCut`."""
        batch = self._read(lambda: next(self._reader, None))
        if batch is None and not self._source.is_complete():
            raise self._cut("it has no end mark")
        return batch

    def _read(self, read: Callable[[], Any]) -> Any:
        import pyarrow as pa

        try:
            return read()
        except httpx.TransportError as error:
            raise self._cut(str(error) or type(error).__name__) from error
        except (pa.ArrowInvalid, OSError) as error:
            raise self._cut(str(error)) from error

    def _cut(self, detail: str) -> StreamCut:
        return StreamCut(self._url, f"the extract broke off after {self._source.received} bytes: {detail}")


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

    def __init__(self, take: Callable[[], bytes | None]) -> None:
        self._take = take
        self._left = memoryview(b"")
        self._tail = b""
        self.received = 0

    def read(self, size: int) -> bytes:
        parts: list[memoryview] = []
        while size > 0 and self._more():
            part = self._left[:size]
            self._left = self._left[len(part) :]
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def is_complete(self) -> bool:
        """Whether the end mark came last. Takes what is left, so that the connection can be kept."""
        while self._more():
            self._left = memoryview(b"")
        return self._tail == END_OF_STREAM

    def _more(self) -> bool:
        while not self._left:
            chunk = self._take()
            if chunk is None:
                return False
            self.received += len(chunk)
            self._tail = (self._tail + chunk)[-len(END_OF_STREAM) :]
            self._left = memoryview(chunk)
        return True

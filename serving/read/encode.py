"""Record batches as the bytes of a stream: Arrow IPC, Parquet, CSV or JSON lines.

Arrow and Parquet carry the read point in their schema's metadata. An Arrow stream ends with a mark and a
Parquet file with its footer, so that a reader can tell a stream that broke off from a complete one. Lines of
text end anywhere: that they are complete, only what carries them says, the end of a chunked HTTP answer or of
a compressed stream.
"""

from __future__ import annotations

import io
import zlib
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from thermocline.serving.read.lines import encode_csv, encode_json_lines

if TYPE_CHECKING:
    from thermocline.rules.definition import Column

READ_POINT_METADATA: Final = "thermocline.read-point"
# Level 1 is within 5 % of level 3's size here, and a fifth faster.
PARQUET_ZSTD_LEVEL: Final = 1
_GZIP_FORMAT: Final = 31  # of zlib's windows of 32 kB, with gzip's header and checksum
GZIP_LEVEL: Final = 1
"""Of text: higher ones take several times as long for a tenth less."""
END_OF_STREAM: Final = b"\xff\xff\xff\xff\x00\x00\x00\x00"
"""Source: Arrow columnar format, "IPC Streaming Format"."""

Chunk = bytes | memoryview
Encoder = Callable[["Rows"], Generator[Chunk]]


@dataclass(frozen=True, slots=True)
class Format:
    """A format: its media type, what encodes it, and the mark that a complete stream ends with.

    Lines of text have no mark. They alone are compressed on request: Parquet is already, Arrow is for speed.
    """

    media_type: str
    encode: Encoder
    end_mark: bytes = b""

    @property
    def is_text(self) -> bool:
        """Whether it is lines of text."""
        return not self.end_mark


class Rows(Protocol):
    """What is encoded; an `Extract`."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the batches."""

    @property
    def columns(self) -> Sequence[Column]:
        """The columns, in the order of the schema."""

    def batches(self) -> Iterable[pa.RecordBatch]:
        """The rows."""


def encoded(rows: Rows, format_name: str, coding: str | None = None) -> Generator[Chunk]:
    """The bytes of a stream, piece by piece, none of them empty; compressed, if a coding is named."""
    return compressed(FORMATS[format_name].encode(rows), coding)


def compressed(chunks: Generator[Chunk], coding: str | None) -> Generator[Chunk]:
    """The bytes of a stream by that coding; as they are, if none is named."""
    try:
        if coding is None:
            yield from chunks
            return
        compressor = CODINGS[coding]()
        for chunk in chunks:
            if packed := compressor.compress(chunk):
                yield packed
        yield compressor.flush()
    finally:
        chunks.close()


def _encode_arrow(rows: Rows) -> Generator[Chunk]:
    """An Arrow IPC stream, one chunk of bytes for each batch."""
    yield rows.schema.serialize().to_pybytes()
    for batch in rows.batches():
        yield memoryview(batch.serialize())
    yield END_OF_STREAM


def _encode_parquet(rows: Rows) -> Generator[Chunk]:
    """A Parquet file, one chunk of bytes for each batch, which is a row group."""
    sink = _DrainedSink()
    with pq.ParquetWriter(
        sink, rows.schema, compression="zstd", compression_level=PARQUET_ZSTD_LEVEL
    ) as writer:
        for batch in rows.batches():
            writer.write_batch(batch)
            yield sink.take()
    yield sink.take()


PROBLEM_TYPE: Final = "application/problem+json"
FORMATS: Final[Mapping[str, Format]] = {
    "arrow": Format("application/vnd.apache.arrow.stream", _encode_arrow, END_OF_STREAM),
    "parquet": Format("application/vnd.apache.parquet", _encode_parquet, b"PAR1"),
    "csv": Format("text/csv", lambda rows: encode_csv(rows.columns, rows.batches())),
    "jsonl": Format("application/x-ndjson", lambda rows: encode_json_lines(rows.columns, rows.batches())),
}
"""By name, the default one first."""
CODINGS: Final[Mapping[str, Callable[[], Any]]] = {
    "zstd": lambda: zstandard.ZstdCompressor(write_checksum=True).compressobj(),
    "gzip": lambda: zlib.compressobj(GZIP_LEVEL, wbits=_GZIP_FORMAT),
}
"""What compresses, by HTTP's name of it. Readers can tell a cut stream of either."""


class _DrainedSink(io.RawIOBase):
    """A sink whose content is taken away piece by piece."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, content: object) -> int:
        part = bytes(content)  # type: ignore[call-overload]
        self._parts.append(part)
        return len(part)

    def take(self) -> bytes:
        taken = b"".join(self._parts)
        self._parts.clear()
        return taken

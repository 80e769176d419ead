"""Formats in which rows are written, by a file's name."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Final

from thermocline.errors import BadParameter

__all__ = ["TEXTS", "Format", "coding_of", "format_of"]


class Format(StrEnum):
    """What rows can be written as."""

    ARROW = "arrow"
    PARQUET = "parquet"
    CSV = "csv"
    JSONL = "jsonl"


TEXTS: Final = (Format.CSV, Format.JSONL)
_EXTENSIONS: Final = {
    ".arrow": Format.ARROW,
    ".arrows": Format.ARROW,  # what Arrow itself calls a stream
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".csv": Format.CSV,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
}
_CODINGS: Final = {".gz": "gzip", ".zst": "zstd"}


def format_of(output: Path | None, correction: str = "") -> Format:
    """The format that a file's name says; Arrow, where it has no extension. Raises `BadParameter`."""
    extensions = [one.lower() for one in output.suffixes] if output else []
    if extensions and extensions[-1] in _CODINGS:
        extensions.pop()
    if not extensions:
        return Format.ARROW
    if extensions[-1] not in _EXTENSIONS:
        known = ", ".join((*_EXTENSIONS, *(f".csv{packed}" for packed in _CODINGS)))
        problem = f'"{extensions[-1]}" is no known format; known: {known}'
        raise BadParameter(name=str(output), problem=problem, correction=correction)
    return _EXTENSIONS[extensions[-1]]


def coding_of(output: Path | None, chosen: Format) -> str | None:
    """How the file is compressed, by its name. Raises `BadParameter` where the format is not."""
    coding = _CODINGS.get(output.suffix.lower()) if output else None
    if coding is not None and chosen not in TEXTS:
        problem = f"{coding} is for {' and '.join(TEXTS)}, not for {chosen}: leave the extension out"
        raise BadParameter(name=str(output), problem=problem)
    return coding

"""The places that a row comes from: the record in the log, and the row in a data file."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ColdPlace", "RecordPlace"]


@dataclass(frozen=True, slots=True)
class RecordPlace:
    """A record's place in the log, and its time in milliseconds."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class ColdPlace:
    """A row of a snapshot: its data file, the row group there, and its position in the file.

    ``commit`` is Iceberg's sequence number of the commit that added the file, None in format version 2;
    ``record`` the one that the row was made of, None where the file does not say.
    """

    file: str
    row_group: int
    position: int
    commit: int | None
    record: RecordPlace | None

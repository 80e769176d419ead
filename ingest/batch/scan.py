"""A scan: what a batch reads, and for whom. One that several tables share reads it once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thermocline.ingest.batch.read_task import ReadTask
    from thermocline.ingest.batch.source import Source
    from thermocline.upsert.files_by_bucket import FilesByBucket

__all__ = ["Scan", "Share"]


@dataclass(frozen=True, slots=True)
class Share:
    """One table's share of a scan: how its records are read, and the rows that they are laid over.

    ``files`` are the live data files of the snapshot that its batch was planned on, by bucket;
    ``data_location`` is a URI, and new files go below it.
    """

    task: ReadTask
    files: FilesByBucket
    data_location: str


@dataclass(frozen=True, slots=True)
class Scan:
    """A source, read once, and a share for each table that it is read for.

    What a table's share comes to depends on no other share: neither on its records nor on how it fails.
    """

    source: Source
    shares: Sequence[Share]

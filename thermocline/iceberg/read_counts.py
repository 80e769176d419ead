"""Counts of a table's reads, which servers leave beside it and maintenance weighs rewrites by."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from thermocline.iceberg.files import beside, delete_files, listed_folder, read_file, write_file

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

__all__ = ["ReadCounts", "ReadRates", "forget_counts", "read_rates", "write_counts"]

_ENDING: Final = ".json"
RECENT_MS: Final = 1_800_000
"""Counts that ended earlier say nothing of now."""


@dataclass(slots=True)
class ReadCounts:
    """What one process was asked for from a time on: lookups by bucket, and extracts."""

    since_ms: int
    lookups: Counter[int] = field(default_factory=Counter)
    extracts: int = 0


@dataclass(frozen=True, slots=True)
class ReadRates:
    """Lookups an hour by bucket, and extracts an hour."""

    lookups: Mapping[int, float]
    extracts: float


def write_counts(io: FileIO, location: str, process: str, counts: ReadCounts, now_ms: int) -> None:
    """Leave the counts of a process, in place of those before. Raises `OSError`."""
    document = {
        "since-ms": counts.since_ms,
        "until-ms": now_ms,
        "lookups": dict(counts.lookups),
        "extracts": counts.extracts,
    }
    write_file(io, f"{_folder(location)}/{process}{_ENDING}", json.dumps(document).encode())


def read_rates(io: FileIO, location: str, now_ms: int) -> ReadRates | None:
    """What all processes were asked for lately; None where none of them says it. Raises `OSError`.

    What is damaged is passed over: a rate that is too low makes no rewrite wrong.
    """
    per_hour: dict[int, float] = {}
    extracts, is_known = 0.0, False
    for file in listed_folder(io, _folder(location)):
        content = read_file(io, file.path)
        try:
            document = json.loads(content)
            hours = (document["until-ms"] - document["since-ms"]) / 3_600_000
            if document["until-ms"] < now_ms - RECENT_MS or hours <= 0:
                continue
            lookups = {int(bucket): int(count) for bucket, count in document["lookups"].items()}
            extracts += document["extracts"] / hours
        except (ValueError, KeyError, TypeError, AttributeError):
            continue
        is_known = True
        for bucket, count in lookups.items():
            per_hour[bucket] = per_hour.get(bucket, 0.0) + count / hours
    return ReadRates(per_hour, extracts) if is_known else None


def forget_counts(io: FileIO, location: str, before_ms: int) -> None:
    """Delete counts of processes that wrote their last before that. Raises `OSError`."""
    old = [
        file.path
        for file in listed_folder(io, _folder(location))
        if file.modified_ms is not None and file.modified_ms < before_ms
    ]
    delete_files(io, old)


def _folder(location: str) -> str:
    return beside(location, "reads")

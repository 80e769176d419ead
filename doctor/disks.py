"""Checks of disks: free room, and for how long the hot window fits at the rate at which records come."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from thermocline.doctor.finding import Finding, Outcome, not_looked_at, well
from thermocline.doctor.fixes import export
from thermocline.doctor.sample import sample_of
from thermocline.doctor.spans import shown_bytes, shown_ms
from thermocline.errors import ThermoclineError

if TYPE_CHECKING:
    from thermocline.doctor.check import Examination
    from thermocline.settings import ServingSettings

__all__ = ["Rate", "disks", "free_bytes", "hot_window", "hot_window_of"]

FREE_BYTES_MIN: Final = 1_000_000_000
"""Below it, whatever is written next may find no room."""
KEPT_BYTES: Final = 512 << 20
"""Tailers pause before less than this is free: twice a generation's size (`serving.hot.tier`)."""
STORED_BYTES: Final = 100
"""What a hot record takes beside its key and value, about: the tree, offset and time."""
RATE_MS: Final = 3_600_000
"""The last hour, by which the rate is measured."""
OUTAGE_MS_MIN: Final = 3_600_000
"""For so long ingest should be able to stand still: an upgrade, or a night call that is answered."""


@dataclass(frozen=True, slots=True)
class Rate:
    """What a table's topics got in the last hour, and the size of a record."""

    table: str
    records: int
    bytes_per_record: float

    @property
    def bytes_per_ms(self) -> float:
        """How fast the hot window grows."""
        return self.records * (self.bytes_per_record + STORED_BYTES) / RATE_MS


def disks(examination: Examination) -> Sequence[Finding]:
    """The disks of all folders that are written on this machine."""
    found: dict[int, Finding] = {}
    for name, folder in _folders(examination):
        existing = next(path for path in (folder, *folder.parents) if path.exists())
        device = existing.stat().st_dev
        if device not in found:
            found[device] = _room(name, existing)
    return tuple(found.values())


def hot_window(examination: Examination) -> Sequence[Finding]:
    """Each table's, at the rate of the last hour."""
    assert examination.log is not None
    serving = examination.settings.serving
    since_ms = examination.clock.now_ms() - RATE_MS
    rates, found = [], []
    for name in examination.tables:
        topics = examination.topics_of(name)
        if not topics:
            continue
        try:
            then, ends = examination.log.offsets_at(topics, since_ms), examination.log.ends(topics)
            records = sum(max(end - then.get((topic, p), end), 0) for topic, p, end in ends.items())
            rates.append(Rate(name, records, sample_of(examination, name).bytes_per_record))
        except ThermoclineError as error:
            found.append(not_looked_at(error.what, name))
    existing = next(path for path in (serving.state_dir, *serving.state_dir.parents) if path.exists())
    return [*found, *hot_window_of(serving, rates, free_bytes(existing))]


def hot_window_of(serving: ServingSettings, rates: Sequence[Rate], free: int) -> Iterator[Finding]:
    """For how long ingest may stand still until tailers pause: for want of disk, or at hot_bytes_max."""
    together = sum(rate.bytes_per_ms for rate in rates)
    for rate in rates:
        if not rate.records:
            yield well("no record came in the last hour", rate.table)
            continue
        by_disk_ms = max(free - KEPT_BYTES, 0) / together
        by_limit_ms = serving.hot_bytes_max / rate.bytes_per_ms
        lasts_ms = min(by_disk_ms, by_limit_ms)
        shown = (
            f"{rate.records:,} records in the last hour, of {shown_bytes(rate.bytes_per_record)}: the hot "
            f"window fits for {shown_ms(lasts_ms)} without a commit"
        )
        if lasts_ms >= OUTAGE_MS_MIN:
            yield well(shown, rate.table)
            continue
        needed = int(OUTAGE_MS_MIN * together)
        means = "if ingest stands still for longer, tailers pause, and answers grow old"
        if by_limit_ms <= by_disk_ms:
            wanted = max(int(2 * OUTAGE_MS_MIN * rate.bytes_per_ms), serving.hot_bytes_max)
            fix = export("serving.hot_bytes_max", wanted)
        else:
            fix = _find_room(serving.state_dir)
            means += (
                f"; the disk would need {shown_bytes(needed + KEPT_BYTES)} free, and has {shown_bytes(free)}"
            )
        yield Finding(Outcome.WARNING, shown, means, fix, rate.table)


def free_bytes(folder: Path) -> int:
    """What can still be written to the disk that the folder is on."""
    disk = os.statvfs(folder)
    return disk.f_bavail * disk.f_frsize


def _folders(examination: Examination) -> Iterator[tuple[str, Path]]:
    settings = examination.settings
    yield "serving.state_dir", settings.serving.state_dir
    if settings.serving.extract_jobs_dir is not None:
        yield "serving.extract_jobs_dir", settings.serving.extract_jobs_dir
    if settings.audit.sink == "file":
        yield "audit.path", settings.audit.path
    warehouse = settings.catalog.warehouse.removeprefix("file://")
    if warehouse.startswith("/"):
        yield "catalog.warehouse", Path(warehouse)
    yield "sql.temp_dir", settings.sql.temp_dir or Path(os.environ.get("TMPDIR", "/tmp"))  # noqa: S108  asked only


def _room(name: str, folder: Path) -> Finding:
    free = free_bytes(folder)
    shown = f"{shown_bytes(free)} free"
    if free >= FREE_BYTES_MIN:
        return well(shown, f"{name} ({folder})")
    return Finding(
        Outcome.PROBLEM,
        shown,
        "writing there fails soon: tailers pause, and batches, extracts or sorts fail with storage-failed",
        _find_room(folder),
        f"{name} ({folder})",
    )


def _find_room(folder: Path) -> str:
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    place = shlex.quote(str(existing))
    return (
        f"# this shows what takes most of that disk: delete what nobody needs, or move {existing}\n"
        f"du -xk $(df --output=target {place} | tail -n 1) 2>/dev/null | sort -n | tail -n 20"
    )

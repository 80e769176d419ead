"""Findings about a table: what is wrong, in the order in which somebody would want to know, and what to do.

The bounds are those of the alert rules (`deploy/prometheus`), so that page and alerts agree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any, Final

from thermocline.serving.status.document import Finding
from thermocline.serving.status.words import duration, iso_moment, plural, share

if TYPE_CHECKING:
    from thermocline.serving.status.document import (
        DebtStatus,
        Freshness,
        IngestStatus,
        Level,
        OwnerStatus,
        RecordsStatus,
    )

__all__ = ["findings_of", "is_bad_bucket", "verdict_of"]

BEHIND: Final = 3
"""Commit intervals for which a record may wait before somebody should know; twice as many are trouble."""
HEADROOM_SECONDS: Final = (21_600.0, 86_400.0)
DEAD_SHARE: Final = 0.25
DEAD_ROWS: Final = 100_000
BUCKET_FILES: Final = 200
QUARANTINED_SHARE: Final = 0.01
_ORDER: Final[Mapping[Level, int]] = {"trouble": 0, "attention": 1, "well": 2}
WELL: Final = Finding(level="well", text="is well")


def findings_of(
    name: str,
    problem: str,
    tailer: Mapping[str, Any],
    freshness: Freshness,
    ingest: IngestStatus,
    owner: OwnerStatus | None,
    records: RecordsStatus,
    debt: DebtStatus | None,
) -> tuple[Finding, ...]:
    """What is wrong with a table, the worst first; ``problem`` is why it can't be read."""
    found = [
        *_of_serving(problem, tailer, freshness),
        *_of_owner(name, owner),
        *_of_ingest(name, ingest),
        *_of_records(name, records),
        *_of_debt(name, debt),
    ]
    return tuple(sorted(found, key=lambda one: _ORDER[one.level]))


def verdict_of(findings: Sequence[Finding]) -> Finding:
    """The worst of them; that it is well where there are none."""
    return findings[0] if findings else WELL


def is_bad_bucket(files: int, rows: int, dead_rows: int) -> bool:
    """Whether a bucket stands out: by the share of its rows that is dead, or the number of its files."""
    is_dead = dead_rows > DEAD_SHARE * (rows + dead_rows)
    return is_dead or files > BUCKET_FILES


def _of_serving(problem: str, tailer: Mapping[str, Any], freshness: Freshness) -> Iterator[Finding]:
    cause = tailer.get("problem") or tailer.get("catalog_problem") or {}
    next_step = _first_line(cause.get("next", "")) or "`thermocline status`"
    why = f": [{cause['code']}] {cause['what']}" if cause else ""
    if problem:
        yield Finding(level="trouble", text=f"is not ready: {problem}", next=next_step)
    elif freshness.stale:
        if freshness.age_seconds is None:
            text = "is stale: the log was not read to its end yet"
        else:
            age, allowed = duration(freshness.age_seconds), freshness.stale_after_seconds
            text = f"is stale: answers are {age} old, and {allowed:g} s are allowed"
        yield Finding(level="trouble", text=text + why, next=next_step)
    elif cause:
        yield Finding(level="attention", text=f"can't be followed{why}", next=next_step)
    if tailer.get("paused"):
        text = "takes in nothing more: serving.hot_bytes_max is used up, or the disk is nearly full"
        yield Finding(level="trouble", text=text, next="`thermocline status`")


def _of_owner(name: str, owner: OwnerStatus | None) -> Iterator[Finding]:
    if owner is None:
        return
    run = f"`thermocline ingest run {name}`"
    if owner.stopped_by:
        text = f"is not ingested: it stopped with [{owner.stopped_by}] {owner.stopped_because}"
        yield Finding(level="trouble", text=text, next=f"`thermocline explain {quote(owner.stopped_by)}`")
    elif (standby := owner.standby) is not None and (owner.is_gone or owner.ended):
        text = f"is being taken over by a standby: process {standby.pid} on {standby.host}"
        yield Finding(level="attention", text=text, next="`thermocline status`")
    elif owner.is_gone:
        text = f"is not ingested: process {owner.pid} on {owner.host} is gone without a word"
        yield Finding(level="trouble", text=text, next=run)
    elif owner.ended:
        yield Finding(level="attention", text=f"has had no owner since {iso_moment(owner.ended)}", next=run)


def _of_ingest(name: str, ingest: IngestStatus) -> Iterator[Finding]:
    lag, interval = ingest.lag_seconds or 0.0, ingest.interval_seconds
    if ingest.lag_records and interval and lag > BEHIND * interval:
        level: Level = "trouble" if lag > 2 * BEHIND * interval else "attention"
        waiting = plural(ingest.lag_records, "record")
        text = f"is behind: {waiting} wait to be committed, for {duration(lag)}"
        yield Finding(level=level, text=text, next=f"`thermocline ingest plan {name}`")
    headroom = ingest.headroom_seconds
    if headroom is not None and headroom < HEADROOM_SECONDS[1]:
        level = "trouble" if headroom < HEADROOM_SECONDS[0] else "attention"
        text = f"may lose records: in {duration(max(headroom, 0))} the broker drops what is not committed"
        yield Finding(level=level, text=text, next=f"`thermocline ingest run {name}`")


def _of_records(name: str, records: RecordsStatus) -> Iterator[Finding]:
    if records.refused:
        number = f"{plural(records.refused, 'record')}{' or more' if records.refused_more else ''}"
        text = f"refused {number} since the last commit"
        yield Finding(level="attention", text=text, next=f"`thermocline refused {name}`")
    if records.quarantined_of_day > QUARANTINED_SHARE * records.read_of_day:
        text = f"quarantined {plural(records.quarantined_of_day, 'record')} in the last day"
        yield Finding(level="attention", text=text, next=f"`thermocline quarantine list {name}`")


def _of_debt(name: str, debt: DebtStatus | None) -> Iterator[Finding]:
    if debt is None:
        return
    if debt.worst_dead_share > DEAD_SHARE and debt.dead_rows > DEAD_ROWS:
        text = f"is slow to read: {share(debt.worst_dead_share)} of the rows of a bucket are dead"
        yield Finding(level="attention", text=text, next=f"`thermocline maintain status {name}`")
    if debt.worst_files > BUCKET_FILES:
        text = f"is slow to read: a bucket has {debt.worst_files:,} files"
        yield Finding(level="attention", text=text, next=f"`thermocline maintain status {name}`")


def _first_line(text: str) -> str:
    return text.partition("\n")[0]

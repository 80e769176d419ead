"""Maintenance in a hurry: what takes it hours happens within the minutes of a torture.

An owner has ``environment(...)`` in its environment. The settings allow no less than 20 minutes, so they are
passed over here; what keeps files safe stays as it is. Orphans are left to the simulation: clocks are set an
hour apart here, which is nothing beside the days that they wait, and everything beside seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.failpoints import firing
from thermocline.failpoints import MODULE_VARIABLE, Hook
from thermocline.maintenance import cleaning, expiring, expiry, journal, planning

if TYPE_CHECKING:
    from threading import Event

    from pyiceberg.table import Table

    from thermocline.maintenance.sweep import Swept
    from thermocline.process.clock import Clock

SNAPSHOTS_SECONDS: Final = 30.0
FILES_SECONDS: Final = 30.0
SETTINGS: Final = """
[maintenance]
target_file_bytes = "1MiB"
lookups_per_second = 1000000000
snapshots_seconds = 1200
files_seconds = 600
"""
"""Everything is worth a rewrite, and the rest is as short as it may be."""
_HURRIED: Final = (
    (planning, "PLAN_SECONDS", 3.0),
    (planning, "RETRY_SECONDS", 5.0),
    (journal, "RETRY_SECONDS", 5.0),
    (expiring, "EXPIRE_SECONDS", 10.0),
    (cleaning, "SWEEP_SECONDS", 10.0),
    (expiry, "KEPT_SECONDS_MIN", SNAPSHOTS_SECONDS),
    (expiring, "KeepRule", lambda _: expiry.KeepRule(SNAPSHOTS_SECONDS)),
)


def environment(file: Path | None = None) -> dict[str, str]:
    """For a process that is to be in a hurry; it is armed by the file, where one is given."""
    return {**firing.environment(file=file), MODULE_VARIABLE: __name__}


def hook() -> Hook | None:
    """Sets how often things happen, at the first failpoint that the process meets; then as `firing.hook`."""
    for module, name, hurried in _HURRIED:
        assert hasattr(module, name)
        setattr(module, name, hurried)
    changed: Any = cleaning
    swept = changed.sweep

    def sweep(
        load: Callable[[], Table],
        _: int,
        clock: Clock,
        in_use: Collection[str] = (),
        stop: Event | None = None,
    ) -> Swept:
        found: Swept = swept(load, int(1000 * FILES_SECONDS), clock, in_use, stop)
        return found

    changed.sweep = sweep
    return firing.hook()

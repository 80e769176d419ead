"""The lease: a small object beside the table that says who owns it, so that other processes wait their turn.

It is a courtesy, never the safety: that is the epoch in the table, which a commit checks. So the object may
be lost, late, or written by two at once, and no record is. Renewing it never touches the catalog.

A clean end leaves it there, marked as ended, for the sake of its epoch: none is given twice, also where the
catalog is restored from an older copy.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeGuard

from thermocline.errors import OwnerLost, StorageFailed, TableHeld, first_line
from thermocline.failpoints import failpoint, failstep
from thermocline.iceberg.files import read_file, write_file
from thermocline.iceberg.holder import Holder, path_of
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.errors import ThermoclineError
    from thermocline.process.clock import Clock

# A renewal may fail twice, or be late by as much, before anybody else may take the lease for abandoned.
RENEWALS_PER_LEASE = 3
# While a lease is watched: often enough to see a clean end at once, seldom enough for an object store.
_WATCH_SECONDS = 0.5
_WATCHES_PER_LEASE = 10

Say = Callable[[str], None]
"""Gets a line for the person who waits."""

_logger = logging.getLogger(__name__)


class StoppedWaiting(Exception):
    """A process was told to stop before the table was its own."""


class OwnerLease:
    """One process's lease of one table: wait for it, hold it, release it."""

    def __init__(
        self, io: FileIO, location: str, name: str, lease_seconds: float, clock: Clock, say: Say
    ) -> None:
        self.io = io
        self._path = path_of(location)
        self._name = name
        self._clock = clock
        self._say = say
        self._us = Holder.this_process(lease_seconds)
        self.has_failed = False
        self._free_as: bytes | None = None
        self._watched: bytes | None = None
        self._patience = lease_seconds
        self._free_at = 0.0
        self._lost_to: int | None = None
        self._renewing = threading.Lock()
        self._ended = threading.Event()
        self._renewer: threading.Thread | None = None

    def wait_until_free(self, stop: threading.Event | None = None) -> None:
        """Return once nobody holds the table; raises what `is_free` raises.

        Also `StoppedWaiting` when ``stop`` was set.
        """
        while not self.is_free():
            if stop is not None and stop.is_set():
                raise StoppedWaiting
            self._clock.sleep(min(_WATCH_SECONDS, self.watch_seconds))

    def is_free(self) -> bool:
        """Look once whether nobody holds the table; to be asked again until it is so.

        That is: nobody says so; or an owner that has ended; or one whose lease is not renewed for as long as
        it promises, by this process's own monotonic clock, from the first look on.

        Raises:
            TableHeld: an owner lives. The next look is a first one.
            StorageFailed: the object can't be read.
        """
        found = self._read()
        if not _is_held(found):
            self._free_as, self._watched = found, None
            return True
        if self._watched is None:
            self._watch(found)
            return False
        # safety: lease-watched
        if found != self._watched and Holder.from_json(found) is not None:  # or it is just being written
            self._watched = None
            raise self._held(found)
        if self._clock.monotonic() < self._free_at:
            return False
        self._free_as, self._watched = self._watched, None
        return True

    @property
    def watch_seconds(self) -> float:
        """Between two looks: a small part of what the owner promises."""
        return self._patience / _WATCHES_PER_LEASE

    def _watch(self, seen: bytes) -> None:
        holder = Holder.from_json(seen)
        # safety: lease-patience
        self._patience = holder.lease_seconds if holder is not None else self._us.lease_seconds
        self._watched, self._free_at = seen, self._clock.monotonic() + self._patience
        if holder is not None:
            self._say(
                f"process {holder.pid} on {holder.host} held {self._name} since {holder.since}; "
                f"waiting up to {self._patience:g} s to see whether it lives"
            )

    @property
    def epoch_floor(self) -> int:
        """The epoch of whoever held the table before; 0 where nobody said so."""
        holder = Holder.from_json(self._free_as) if self._free_as is not None else None
        return holder.epoch if holder is not None else 0

    def check_still_free(self) -> None:
        """Raises `TableHeld` when somebody has shown life since the table was seen to be free.

        Also `StorageFailed`.
        """
        found = self._read()
        if found != self._free_as and _is_held(found):  # safety: lease-still-free
            raise self._held(found)

    def hold(self, epoch: int) -> None:
        """Say that this process owns the table, now and again until `release`."""
        now = self._now()
        self._us = replace(self._us, epoch=epoch, since=now, renewed=now)
        self.renew_or_warn()
        self._renewer = threading.Thread(target=self._keep, name=f"lease of {self._name}", daemon=True)
        self._renewer.start()

    def check(self) -> None:
        """Raises `OwnerLost` when another owner was met on renewing."""
        if self._lost_to is not None:
            raise OwnerLost(table=self._name, epoch_ours=self._us.epoch, epoch_found=self._lost_to)

    def release(self, error: ThermoclineError | None = None) -> None:
        """Stop renewing, and free the table at once if it is still ours. Only a warning where that fails.

        ``error`` is what ends its owner, for those who ask why nobody owns the table.
        """
        self._ended.set()
        if self._renewer is None:
            return
        self._renewer.join(self._us.lease_seconds)
        try:
            seen = self._read()
            holder = Holder.from_json(seen) if seen is not None else None
            if holder is not None and holder.owner == self._us.owner:
                if error is not None:
                    self._us = replace(self._us, stopped_by=error.code, stopped_because=error.what)
                self._us = replace(self._us, ended=self._now())  # safety: lease-leaves-epoch
                self._write()
        except Exception as failure:  # noqa: BLE001  a store raises what it likes
            # Others wait for as long as the lease promises, that is all.
            _logger.warning("lease not released", extra=fields(table=self._name, detail=str(failure)))

    def renew(self) -> None:
        """Renew once, unless a higher epoch is met, or ours in another's hands: then the table is lost."""
        with self._renewing:
            seen = self._read()
            holder = Holder.from_json(seen) if seen is not None else None
            if holder is not None and self._is_overtaken_by(holder):  # safety: lease-lost
                self._lost_to = holder.epoch
                return
            if not self._ended.is_set():
                self._us = replace(self._us, renewed=self._now(), renewals=self._us.renewals + 1)
                self._write()

    def _is_overtaken_by(self, holder: Holder) -> bool:
        is_another = holder.owner != self._us.owner
        # safety: lease-twin
        return holder.epoch > self._us.epoch or (holder.epoch == self._us.epoch and is_another)

    def _keep(self) -> None:
        while self._lost_to is None and not self._ended.wait(self._us.lease_seconds / RENEWALS_PER_LEASE):
            self.renew_or_warn()

    def renew_or_warn(self) -> None:
        """Renew once; only a warning where that fails, however it does. ``has_failed`` tells how it went."""
        try:
            self.renew()
            self.has_failed = False
        except Exception as error:  # noqa: BLE001  a store raises what it likes, and the next renewal may succeed
            # Nothing is at risk: at worst another process takes the table, and our commits are refused.
            self.has_failed = True
            _logger.warning("lease not renewed", extra=fields(table=self._name, detail=str(error)))

    def _read(self) -> bytes | None:
        try:
            failpoint("lease.read")
            return read_file(self.io, self._path)
        except FileNotFoundError:
            return None
        except Exception as error:
            detail = f"{self._path}: {first_line(error)}"
            raise StorageFailed(table=self._name, detail=detail) from error

    def _write(self) -> None:
        with failstep("lease.write"):
            write_file(self.io, self._path, json.dumps(asdict(self._us)).encode())

    def _held(self, found: bytes) -> TableHeld:
        holder = Holder.from_json(found) or replace(self._us, host="another machine", pid=0)
        return TableHeld(
            table=self._name,
            host=holder.host,
            pid=holder.pid,
            since=holder.since,
            renewed=holder.renewed,
            epoch=holder.epoch,
        )

    def _now(self) -> str:
        return datetime.fromtimestamp(self._clock.now_ms() / 1000, UTC).isoformat(timespec="seconds")


def _is_held(seen: bytes | None) -> TypeGuard[bytes]:
    """Whether the object may be that of an owner who lives; what is not whole may be."""
    if seen is None:
        return False
    holder = Holder.from_json(seen)
    return holder is None or not holder.has_ended()

"""The lease: a small object beside the table that says who owns it, so that other processes wait their turn.

It is a courtesy, never the safety: that is the epoch in the table, which a commit checks. So the object may
be lost, late, or written by two at once, and no record is. Renewing it never touches the catalog.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import threading
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from thermocline.errors import OwnerLost, TableHeld
from thermocline.logs import fields

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

    from thermocline.clock import Clock

# A renewal may fail twice, or be late by as much, before anybody else may take the lease for abandoned.
RENEWALS_PER_LEASE = 3
# While a lease is watched: often enough to see a clean end at once, seldom enough for an object store.
_WATCH_SECONDS = 0.5
_WATCHES_PER_LEASE = 10

Say = Callable[[str], None]
"""Gets a line for the person who waits."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who owns a table, as the object says it. Times are ISO 8601, in UTC."""

    owner: str
    epoch: int
    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    process_started: str
    since: str
    renewed: str
    renewals: int
    lease_seconds: float

    @classmethod
    def this_process(cls, lease_seconds: float) -> Self:
        """This process, as an owner that has no epoch yet."""
        return cls(
            owner=str(uuid.uuid4()),
            epoch=0,
            host=socket.gethostname(),
            boot_id=_boot_id(),
            pid_namespace=_pid_namespace(),
            pid=os.getpid(),
            process_started=_started(os.getpid()) or "",
            since="",
            renewed="",
            renewals=0,
            lease_seconds=lease_seconds,
        )

    @classmethod
    def from_json(cls, text: bytes) -> Self | None:
        """None where the object is not whole, as while it is being written."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError):
            return None

    def is_dead(self) -> bool:
        """Whether it was a process of this machine, as it runs now, that has ended. False where unknown."""
        if not self.boot_id or (self.boot_id, self.pid_namespace) != (_boot_id(), _pid_namespace()):
            return False
        return _started(self.pid) != self.process_started


class Lease:
    """One process's lease of one table: wait for it, hold it, release it."""

    def __init__(
        self, io: FileIO, location: str, name: str, lease_seconds: float, clock: Clock, say: Say
    ) -> None:
        self._io = io
        self._path = f"{location}/thermocline/owner.json"
        self._name = name
        self._clock = clock
        self._say = say
        self._us = Holder.this_process(lease_seconds)
        self._free_as: bytes | None = None
        self._lost_to: int | None = None
        self._ended = threading.Event()
        self._renewer: threading.Thread | None = None

    def wait_until_free(self) -> None:
        """Return once nobody holds the table.

        That is: nobody says so; or a process of this machine that has ended; or one whose lease is not
        renewed for as long as it promises, by this process's own monotonic clock.

        Raises:
            TableHeld: an owner lives.
        """
        seen = self._read()
        holder = Holder.from_json(seen) if seen is not None else None
        if seen is None or (holder is not None and holder.is_dead()):
            self._free_as = seen
            return
        patience = holder.lease_seconds if holder is not None else self._us.lease_seconds
        if holder is not None:
            self._say(
                f"process {holder.pid} on {holder.host} held {self._name} since {holder.since}; "
                f"waiting up to {patience:g} s to see whether it lives"
            )
        deadline = self._clock.monotonic() + patience
        while self._clock.monotonic() < deadline:
            self._clock.sleep(min(_WATCH_SECONDS, patience / _WATCHES_PER_LEASE))
            found = self._read()
            if found is None:
                seen = found
                break
            if found != seen and Holder.from_json(found) is not None:  # or it is just being written
                raise self._held(found)
        self._free_as = seen

    @property
    def epoch_floor(self) -> int:
        """The epoch of whoever held the table before; 0 where nobody said so."""
        holder = Holder.from_json(self._free_as) if self._free_as is not None else None
        return holder.epoch if holder is not None else 0

    def check_still_free(self) -> None:
        """Raises `TableHeld` when somebody has shown life since the table was seen to be free."""
        found = self._read()
        if found is not None and found != self._free_as:
            raise self._held(found)

    def hold(self, epoch: int) -> None:
        """Say that this process owns the table, now and again until `release`."""
        now = self._now()
        self._us = replace(self._us, epoch=epoch, since=now, renewed=now)
        self._renew_or_warn()
        self._renewer = threading.Thread(target=self._keep, name=f"lease of {self._name}", daemon=True)
        self._renewer.start()

    def check(self) -> None:
        """Raises `OwnerLost` when another owner was met on renewing."""
        if self._lost_to is not None:
            raise OwnerLost(table=self._name, epoch_ours=self._us.epoch, epoch_found=self._lost_to)

    def release(self) -> None:
        """Stop renewing, and free the table at once if it is still ours."""
        self._ended.set()
        if self._renewer is None:
            return
        self._renewer.join(self._us.lease_seconds)
        with suppress(OSError):
            seen = self._read()
            holder = Holder.from_json(seen) if seen is not None else None
            if holder is not None and holder.owner == self._us.owner:
                self._io.delete(self._path)

    def renew(self) -> None:
        """Renew once, unless a higher epoch is met: then the table is lost."""
        seen = self._read()
        holder = Holder.from_json(seen) if seen is not None else None
        if holder is not None and holder.epoch > self._us.epoch:
            self._lost_to = holder.epoch
            return
        self._us = replace(self._us, renewed=self._now(), renewals=self._us.renewals + 1)
        self._write()

    def _keep(self) -> None:
        while self._lost_to is None and not self._ended.wait(self._us.lease_seconds / RENEWALS_PER_LEASE):
            self._renew_or_warn()

    def _renew_or_warn(self) -> None:
        try:
            self.renew()
        except OSError as error:
            # Nothing is at risk: at worst another process takes the table, and our commits are refused.
            _logger.warning("lease not renewed", extra=fields(table=self._name, detail=str(error)))

    def _read(self) -> bytes | None:
        try:
            with self._io.new_input(self._path).open() as source:
                return source.read()
        except FileNotFoundError:
            return None

    def _write(self) -> None:
        with self._io.new_output(self._path).create(overwrite=True) as sink:
            sink.write(json.dumps(asdict(self._us)).encode())

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


def _boot_id() -> str:
    """Empty where the machine does not tell: then no process is ever taken for one of this machine."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _pid_namespace() -> str:
    with suppress(OSError):
        return str(Path("/proc/self/ns/pid").readlink())
    return ""


def _started(pid: int) -> str | None:
    """When a process of this machine started, in the kernel's ticks; None when it has ended.

    Source: proc(5), the fields of ``/proc/PID/stat`` after the name: the state, and 19 later the start time.
    """
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if state in "ZX" else rest[18]

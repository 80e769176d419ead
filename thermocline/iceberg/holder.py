"""The owner of a table and its standby, by small objects beside it, which they write (``ingest.claim``)."""

from __future__ import annotations

import json
import logging
import os
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import fields as fields_of
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from thermocline.iceberg.files import beside, read_file
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

__all__ = ["Holder", "holder_of", "path_of", "standby_of", "standby_path"]

GONE_SECONDS_MIN: Final = 60.0
"""The clocks of machines may differ by less."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Holder:
    """Who owns a table, as the object says it. Times are ISO 8601, in UTC; ``ended`` is empty until then.

    ``stopped_by`` is the code of the error that it ended with, and ``stopped_because`` what that says.
    """

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
    ended: str = ""
    stopped_by: str = ""
    stopped_because: str = ""

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
        """None where the object is not whole, as while it is being written. Unknown fields are left."""
        try:
            found = json.loads(text)
            return cls(**{field.name: found[field.name] for field in fields_of(cls) if field.name in found})
        except (ValueError, TypeError):
            return None

    def has_ended(self) -> bool:
        """Whether it says so, or was a process of this machine, as it runs now, that is gone.

        False where unknown.
        """
        if self.ended:
            return True
        if not self.is_here():  # safety: lease-this-machine
            return False
        started = _started(self.pid)
        is_known = bool(started and self.process_started)
        return started is None or (is_known and started != self.process_started)

    def is_here(self) -> bool:
        """Whether it is a process of this machine, as it runs now."""
        return bool(self.boot_id) and (self.boot_id, self.pid_namespace) == (_boot_id(), _pid_namespace())

    def is_gone(self, now_ms: int) -> bool:
        """Whether it has not ended by its own word, and does not live: as after a kill, or a lost machine.

        Of another machine, its lease says so, by the clocks of both: it is given twice its time, and a minute
        at least.
        """
        if self.ended or not self.renewed:
            return False
        if self.is_here():
            return self.has_ended()
        renewed_ms = datetime.fromisoformat(self.renewed).timestamp() * 1000
        return now_ms - renewed_ms > 1000 * max(2 * self.lease_seconds, GONE_SECONDS_MIN)


def holder_of(io: FileIO, location: str) -> Holder | None:
    """Who owns the table at that location, or owned it last; None where nobody says so."""
    return _said(io, path_of(location))


def standby_of(io: FileIO, location: str) -> Holder | None:
    """Who stands by to own the table at that location, by ``ingest.claim.standing_by``; it has no epoch.

    It may have gone since (`Holder.is_gone`). None where nobody says so.
    """
    return _said(io, standby_path(location))


def _said(io: FileIO, path: str) -> Holder | None:
    try:
        return Holder.from_json(read_file(io, path))
    except FileNotFoundError:
        return None
    except Exception as error:  # noqa: BLE001  a store raises what it likes
        _logger.debug("lease not read", extra=fields(path=path, detail=str(error)))
        return None


def path_of(location: str) -> str:
    """Where the object is, for a table at that location."""
    return beside(location, "owner.json")


def standby_path(location: str) -> str:
    """Where a standby leaves its trace, for a table at that location."""
    return beside(location, "standby.json")


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
    """When a process of this machine started, in the kernel's ticks; None when it has ended, empty if hidden.

    Source: proc(5), the fields of ``/proc/PID/stat`` after the name: the state, and 19 later the start time.
    A machine may hide other users' processes there (``hidepid``), but kill(2) says that they are.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass  # another user's
    try:
        state, *rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return None if state in "ZX" else rest[18]

"""No core files: a dump of a process's memory has the secrets that it knows, and rows."""

from __future__ import annotations

import resource
from typing import Final

__all__ = ["leave_no_core"]

NO_CORE: Final = 1
"""Bytes. Too few for a file, and the one value at which the kernel starts no program to take the dump.

0 is no bound of what such a program gets. ``PR_SET_DUMPABLE`` would keep it away, too, but also our own
metrics from ``/proc``, and debuggers of the same user from the process.

Source: ``fs/coredump.c``; core(5), "Piping core dumps to a program".
"""


def leave_no_core() -> None:
    """For this process, and for those that it starts from now on, for good."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    limit = NO_CORE if hard == resource.RLIM_INFINITY else min(hard, NO_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))  # safety: no-core

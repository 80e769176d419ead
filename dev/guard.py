"""Sees to it that a process of ours does not outlive us, however we end."""

from __future__ import annotations

import subprocess


def guard_of(pid: int) -> subprocess.Popen[bytes]:
    """A shell whose input ends when this process does; it then kills the other one. To be killed after it.

    A parent-death signal would do it on Linux alone, and at the end of the starting thread already.
    """
    return subprocess.Popen(
        ["/bin/sh", "-c", f"read -r _; kill -9 {pid}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def release(guard: subprocess.Popen[bytes]) -> None:
    """Ends the guard of a process that has ended, before another process gets its id."""
    guard.kill()
    guard.communicate()

"""A starter of a server, killed, so that it has no chance to clean up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil


def ends_with_its_starter(program: str, timeout_seconds: float) -> bool:
    """Runs a program that prints the id of a process that it starts; kills it, and waits for that process."""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        pid = int(starter.stdout.readline())
        os.kill(pid, 0)
        starter.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + timeout_seconds
    while _is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not _is_alive(pid)


def _is_alive(pid: int) -> bool:
    """A process that ended and that nobody has waited for yet is not alive."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False

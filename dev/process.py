"""A server process of ours that does not outlive us, with its log in a file."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from thermocline.dev.guard import guard_of, release

_TAIL_LINES = 20  # of a log, in an error


class GuardedProcess:
    """A command that runs from its construction on; see `end`. Its output goes to the end of its log."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        log_path: Path,
        folder: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """Starts it, in a folder, with these variables alone where they are given."""
        with log_path.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # Its own session: Ctrl-C at the terminal is ours to handle, in our order.
                start_new_session=True,
            )
        self._guard = guard_of(self._process.pid)

    @property
    def pid(self) -> int:
        """Its id, also after its end."""
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def end(self, how: signal.Signals, timeout_seconds: float) -> None:
        """Sends the signal and waits; kills it if that takes too long. To be called once."""
        self._process.send_signal(how)
        try:
            self._process.wait(timeout_seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        release(self._guard)


def end_of(log_path: Path) -> str:
    """What a log ends with, as a part of an error's cause."""
    lines = log_path.read_text(errors="replace").splitlines()
    # Without the frames of stack traces, which would push out what they are about.
    tail = [line for line in lines if not line.startswith("\tat ")][-_TAIL_LINES:]
    return "\n".join([f"its log {log_path} ends with", *tail])

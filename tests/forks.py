"""Runs pytest again and again, each time in a fork of a process that has imported what others wrote.

A request is a line of JSON at the standard input, an answer one at the standard output; see `Forks`.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Final

# Not what pytest's plugins import: it rewrites them, and they must not have been imported before.
_IMPORTED: Final = (
    "confluent_kafka.admin",
    "duckdb",
    "pandas",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pydantic",
    "pyiceberg.catalog.sql",
    "pyspark.sql",
    "sqlglot",
)
_TAIL_CHARACTERS: Final = 2000


class Forks:
    """One such process, which runs one pytest at a time; it ends with this one."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def pytest(
        self, folder: Path, arguments: Sequence[str], timeout_seconds: float
    ) -> tuple[int | None, str]:
        """Pytest's exit code, or None where it did not end in time, and the end of what it said."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(folder), *arguments, timeout_seconds]), file=self._process.stdin, flush=True)
        code, output = json.loads(self._process.stdout.readline())
        return code, output


def _main() -> None:
    for name in _IMPORTED:
        import_module(name)
    for line in sys.stdin:
        folder, *arguments, timeout_seconds = json.loads(line)
        with tempfile.TemporaryFile("w+") as output:
            child = os.fork()
            if not child:
                _become_pytest(folder, arguments, output)
            code = _exit_code(child, timeout_seconds)
            output.seek(0)
            print(json.dumps([code, output.read()[-_TAIL_CHARACTERS:]]), flush=True)


def _become_pytest(folder: str, arguments: Sequence[str], output: IO[Any]) -> None:
    """Ends this process as pytest in a copy of the repository would."""
    import pytest  # noqa: PLC0415  (the first of its plugins' modules)

    os.chdir(folder)
    os.environ["PYTHONPATH"] = sys.path[0] = folder
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for stream in (1, 2):
        os.dup2(output.fileno(), stream)
    sys.exit(pytest.main(list(arguments)))


def _exit_code(child: int, timeout_seconds: float) -> int | None:
    pidfd = os.pidfd_open(child)
    ending = select.poll()
    ending.register(pidfd, select.POLLIN)
    is_ended = bool(ending.poll(timeout_seconds * 1000))
    os.close(pidfd)
    if not is_ended:
        os.kill(child, signal.SIGKILL)
    status = os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status) if is_ended else None


if __name__ == "__main__":
    _main()

"""The machine's resources that our processes take, by Prometheus's standard names, and the release.

A server has several processes, and whichever is asked answers for all: each leaves a note in a folder that
they share. Numbers come from the kernel, at the moment of the question.
"""

from __future__ import annotations

import json
import os
import platform
import resource
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from thermocline import __version__
from thermocline.process.title import title

__all__ = ["MULTIPROCESS_FOLDER", "Usage", "note_process"]

MULTIPROCESS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"
_PROC: Final = Path("/proc")
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
# In /proc/PID/stat, counted from what follows the name in brackets.
_USER_TICKS, _SYSTEM_TICKS, _START_TICKS, _PAGES = 11, 12, 19, 21


class _Used(NamedTuple):
    cpu_seconds: float
    resident_bytes: int
    start_ticks: int
    open_files: int


def note_process() -> None:
    """Says to the other processes of this server, if it is one's, that this one belongs to them."""
    folder = os.environ.get(MULTIPROCESS_FOLDER)
    if folder is not None:
        pid = os.getpid()
        note = [title(), _used(pid).start_ticks]  # another process may have the number later
        (Path(folder) / f"{pid}.process").write_text(json.dumps(note), encoding="utf-8")


class Usage(Collector):
    """The metrics of all running processes, and the release."""

    def describe(self) -> Iterable[Metric]:
        """The same without values."""
        return _families({}).values()

    def collect(self) -> Iterable[Metric]:
        """One sample for each process."""
        return _families(dict(_running())).values()


def _families(used: Mapping[str, _Used]) -> dict[str, Metric]:
    named = ("process",)
    cpu = CounterMetricFamily(
        "process_cpu_seconds", "Processor time that the process has used, in seconds.", labels=named
    )
    memory = GaugeMetricFamily(
        "process_resident_memory_bytes",
        "Memory that the process occupies, in bytes; it includes pages that processes share.",
        labels=named,
    )
    start = GaugeMetricFamily(
        "process_start_time_seconds", "When the process started, in seconds since 1970.", labels=named
    )
    files = GaugeMetricFamily("process_open_fds", "Open files and sockets of the process.", labels=named)
    files_max = GaugeMetricFamily(
        "process_max_fds", "Maximum number of open files and sockets of the process.", labels=named
    )
    build = GaugeMetricFamily(
        "thermocline_build_info", "1, with the release that runs.", labels=("version", "python")
    )
    build.add_metric((__version__, platform.python_version()), 1)
    booted_at = _booted_at() if used else 0.0
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    for name, one in used.items():
        cpu.add_metric((name,), one.cpu_seconds)
        memory.add_metric((name,), one.resident_bytes)
        start.add_metric((name,), booted_at + one.start_ticks / _TICKS)
        files.add_metric((name,), one.open_files)
        files_max.add_metric((name,), limit)
    return {family.name: family for family in (build, cpu, memory, start, files, files_max)}


def _running() -> Iterator[tuple[str, _Used]]:
    """What each process uses, by its title: those of the server, or this one."""
    folder = os.environ.get(MULTIPROCESS_FOLDER)
    if folder is None:
        yield title(), _used(os.getpid())
        return
    for path in sorted(Path(folder).glob("*.process")):
        with suppress(OSError, ValueError):  # it has ended, or is just beginning
            name, start_ticks = json.loads(path.read_text(encoding="utf-8"))
            used = _used(int(path.stem))
            if used.start_ticks == start_ticks:
                yield name, used


def _used(pid: int) -> _Used:
    """Raises `OSError` when there is no such process any more."""
    folder = _PROC / str(pid)
    fields = (folder / "stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    return _Used(
        (int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])) / _TICKS,
        int(fields[_PAGES]) * _PAGE_BYTES,
        int(fields[_START_TICKS]),
        sum(1 for _ in (folder / "fd").iterdir()),
    )


def _booted_at() -> float:
    for line in (_PROC / "stat").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("btime "):
            return float(line.split()[1])
    return 0.0

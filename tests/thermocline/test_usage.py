"""What processes use, told by any one of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from thermocline import __version__
from thermocline.process.usage import MULTIPROCESS_FOLDER, Usage
from thermocline.serving.store import measures

# Uses half a second and 200 MB, says that it did, and ends when nobody listens.
WORKER = """
import sys, time
from thermocline.process.title import set_title
from thermocline.process.usage import note_process
set_title(sys.argv[1])
note_process()
held = b"x" * 200_000_000
while time.process_time() < 0.5: pass
print("ready", flush=True)
sys.stdin.read()
"""


def _started(name: str) -> subprocess.Popen[str]:
    worker = subprocess.Popen(
        [sys.executable, "-c", WORKER, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


def _ended(worker: subprocess.Popen[str]) -> None:
    worker.communicate()


def _values(name: str) -> dict[str, float]:
    registry = CollectorRegistry()
    registry.register(Usage())
    return {
        sample.labels["process"]: sample.value
        for metric in registry.collect()
        for sample in metric.samples
        if sample.name == name
    }


def test_each_process_of_a_server_is_told_of_as_long_as_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MULTIPROCESS_FOLDER, str(tmp_path))
    workers = [_started(name) for name in ("api 0", "tailer profiles")]
    try:
        assert set(_values("process_cpu_seconds_total")) == {"api 0", "tailer profiles"}
        assert min(_values("process_cpu_seconds_total").values()) >= 0.3
        assert 200_000_000 < min(_values("process_resident_memory_bytes").values()) < 2_000_000_000
        assert min(_values("process_open_fds").values()) >= 3
        text = measures.render().decode()
        assert text.count("\nprocess_cpu_seconds_total{") == 2
        assert f'version="{__version__}"}} 1.0' in text
    finally:
        _ended(workers.pop())
    assert set(_values("process_open_fds")) == {"api 0"}
    # Another process with the number of one that ended is not taken for it.
    (tmp_path / f"{os.getpid()}.process").write_text('["tailer profiles", 1]')
    assert set(_values("process_open_fds")) == {"api 0"}
    _ended(workers.pop())


def test_a_process_without_others_tells_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MULTIPROCESS_FOLDER, raising=False)
    assert len(_values("process_cpu_seconds_total")) == 1

"""A process that crashes leaves no dump of its memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

AS_MUCH_AS_ALLOWED = """
import os, resource
_, hard = resource.getrlimit(resource.RLIMIT_CORE)
resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
"""
LEAVE_NONE = "from thermocline.process.core_files import leave_no_core; leave_no_core()\n"
CRASH = "os.abort()\n"
START_ANOTHER = """
import subprocess, sys
shown = "import resource; print(resource.getrlimit(resource.RLIMIT_CORE))"
subprocess.run([sys.executable, "-c", shown], check=True)
"""
ROOT = Path(__file__).parents[2]


def has_core(folder: Path, code: str) -> bool:
    """Whether the kernel says that it dumped a process that crashes, or there is a file."""
    folder.mkdir()
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", code], cwd=folder, env=environment)
    _, status = os.waitpid(process.pid, 0)
    process.returncode = status
    assert os.WIFSIGNALED(status)
    return os.WCOREDUMP(status) or any(folder.iterdir())


def test_a_crash_leaves_no_core_file(tmp_path: Path) -> None:
    if not has_core(tmp_path / "as usual", AS_MUCH_AS_ALLOWED + CRASH):
        pytest.skip("this machine dumps no cores")
    assert not has_core(tmp_path / "ours", AS_MUCH_AS_ALLOWED + LEAVE_NONE + CRASH)


def test_nor_does_one_of_a_program_that_it_starts() -> None:
    code = AS_MUCH_AS_ALLOWED + LEAVE_NONE + START_ANOTHER
    said = subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, capture_output=True, text=True)
    assert said.stdout in {"(1, 1)\n", "(0, 0)\n"}, "the latter where there was no more before"

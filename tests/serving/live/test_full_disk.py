"""Live snapshots of a table on a local disk that runs full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.serving.live import full_disk_of_live


def test_on_a_full_disk_a_snapshot_is_right_or_refused_and_leaves_nothing_and_the_next_one_is_right(
    tmp_path: Path,
) -> None:
    """Method: a tmpfs in a mount namespace of a process of its own; without the right to that, skipped."""
    command = [sys.executable, "-m", "tests.serving.live.full_disk_of_live", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode == full_disk_of_live.NOT_PERMITTED:
        pytest.skip("no mount namespace here")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    seen = ended.stdout.splitlines()
    assert len(seen) == len(full_disk_of_live.LEFT_KB)
    refused = "storage-failed: [errno 28] No space left on device"
    assert (seen[0], seen[-1]) == (refused, "right")
    assert set(seen) == {refused, "right"}

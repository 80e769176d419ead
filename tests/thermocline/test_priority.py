"""A process that gives way to a server beside it, and what it starts."""

from __future__ import annotations

import subprocess
import sys

CODE = """
import os, subprocess, sys
from thermocline.process.priority import lower_priority
already = os.getpriority(os.PRIO_PROCESS, 0)  # a test before may have lowered that of the tests' process
lower_priority(already + 7)
lower_priority(already + 3)
child = [sys.executable, "-c", "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"]
print(already + 7)
print(os.getpriority(os.PRIO_PROCESS, 0))
print(subprocess.run(child, capture_output=True, text=True, check=True).stdout.strip())
try:
    print(open("/proc/self/autogroup").read().split()[-1])
except OSError:
    print(already + 7)  # this kernel shares out the processor without sessions
"""


def test_a_process_and_what_it_starts_give_way_and_never_less_than_before() -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, text=True, check=True, start_new_session=True
    )
    wanted, *found = done.stdout.split()
    assert found == [wanted] * 3

"""The processor's priority: what runs beside a server on its machine gives way to it."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

_AUTOGROUP: Final = Path("/proc/self/autogroup")


def lower_priority(niceness: int) -> None:
    """Gives this process, and those that it starts from now on, at least that niceness.

    Linux may share out the processor by session first, and by niceness within a session only (autogroup). So
    a session of our own gets the same niceness. One that is shared with a shell is left alone. In a container
    or a service of systemd, the control group's weight decides.

    Source: sched(7), "The autogroup feature".
    """
    if niceness <= os.getpriority(os.PRIO_PROCESS, 0):
        return
    os.setpriority(os.PRIO_PROCESS, 0, niceness)
    if os.getsid(0) == os.getpid():
        with suppress(OSError):  # there is none, or it may not be changed
            _AUTOGROUP.write_text(str(niceness))

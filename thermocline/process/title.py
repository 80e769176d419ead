"""What ``ps`` and ``top`` call a process of ours: by what it does, and for which table."""

from __future__ import annotations

from setproctitle import setproctitle

from thermocline.text.typed import PROGRAM

__all__ = ["entitle"]


def entitle(what: str) -> None:
    """Call this process ``thermocline: WHAT``, such as ``thermocline: ingest orders``."""
    setproctitle(f"{PROGRAM}: {what}")

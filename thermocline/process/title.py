"""The names of our processes in ``ps`` and ``top``: by what each does, and for which table."""

from __future__ import annotations

from typing import Final

from setproctitle import setproctitle

from thermocline.text.typed import PROGRAM

__all__ = ["set_title", "title"]

_TITLES: Final = [""]


def set_title(what: str) -> None:
    """Call this process ``thermocline: WHAT``, such as ``thermocline: ingest orders``."""
    setproctitle(f"{PROGRAM}: {what}")
    _TITLES[0] = what


def title() -> str:
    """What this process was last called; empty if it never was."""
    return _TITLES[0]

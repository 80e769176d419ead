"""The version of a file that is only ever replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def file_version(path: Path) -> tuple[int, int] | None:
    """Changes whenever another file takes the path; None while there is none. One ``stat``."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_ino, status.st_mtime_ns

"""Values of settings that stand in files of their own, as containers mount secrets."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

__all__ = ["FILE_BYTES_MAX", "FileUnusable", "FromFile", "value_in"]

FILE_BYTES_MAX: Final = 1 << 20
"""As much as a secret of Kubernetes holds, so any key and any chain of certificates."""


class FromFile(str):
    """A value that a file has: taken as it is, also ``${NAME}`` in it, and never shown in a problem."""

    __slots__ = ()


class FileUnusable(ValueError):
    """Why a file can't be a value: words that follow its path, and never have anything of what is in it."""


def value_in(path: Path) -> FromFile:
    """What a file has, without one line break at its end. Raises `FileUnusable`."""
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileUnusable("is not a file")
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise FileUnusable(f"can't be read: {error.strerror or type(error).__name__}") from error
    if len(content) > FILE_BYTES_MAX:  # safety: value-file-bounded
        raise FileUnusable(f"is too large: a value has {FILE_BYTES_MAX:,} bytes at most")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        # Without its cause, which has the bytes.
        raise FileUnusable(f"is not UTF-8 text (byte {error.start:,})") from None
    return FromFile(text.removesuffix("\n").removesuffix("\r") if text.endswith("\n") else text)


def _without_waiting(path: str, flags: int) -> int:
    """A pipe that nobody writes to would be waited for."""
    return os.open(path, flags | os.O_NONBLOCK)

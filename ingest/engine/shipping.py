"""The code that a session takes to the machines of a cluster: that of its own release."""

from __future__ import annotations

import hashlib
import zipfile
from collections.abc import Collection, Iterator
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Final

PACKAGE: Final = "thermocline"
LEFT_OUT: Final = frozenset({"cli", "client", "dev", "doctor", "serving", "verify", "views"})
"""Rooms of which no task needs anything: those of batches, and the rewrites of maintenance."""
# The same code has the same bytes, and so the same name, whenever it is packed.
_PACKED_AT: Final = (1980, 1, 1, 0, 0, 0)
_DIGEST_CHARACTERS: Final = 12


def pack(folder: Path) -> Path:
    """A ZIP file of our package in the folder, for Python's path; named by what it holds."""
    files = list(_files(resources.files(PACKAGE), PACKAGE, LEFT_OUT))
    digest = hashlib.sha256()
    for name, content in files:
        digest.update(f"{name}\0{len(content)}\0".encode() + content)
    path = folder / f"thermocline-{digest.hexdigest()[:_DIGEST_CHARACTERS]}.zip"
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in files:
            packed.writestr(zipfile.ZipInfo(name, _PACKED_AT), content, zipfile.ZIP_DEFLATED)
    return path


def _files(folder: Traversable, path: str, left_out: Collection[str] = ()) -> Iterator[tuple[str, bytes]]:
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.name in left_out or entry.name == "__pycache__":
            continue
        if entry.is_dir():
            yield from _files(entry, f"{path}/{entry.name}")
        elif entry.is_file():
            yield f"{path}/{entry.name}", entry.read_bytes()

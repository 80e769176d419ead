"""Small file systems of our own that can be made full: tmpfs in a mount namespace, where permitted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

MARK: Final = "TORTURE_HAS_DISKS"
# The hot tier wants half a gigabyte free; the rest is memory that is taken only once it is used.
ROOM_MB: Final = 3072
# Above this the tailer would go on: below, it pauses and drops nothing.
NEARLY_FULL_KB: Final = 300 << 10
_BLOCK_KB: Final = 4


def enter_namespace() -> bool:
    """Runs this command again in a mount namespace of its own, if it may; whether this process is in one."""
    if os.environ.get(MARK):
        return os.environ[MARK] == "yes"
    for flags in (["-m"], ["-Urm"]):
        probe = ["unshare", *flags, "sh", "-c", "mount -t tmpfs none /mnt && umount /mnt"]
        try:
            may = subprocess.run(probe, capture_output=True, check=False).returncode == 0
        except OSError:
            return False
        if may:
            command = ["unshare", *flags, sys.executable, *sys.orig_argv[1:]]
            os.execvpe("unshare", command, {**os.environ, MARK: "yes"})
    return False


class Disk:
    """A folder on a file system of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        _run("mount", "-t", "tmpfs", "-o", f"size={ROOM_MB}m", "none", str(folder))

    def fill(self, free_kb: int = 0) -> None:
        """Leaves this much room and no more."""
        found = os.statvfs(self.folder)
        used_kb = (found.f_blocks - found.f_bfree) * found.f_frsize // 1024
        self._resize(f"{used_kb + free_kb + _BLOCK_KB}k")

    def empty(self) -> None:
        """Gives the room back."""
        self._resize(f"{ROOM_MB}m")

    def close(self, keep: bool) -> None:
        """Unmounts it; where it is to be kept, what is on it stays in the folder."""
        kept = self.folder.with_name(f"{self.folder.name}.kept")
        if keep:
            # The hot tier's files are a gigabyte each, and nearly empty.
            _run("cp", "-r", "--sparse=always", str(self.folder), str(kept))
        _run("umount", "-l", str(self.folder))
        if keep:
            self.folder.rmdir()
            kept.rename(self.folder)

    def _resize(self, size: str) -> None:
        _run("mount", "-o", f"remount,size={size}", str(self.folder))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)

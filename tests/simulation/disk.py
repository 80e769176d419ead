"""A disk in memory: files by path, by as much of `pathlib.Path` as the hot tier uses.

Whoever writes passes ``edge`` first, where a process may die or pause: between any two writes, never within
one. A file that was opened stays readable when its name goes, as on a real disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import Any

Stamp = tuple[int, int]


class MemoryDisk:
    """Files by path: bytes, or an environment (`tests.simulation.environments`)."""

    def __init__(self, edge: Callable[[str], None]) -> None:
        self.files: dict[str, Any] = {}
        self.stamps: dict[str, Stamp] = {}
        self.locked: set[str] = set()
        self.free_bytes = 1 << 40
        self.edge = edge
        self.before_listing: Callable[[], None] = _nothing
        self.changes = 0  # of what answers come from
        self._stamps = 0

    def path(self, text: str) -> MemoryPath:
        """A path on this disk."""
        return MemoryPath(self, text)

    def put(self, text: str, content: Any) -> None:
        """A file is there now, or another one."""
        self.files[text] = content
        self.changes += text.endswith("/manifest.json")
        self.touch(text)

    def touch(self, text: str) -> None:
        """A file gets another stamp."""
        self._stamps += 1
        self.stamps[text] = (1, self._stamps)

    def clear(self, folder: str) -> None:
        """Everything below a folder is gone; what somebody has open stays readable to them."""
        for text in [text for text in self.files if text.startswith(f"{folder}/")]:
            del self.files[text], self.stamps[text]


class MemoryPath:
    """A path on a `MemoryDisk`; folders are there as soon as somebody names them."""

    __slots__ = ("disk", "text")

    def __init__(self, disk: MemoryDisk, text: str) -> None:
        self.disk = disk
        self.text = text

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, name: str) -> MemoryPath:
        return MemoryPath(self.disk, f"{self.text}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return self.text.rpartition("/")[2]

    @property
    def parent(self) -> MemoryPath:
        """The folder."""
        return MemoryPath(self.disk, self.text.rpartition("/")[0])

    def with_name(self, name: str) -> MemoryPath:
        """Beside it."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> MemoryPath:
        """With another ending."""
        return MemoryPath(self.disk, self.text.rpartition(".")[0] + suffix)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Folders need not be made."""

    def exists(self) -> bool:
        """Whether there is such a file."""
        return self.text in self.disk.files

    def read_bytes(self) -> bytes:
        """The content. Raises FileNotFoundError."""
        try:
            content: bytes = self.disk.files[self.text]
        except KeyError:
            raise FileNotFoundError(self.text) from None
        return content

    def write_bytes(self, content: bytes) -> int:
        """Writes the whole file. Nobody looks at a file that is being written, so it is no edge."""
        self.disk.put(self.text, content)
        return len(content)

    def replace(self, target: MemoryPath) -> MemoryPath:
        """Gives the file another name, at once."""
        folder = target.parent.name
        self.disk.edge("write lease" if folder == "leases" else f"replace {target.name}")
        self.disk.put(target.text, self.disk.files.pop(self.text))
        self.disk.stamps.pop(self.text)
        return target

    def unlink(self, missing_ok: bool = False) -> None:
        """Removes the name. Raises FileNotFoundError."""
        self.disk.edge("unlink")
        if self.text not in self.disk.files:
            if missing_ok:
                return
            raise FileNotFoundError(self.text)
        del self.disk.files[self.text], self.disk.stamps[self.text]

    def glob(self, pattern: str) -> Iterator[MemoryPath]:
        """The folder's files whose name fits."""
        return (path for path, _ in stamps(self) if fnmatchcase(path.name, pattern))

    def stat(self) -> Any:
        """As much of it as the hot tier looks at."""
        if self.text not in self.disk.files:
            raise FileNotFoundError(self.text)
        inode, at = self.disk.stamps[self.text]
        return SimpleNamespace(st_blocks=8, st_ino=inode, st_mtime_ns=at)


class MemoryLock:
    """A lock that is held until it is closed; a crash closes it (`MemoryDisk.locked`)."""

    def __init__(self, path: MemoryPath) -> None:
        self._path = path
        path.disk.locked.add(path.text)

    def close(self) -> None:
        """Lets it go."""
        self._path.disk.locked.discard(self._path.text)


def _nothing() -> None:
    pass


# The functions of `serving.hot.disk` on such a disk.


def free_bytes(folder: MemoryPath) -> int:
    """What can still be written."""
    return folder.disk.free_bytes


def try_lock(path: MemoryPath) -> MemoryLock | None:
    """The lock, where nobody holds it."""
    return None if path.text in path.disk.locked else MemoryLock(path)


def touch(path: MemoryPath) -> None:
    """Another stamp. Raises FileNotFoundError."""
    if not path.exists():
        raise FileNotFoundError(path.text)
    path.disk.touch(path.text)


def stamps(folder: MemoryPath) -> Iterator[tuple[MemoryPath, Stamp]]:
    """The folder's files with their stamps."""
    folder.disk.before_listing()
    prefix = f"{folder.text}/"
    for text in [one for one in folder.disk.files if one.startswith(prefix)]:
        if "/" not in text[len(prefix) :] and text in folder.disk.stamps:
            yield MemoryPath(folder.disk, text), folder.disk.stamps[text]

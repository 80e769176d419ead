"""Folders that only this user can enter, and in which whatever is made is only this user's, too.

What we keep beside the tables has their rows, so it must not be more open than they are. The files of the
tables themselves are made by the same processes, and others read them: they follow the user's umask. So the
umask stays as it is, and each private folder has access rules of its own for what is made in it: a default
ACL, which the kernel applies instead of the umask, whoever writes there (LMDB, DuckDB, Arrow, a JVM).

Where a file system has no ACLs, the folder itself still keeps others out.

Source: acl(5), "Object creation and default ACLs".
"""

from __future__ import annotations

import atexit
import errno
import logging
import os
import pwd
import stat
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from shutil import rmtree
from typing import Final

from thermocline.process.logs import fields

__all__ = ["FOLDER_MODE", "ForeignFolder", "make_private", "process_folder", "temporary_folder"]

FOLDER_MODE: Final = 0o700
FILE_MODE: Final = 0o600
_OTHERS: Final = 0o077
_DEFAULT_ACL: Final = "system.posix_acl_default"
# In the kernel's form: version 2, and then tag, permissions, and an id that these tags don't have.
_OWNER, _GROUP, _EVERYBODY = 0x01, 0x04, 0x20
_OWNER_ALONE: Final = struct.pack("<I", 2) + b"".join(
    struct.pack("<HHI", tag, permissions, 0xFFFFFFFF)
    for tag, permissions in ((_OWNER, 7), (_GROUP, 0), (_EVERYBODY, 0))
)

log = logging.getLogger(__name__)


class ForeignFolder(PermissionError):
    """A folder that is to be ours belongs to another user."""

    def __str__(self) -> str:
        return str(self.args[1])


def make_private(folder: Path) -> None:
    """Makes the folder if it isn't there, and has nobody else enter it, nor read what is made in it.

    One that others can enter is tightened with all that is in it, and the log says so.

    Raises:
        ForeignFolder: it belongs to another user.
        OSError: it can't be made.
    """
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    status = folder.stat()
    if status.st_uid != os.geteuid():  # safety: state-is-ours
        words = f"{folder} belongs to the user {_name(status.st_uid)}, and this is {_name(os.geteuid())}"
        raise ForeignFolder(errno.EPERM, words)
    if stat.S_IMODE(status.st_mode) & _OTHERS:  # safety: state-tightened
        folder.chmod(FOLDER_MODE)
        log.warning("others could enter a folder of ours; now they can't", extra=fields(path=folder))
    elif _has_own_rules(folder):
        return
    if _give_rules(folder):
        _tighten_within(folder)


@contextmanager
def temporary_folder(prefix: str, within: Path | None = None) -> Iterator[Path]:
    """A new private folder, which goes with all that is in it at the end; by default in the system's own."""
    with tempfile.TemporaryDirectory(prefix=prefix, dir=within) as name:
        folder = Path(name)
        _give_rules(folder)
        yield folder


@cache
def process_folder() -> Path:
    """A private folder of this process, for temporary files of programs that it starts; it goes with it."""
    folder = Path(tempfile.mkdtemp(prefix="thermocline-"))
    _give_rules(folder)
    atexit.register(rmtree, folder, ignore_errors=True)
    return folder


def _has_own_rules(folder: Path) -> bool:
    try:
        return os.getxattr(folder, _DEFAULT_ACL) == _OWNER_ALONE
    except OSError:
        return False


def _give_rules(folder: Path) -> bool:
    """Whether the file system has such rules."""
    try:
        os.setxattr(folder, _DEFAULT_ACL, _OWNER_ALONE)  # safety: state-files-ours
    except OSError:
        return False
    return True


def _tighten_within(folder: Path) -> None:
    """What was made before the folder had rules; what goes meanwhile, or is another user's, is left."""
    for path, folders, files in os.walk(folder):
        for name in folders:
            with suppress(OSError):
                _tighten(Path(path, name), FOLDER_MODE)
                _give_rules(Path(path, name))
        for name in files:
            with suppress(OSError):
                _tighten(Path(path, name), FILE_MODE)


def _tighten(path: Path, mode: int) -> None:
    if not path.is_symlink():
        path.chmod(mode)


def _name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)

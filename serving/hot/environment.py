"""LMDB environments, each opened once in a process however many use it.

LMDB's locks belong to the process and the file: a second opening in the same process would share them, and
closing one would release them for both. The tailer and the readers of a command that is its own server meet
on the same files, so they share the environment. It is closed when the last one lets go of it.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final
from weakref import WeakValueDictionary

import lmdb

from thermocline.serving.hot.record import STORED_KEY_BYTES_MAX

# A slot (64 bytes) for each read transaction that is open at one moment, over all processes.
READERS_MAX: Final = 1024
# Transactions kept for the next one to begin: one per thread that reads, no more.
SPARE_TRANSACTIONS: Final = 8
# As long as LMDB makes it: a slot for each reader, the first one beside the header.
_LOCK_BYTES: Final = 64 * READERS_MAX + 128
FILE_MODE: Final = 0o600
"""LMDB's own would let everybody read them, and run them."""
_DISK_BLOCK_BYTES: Final = 512  # of st_blocks, whatever the file system's own

_opened: WeakValueDictionary[str, lmdb.Environment] = WeakValueDictionary()
_lock = threading.Lock()


def open_environment(path: Path, map_bytes: int, is_writer: bool, grows: bool = False) -> lmdb.Environment:
    """The environment in the file; only a writer creates the file, which is sparse and ``map_bytes`` long.

    One that ``grows`` is as long as what was written, which takes a copy more.

    Nothing is ever synced: the kernel keeps what was committed when the process is killed, and what a crash
    of the machine leaves is discarded, whole or not (``manifest.boot_id``).

    Raises:
        lmdb.Error: the file is not there, or is not LMDB's, or is open here for reading only.
        OSError: the disk has no room for the table of readers.
    """
    with _lock:
        environment = _opened.get(str(path))
        if environment is None:
            _reserve_readers(path, is_writer)  # safety: readers-have-room
            environment = lmdb.open(
                str(path),
                map_size=map_bytes,
                subdir=False,
                readonly=not is_writer,
                create=is_writer,
                writemap=is_writer and not grows,
                sync=False,
                metasync=False,
                readahead=False,
                max_readers=READERS_MAX,
                max_spare_txns=SPARE_TRANSACTIONS,
                mode=FILE_MODE,
            )
            assert environment.max_key_size() >= STORED_KEY_BYTES_MAX
            _opened[str(path)] = environment
        elif is_writer and environment.flags()["readonly"]:
            raise lmdb.ReadonlyError(f"{path} is open for reading in this process")
        return environment


def _reserve_readers(path: Path, may_create: bool) -> None:
    """Has room on the disk for LMDB's table of readers, which it writes through a map.

    LMDB makes the file sparse. Where a full disk has no room for a page of it, the process would be killed
    (SIGBUS), and started again to the same end.
    """
    try:
        lock = os.open(f"{path}-lock", os.O_RDWR | (os.O_CREAT if may_create else 0), FILE_MODE)
    except FileNotFoundError:
        return
    try:
        if os.fstat(lock).st_blocks * _DISK_BLOCK_BYTES < _LOCK_BYTES:
            os.posix_fallocate(lock, 0, _LOCK_BYTES)
    finally:
        os.close(lock)

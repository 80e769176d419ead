"""The folder outside the clone for what was fetched once: jars, Java launchers, a Trino."""

from __future__ import annotations

import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from thermocline.errors import DependencyMissing


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Gives `THERMOCLINE_CACHE` where it is set, else `thermocline` in the platform's cache folder.

    The folder may not exist yet. Everything in it can be deleted at any time: it is fetched or built again.
    """
    if chosen := environment.get("THERMOCLINE_CACHE"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "thermocline"
    shared = Path(environment.get("XDG_CACHE_HOME", ""))
    # The XDG rule: a relative path is to be ignored.
    return (shared if shared.is_absolute() else Path.home() / ".cache") / "thermocline"


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """One process at a time fills a folder of the cache; the others wait, and find it filled.

    Raises:
        DependencyMissing: it can't be made or written to, as for a user without a home.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lock").open("w")
    except OSError as error:
        raise DependencyMissing(
            what_is_missing=f"a cache folder that can be written to ({folder}: {error.strerror or error})",
            how_to_get="set THERMOCLINE_CACHE to a folder that this user may write to",
        ) from error
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def made_once(folder: Path, make: Callable[[Path], None]) -> Path:
    """Gives a folder of the cache, which ``make`` fills under another name: it is there whole, or not at all.

    Safe in several processes at once, and after an interruption.
    """
    if not folder.exists():
        with alone_in(folder.parent):
            if not folder.exists():
                unfinished = folder.with_name(f"{folder.name}.unfinished")  # safety: cache-unfinished
                shutil.rmtree(unfinished, ignore_errors=True)
                make(unfinished)
                unfinished.replace(folder)
    return folder

"""The files below ``<state_dir>/<table>``: written by the tailer, read by the API workers."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import uuid4

from thermocline.process.usage import MULTIPROCESS_FOLDER

HOT: Final = "hot"
COLD: Final = "cold"
ROWS: Final = "rows"
TAILER_STATUS: Final = "tailer.json"
TABLE_FACTS: Final = "table.json"
WANTED: Final = "wanted"
"""Touched while somebody looks at the status, so that what costs a request to the store is asked for."""
WANTED_CLOSELY: Final = "wanted-closely"
"""The same, while somebody looks at this one table."""
SERVER_NAME: Final = "server-name"
"""In ``<state_dir>`` itself: what other programs call the server."""
LOCK: Final = "server.lock"
"""In ``<state_dir>`` itself: held by the server that uses the folder."""
AUDIT_LOCK: Final = "audit.lock"
"""In ``<state_dir>`` itself: held by the worker that writes audit records to stdout."""
LIVE_SOCKET: Final = "live.sock"
"""In the folder that the processes of a running server share, which nobody else can enter."""
PAGES: Final = "pages"
"""The same: what workers made of pages, for each other."""
SPILL: Final = "spill"
"""For what does not fit in an extract's memory, and for copies of a store's files; empty otherwise."""


def shared_pages() -> Path | None:
    """Where the workers of this server share pages; None where this process is no worker of one."""
    folder = os.environ.get(MULTIPROCESS_FOLDER)
    return None if folder is None else Path(folder) / PAGES


def own_name(state_dir: Path) -> str:
    """A name that no other server has; it stays in the folder, which servers never share."""
    path = state_dir / SERVER_NAME
    with suppress(FileNotFoundError):
        return path.read_text()
    unfinished = path.with_name(f"{SERVER_NAME}.{os.getpid()}")
    unfinished.write_text(uuid4().hex)
    unfinished.replace(path)
    return path.read_text()

"""The files below ``<state_dir>/<table>``: written by the tailer, read by the API workers."""

from __future__ import annotations

from typing import Final

HOT: Final = "hot"
COLD: Final = "cold"
ROWS: Final = "rows"
TAILER_STATUS: Final = "tailer.json"
SERVER_NAME: Final = "server-name"
"""In ``<state_dir>`` itself: what Trino's views call the server."""
LOCK: Final = "server.lock"
"""In ``<state_dir>`` itself: held by the server that uses the folder."""
SPILL: Final = "spill"
"""For what does not fit in an extract's memory, and for copies of a store's files; empty otherwise."""

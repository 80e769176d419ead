"""The endpoint as a process of the server: it reads what the tailers write, as API workers do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from math import ceil
from typing import TYPE_CHECKING, Final

from thermocline.errors import LiveViewRefused, NotReady, TableMissing
from thermocline.process.clock import SystemClock
from thermocline.serving.read.tables import ServedTable, open_tables
from thermocline.serving.store.layout import HOT, own_name
from thermocline.serving.tail.follower import FOLLOW_SECONDS, look_seconds
from thermocline.serving.tail.refreshing import pause_between, refresh_until
from thermocline.serving.trino.endpoint import Endpoint
from thermocline.serving.trino.listener import Listener, tls_of
from thermocline.serving.trino.peers import peers_of
from thermocline.serving.trino.pins import Pins
from thermocline.serving.trino.snapshots import NamedSnapshot, NamedSnapshots

if TYPE_CHECKING:
    from pathlib import Path

    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.serving.hot.view import HotView
    from thermocline.settings import Settings

__all__ = ["TrinoTable", "run_endpoint"]

REFRESH_SECONDS: Final = 0.1
"""As API workers look for new snapshots."""
STOP_SECONDS: Final = 2.0
"""For refreshes that are under way when the process is told to stop."""


class TrinoTable:
    """A served table with what queries of Trino hold of it."""

    def __init__(
        self,
        served: ServedTable,
        folder: Path,
        clock: Clock,
        stale_after_seconds: float,
        look_seconds: float = FOLLOW_SECONDS,
    ) -> None:
        """``folder`` is the table's own, in the state folder; its follower looks every ``look_seconds``."""
        self.name = served.name
        self.snapshots = NamedSnapshots(served.name, folder / HOT, clock, look_seconds)
        self.pins = Pins(served.name, self._take, clock)
        self._served = served
        self._stale_after_seconds = stale_after_seconds

    def refresh(self) -> None:
        """Moves to the newest snapshot, and lets go of what no query needs. Reads files."""
        self.pins.tend()
        self._served.refresh()
        with suppress(NotReady, TableMissing):
            self.snapshots.add(NamedSnapshot.of(self._served.reader.cold.index))

    def close(self) -> None:
        """Lets go of everything."""
        self.pins.close()
        self.snapshots.close()
        self._served.close()

    def _take(self) -> HotView:
        """An open view of the hot tier as it is now, which fits the newest snapshot and is not behind."""
        held = self._served.reader.hold()
        if held.age_seconds > self._stale_after_seconds:  # safety: trino-not-stale
            held.view.__exit__(None, None, None)
            detail = f"its hot rows are {held.age_seconds:.1f} s behind the log"
            raise LiveViewRefused(table=self.name, detail=detail)
        return held.view


def run_endpoint(
    settings: Settings, definitions: Mapping[str, LiveTable], bound: socket.socket, stop: threading.Event
) -> None:
    """Answers Trino at a bound socket until told to stop."""
    clock, serving = SystemClock(), settings.serving
    seconds = look_seconds(ceil(len(definitions) / serving.tailers))
    tables = [
        TrinoTable(served, serving.state_dir / served.name, clock, serving.stale_after_seconds, seconds)
        for served in open_tables(settings, definitions)
    ]
    # One each: a store that does not answer holds up its own tables alone.
    pause_seconds = pause_between(REFRESH_SECONDS, len(tables))
    followed = [
        threading.Thread(
            target=refresh_until,
            args=(stop, table.name, table.refresh, pause_seconds),
            name="refresh",
            daemon=True,
        )
        for table in tables
    ]
    endpoint = Endpoint(tables, peers_of(serving.trino, own_name(serving.state_dir)))
    with Listener(bound, endpoint.reply, tls_of(serving.trino)) as listener:
        threading.Thread(target=listener.serve_forever, name="trino", daemon=True).start()
        for thread in followed:
            thread.start()
        stop.wait()
        listener.shutdown()
    deadline = clock.monotonic() + STOP_SECONDS
    for thread in followed:
        thread.join(max(0.0, deadline - clock.monotonic()))
    for table in tables:
        table.close()

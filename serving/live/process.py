"""The process of a server that makes the snapshots of its tables as of now; API workers ask it."""

from __future__ import annotations

import logging
import threading
from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final

from thermocline.errors import UnknownTable
from thermocline.iceberg.catalog import open_table
from thermocline.iceberg.catalog_properties import pyiceberg_properties
from thermocline.process.clock import SystemClock
from thermocline.serving.live.channel import Asked, Listening
from thermocline.serving.live.kept_files import KeptFiles
from thermocline.serving.live.maker import Intervals, SnapshotMaker
from thermocline.serving.live.passed_on import PassedOn
from thermocline.serving.read.tables import open_tables
from thermocline.serving.store.layout import own_name
from thermocline.serving.tail.refreshing import pause_between, refresh_until
from thermocline.settings import PassThrough
from thermocline.upsert.probe import keep_group_keys

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyiceberg.table import Table

    from thermocline.rules.definition import LiveTable
    from thermocline.serving.live.maker import Loaded
    from thermocline.serving.read.tables import ServedTable
    from thermocline.settings import Settings

__all__ = ["run_live"]

REFRESH_SECONDS: Final = 0.1
"""As API workers look for new snapshots."""
KEYS_BYTES_MAX: Final = 64 << 20
"""Kept of the keys of the tables' large files: of two million rows with keys of 20 bytes."""
TEND_SECONDS: Final = 10.0
"""Files are removed so often, a thousand at most."""
STOP_SECONDS: Final = 2.0

log = logging.getLogger(__name__)


def run_live(
    settings: Settings, definitions: Mapping[str, LiveTable], path: Path, stop: threading.Event
) -> None:
    """Answer the workers at a socket of that path until told to stop."""
    keep_group_keys(KEYS_BYTES_MAX)
    makers = {served.name: _maker(settings, served) for served in open_tables(settings, definitions)}

    def answer(asked: Asked) -> Loaded:
        maker = makers.get(asked.table)
        if maker is None:
            raise UnknownTable(table=asked.table, known=tuple(makers))
        return maker.again(asked.load) if asked.load else maker.load(asked.wanted)

    threads = [
        threading.Thread(target=refresh_until, args=(stop, name, step, seconds), name=what, daemon=True)
        for name, maker in makers.items()
        for what, step, seconds in (
            ("refresh", maker.refresh, pause_between(REFRESH_SECONDS, len(makers))),
            ("live files", maker.tend, TEND_SECONDS),
        )
    ]
    for thread in threads:
        thread.start()
    with Listening(path, answer) as listening:
        threading.Thread(target=listening.serve_forever, name="live", daemon=True).start()
        stop.wait()
        listening.shutdown()
    for thread in threads:
        thread.join(STOP_SECONDS / ceil(len(threads)))
    for maker in makers.values():
        maker.close()


def _maker(settings: Settings, served: ServedTable) -> SnapshotMaker:
    clock, serving = SystemClock(), settings.serving
    server = own_name(serving.state_dir)

    def files(table: Table) -> KeptFiles:
        return KeptFiles(table, served.name, server, clock, serving.catalog.files_seconds)

    opening = partial(open_table, settings, served.name)
    intervals = Intervals(serving.catalog.min_interval_seconds, serving.catalog.files_per_hour_max)
    passed_on = _passed_on(settings, served.name)
    return SnapshotMaker(served, opening, files, clock, intervals, serving.stale_after_seconds, passed_on)


def _passed_on(settings: Settings, name: str) -> PassedOn | None:
    reader_properties = settings.serving.catalog.reader_properties
    if reader_properties is None:
        return None
    properties = PassThrough({**settings.catalog.properties, **reader_properties})
    catalog = settings.catalog.model_copy(update={"properties": properties})
    opening = partial(open_table, settings.model_copy(update={"catalog": catalog}), name)
    return PassedOn(opening, pyiceberg_properties(catalog), SystemClock())

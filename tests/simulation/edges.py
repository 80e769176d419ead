"""Puts the world in the place of what the commands of ingest reach for by themselves."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, cast
from unittest.mock import patch

from tests.simulation.engine import deleted_in
from tests.simulation.owners import own_table
from tests.simulation.records import DEFINITIONS_MAX, IDENTIFIER
from tests.simulation.serving_edges import serving_simulated
from tests.simulation.upkeep_edges import upkeep_simulated
from thermocline.iceberg.catalog import SUMMARY_BATCH, SnapshotState, load_table, state_from
from thermocline.iceberg.lineage import Link
from thermocline.iceberg.rewrite import NotARewrite
from thermocline.rules.definition import LiveTable
from thermocline.rules.seam import Seam

# Histories have seams in common, as they all begin at 0.
SEAMS_MAX = 20_000
STATES_MAX = 1_000


@contextmanager
def simulated() -> Iterator[None]:
    """For as long as the block runs. What is read from the same text is read once, and nothing is logged."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    read_definition, read_seam = (
        staticmethod(lru_cache(DEFINITIONS_MAX)(LiveTable.from_json)),
        lru_cache(SEAMS_MAX)(Seam.from_json),
    )
    try:
        with (
            patch("thermocline.ingest.table.resume.own_table", own_table),
            patch("thermocline.ingest.table.resume.open_table", _open_table),
            patch("thermocline.ingest.table.resume.Log", lambda kafka: kafka.log()),
            patch("thermocline.ingest.table.alter.own_table", own_table),
            patch("thermocline.ingest.table.alter.open_table", _open_table),
            patch("thermocline.ingest.table.alter.Log", lambda kafka: kafka.log()),
            patch("thermocline.iceberg.catalog.state_from", (read_state := _state_read_once())),
            patch("thermocline.ingest.commit.commit.state_from", read_state),
            patch("thermocline.iceberg.files.local_path", lambda _: None),  # its files are on no disk
            patch.object(LiveTable, "from_json", read_definition),
            patch.object(Seam, "from_json", staticmethod(read_seam)),
            patch("thermocline.iceberg.rewrite.check_same_rows", _check_same_rows),
            serving_simulated(),
            upkeep_simulated(),
        ):
            yield
    finally:
        logging.disable(level)


def _state_read_once() -> Callable[..., SnapshotState]:
    """`state_from`, once for each of our snapshots: no two of them have one batch id."""
    known: dict[tuple[str, int], SnapshotState] = {}

    def read(summary: Mapping[str, str], snapshot_id: int, timestamp_ms: int, name: str) -> SnapshotState:
        place = (summary.get(SUMMARY_BATCH, ""), snapshot_id)
        if place not in known:
            if len(known) >= STATES_MAX:
                known.clear()
            known[place] = state_from(summary, snapshot_id, timestamp_ms, name)
        return known[place]

    return read


def _check_same_rows(table: Any, definition: LiveTable, ours: Link, others: Sequence[Link]) -> None:
    """What is proved of real files, of those in memory."""
    read = [
        sorted(
            row
            for file in cast(Any, link.snapshot).files
            for position, row in enumerate(table.io.objects[file.path])
            if position not in deleted_in(table.io, file)
        )
        for link in (ours, others[-1])
    ]
    if read[0] != read[1] or any(cast(Any, link.snapshot.summary).operation != "replace" for link in others):
        raise NotARewrite("it holds other rows")


def _open_table(settings: Any, name: str) -> Any:
    return load_table(settings.world.catalog, name, IDENTIFIER)

"""Lookups and extracts without a server: a command is its own tailer.

It fixes a read point, reads the log from that snapshot's seam to those ends into a hot tier of its own, and
answers with the classes of the server. The tier lives in a temporary folder and goes with the command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import msgspec

from serving.cold.index import publish, source_of
from serving.encode import MEDIA_TYPES
from serving.extract import Extract, columns_of
from serving.feed import fill_until
from serving.hot.pinned import PinnedHot, hold
from serving.hot.tier import HotTier
from serving.hot.view import HotReader
from serving.layout import COLD, HOT, SPILL
from serving.lookup import TableReader, answer_json, check_found, entity_of
from thermocline.catalog import current_state, definition_of, load_table, open_catalog, state_of
from thermocline.clock import SystemClock
from thermocline.errors import ReadPointGone
from thermocline.identity import check_identity
from thermocline.log import Log
from thermocline.seam import Seam, check_against_log

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.catalog import SnapshotState
    from thermocline.definition import LiveTable
    from thermocline.read_point import ReadPoint
    from thermocline.settings import Settings

FOLDER_PREFIX: Final = "thermocline-"
# The seal is made before it is waited for.
SEAL_WAIT_SECONDS: Final = 1.0


def lookup(settings: Settings, table: str, parameters: Mapping[str, str]) -> dict[str, Any]:
    """One entity's or one row's answer as of now, in the form of the server's JSON.

    Raises:
        RowNotFound: a whole key was given, and there is no such row.
        ThermoclineError: a parameter is wrong, a source is away, or the log does not fit the table.
    """
    with _opened(settings, table, None, _unheard) as private:
        reader = private.reader
        entity = entity_of(private.definition, parameters)
        look, (rows,) = reader.lookup((entity,))
        check_found(private.definition, entity, rows)
        answer: dict[str, Any] = msgspec.json.decode(answer_json(table, look, rows))
    return answer


def extract(
    settings: Settings,
    table: str,
    columns: list[str] | None,
    format_name: str,
    sink: BinaryIO,
    at: ReadPoint | None,
    progress: Callable[[int], None],
) -> ReadPoint:
    """Writes the whole table as of now, or as of ``at``, telling the rows so far; where it was read.

    Raises:
        ReadPointGone: that snapshot, or a record up to those ends, is not there (any more).
        ThermoclineError: a column is wrong, a source is away, or the log does not fit the table.
    """
    with _opened(settings, table, at, _unheard) as private:
        chosen = columns_of(private.definition, columns)
        age_seconds = private.hot.age_seconds(SystemClock().monotonic())
        stream = Extract(private.reader.cold, private.hot, chosen, age_seconds, private.folder / SPILL)
        for chunk in MEDIA_TYPES[format_name][1](stream.schema, stream.batches()):
            sink.write(chunk)
            progress(stream.rows)
    return stream.read_point


@dataclass(frozen=True, slots=True)
class _Private:
    """A table at a read point that nobody else knows of."""

    definition: LiveTable
    folder: Path
    reader: TableReader
    hot: PinnedHot


@contextmanager
def _opened(
    settings: Settings, name: str, at: ReadPoint | None, progress: Callable[[int], None]
) -> Iterator[_Private]:
    clock = SystemClock()
    table = load_table(open_catalog(settings.catalog), name, settings.table(name).identifier)
    definition = definition_of(table, name)
    state = current_state(table, name) if at is None else _state_at(table, definition, at)
    start, ends = _range(settings, definition, state, at)
    with TemporaryDirectory(prefix=FOLDER_PREFIX) as temporary:
        folder = Path(temporary)
        publish(folder / COLD, table, definition, state)
        tier = HotTier.open(folder / HOT, definition, start, clock, source=source_of(table, state))
        try:
            pin = hold(folder / HOT, name, state.snapshot_id, state.seam, clock)
            fill_until(
                tier,
                definition,
                settings.kafka.client_config(),
                start,
                ends,
                settings.serving.hot_bytes_max,
                progress,
            )
            with pin.open(SEAL_WAIT_SECONDS) as hot:
                reader = TableReader(
                    name,
                    folder / COLD,
                    lambda: HotReader.open(folder / HOT, definition),
                    lambda: table.io,
                    clock,
                    settings.serving.stale_after_seconds,
                    is_filled=lambda: True,
                )
                reader.refresh()
                yield _Private(definition, folder, reader, hot)
        finally:
            tier.close()


def _state_at(table: Table, definition: LiveTable, at: ReadPoint) -> SnapshotState:
    snapshot = table.snapshot_by_id(at.snapshot_id)
    if snapshot is None:
        raise ReadPointGone(
            table=definition.name, detail=f"the table has no snapshot {at.snapshot_id} any more"
        )
    state = state_of(snapshot, definition.name)
    if state.seam != at.seam:
        raise ReadPointGone(
            table=definition.name,
            detail=f"the seam of snapshot {at.snapshot_id} is {state.seam!r}, not {at.seam!r}",
        )
    if state.definition_version != definition.version:
        raise ReadPointGone(table=definition.name, detail="the table's definition was altered since")
    return state


def _range(
    settings: Settings, definition: LiveTable, state: SnapshotState, at: ReadPoint | None
) -> tuple[Seam, Seam]:
    """The records to read: from the snapshot's seam to the log's ends, or to those of the read point."""
    log = Log(settings.kafka)
    check_identity(definition.name, state.cluster_id, state.topic_ids, log, definition.topics)
    starts, ends = log.starts(definition.topics), log.ends(definition.topics)
    check_against_log(definition.name, state.seam, starts, ends)
    if at is not None:
        if not (ends.at_least(at.end) and at.end.at_least(at.seam)):
            raise ReadPointGone(table=definition.name, detail=f"the log ends at {ends!r}, before {at.end!r}")
        ends = at.end
    return Seam({(topic, p): state.seam.get((topic, p)) for topic, p, _ in ends.items()}), ends


def _unheard(_: int) -> None:
    pass

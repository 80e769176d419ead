"""Rounds of lookups: entities are asked for, and compared with the log as far as the answers reach."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from thermocline.errors import OffsetsGone, ReadPointGone
from thermocline.iceberg.catalog import definition_of
from thermocline.iceberg.lineage import lineage
from thermocline.iceberg.reading import Reading
from thermocline.kafka.facts import OffsetRange
from thermocline.kafka.log import Log, read_ranges
from thermocline.rules.read_point import READ_AFTER_MAX, ReadPoint
from thermocline.verify.entities import parameters_of
from thermocline.verify.finding import Finding
from thermocline.verify.log_decode import LogDecoder
from thermocline.verify.log_pass import sampled
from thermocline.verify.unconfirmed import second_look

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.process.clock import Clock
    from thermocline.rules.partition_time import PartitionTimes
    from thermocline.rules.seam import Seam
    from thermocline.schemas.registry import SchemaRegistry
    from thermocline.verify.comparison import Verified
    from thermocline.verify.read_paths import Lookup
    from thermocline.verify.report import Report
    from thermocline.verify.sample import Chosen

__all__ = ["LookupChecks"]

# What the table has read as of that many snapshots is kept; each of them knows all snapshots before it.
_READINGS_MAX: Final = 8
_CHANGED: Final = "a command changed the table meanwhile"
_ALTERED: Final = "lookups: the table's definition was altered meanwhile"


@dataclass(slots=True)
class LookupChecks:
    """Asks for entities and compares the answers; goes on from what a verification knows of them.

    ``ends`` is how far the log was read; no answer may be older than ``reached``, which is where the answers
    before have been.
    """

    verified: Verified
    lookup: Lookup
    client_config: Mapping[str, Any]
    log: Log
    open_table: Callable[[], Table]
    chosen: Chosen
    clock: Clock
    report: Report
    registry: SchemaRegistry | None = None
    ends: Seam = field(init=False)
    reached: Seam = field(init=False)
    _readings: dict[int, Reading | None] = field(default_factory=dict)
    _table: Table | None = None
    _partition_times: PartitionTimes = field(init=False)

    def __post_init__(self) -> None:
        self.ends = self.verified.log.ends
        self._partition_times = self.verified.log.partition_times
        self.reached = self.verified.point.end

    def round(self, prefixes: Sequence[bytes], progress: Callable[[int], None] = lambda _done: None) -> None:
        """One lookup of each entity; the differences go into the report.

        Raises `ThermoclineError` where an answer can't be had, or the log can't be read on.
        """
        after = _read_after(self.reached)
        answers = []
        for done, prefix in enumerate(prefixes, start=1):
            answer = self.lookup(parameters_of(self.verified.definition, prefix), after)
            answers.append((prefix, answer["rows"], ReadPoint.parse(json.dumps(answer["read_point"]))))
            progress(done)
        self.read_on([point for _, _, point in answers])
        for prefix, rows, point in answers:
            self._judge(prefix, rows, point)
        self.settle()

    def settle(self) -> None:
        """Looks again for what was in doubt, and reports what holds."""
        verified = self.verified
        look = second_look(
            self.log,
            self.client_config,
            verified.definition,
            verified.point.seam,
            self.clock,
            self.registry,
        )
        verified.unconfirmed.settle(look)

    def note(self, finding: Finding, entity: bytes, point: ReadPoint) -> None:
        """Reports a difference, unless a command changed the table so that it need not be one."""
        why = self._excuse(point)
        if why is None:
            self.verified.unconfirmed.take(finding, entity, None, point.end)
        else:
            self.report.lookups_unjudged[why] += 1

    def _judge(self, prefix: bytes, rows: Sequence[Mapping[str, Any]], point: ReadPoint) -> None:
        judged = self.verified.log.entities.judge(prefix, rows, point, self.reading_at)
        self.report.lookups += 1
        if isinstance(judged, Finding):
            self.note(judged, prefix, point)
        elif judged is not None:
            self.report.lookups_unjudged[judged] += 1

    def read_on(self, points: Sequence[ReadPoint]) -> None:
        """Reads the log on, up to the farthest of some answers, and the table as it is by then.

        Raises:
            ReadPointGone: the log was cut beyond where it was read to: what came between is not known.
        """
        self._table = None
        ends = self.ends
        for point in points:
            ends = ends.merged_max(point.end)
        definition, starts = self.verified.definition, self.log.starts(self.verified.definition.topics)
        ranges = [
            OffsetRange(topic, p, self.ends.get((topic, p), start), end)
            for topic, p, start in starts.items()
            if (end := ends.get((topic, p))) > self.ends.get((topic, p), start)
        ]
        decoder = LogDecoder(self.verified.reading, [], registry=self.registry, start=self._partition_times)
        try:
            for chunk in read_ranges(self.client_config, ranges, definition.name, self.clock):
                found = sampled(definition, decoder.decode(chunk), self.chosen)
                self.verified.log.entities.take_records(found)
        except OffsetsGone as gone:
            detail = f"the log was cut faster than it was read, at {', '.join(gone.gaps)}"
            raise ReadPointGone(table=definition.name, detail=detail) from gone
        self.report.records += decoder.records
        self._partition_times = decoder.partition_times
        self.ends = self.reached = ends

    def reading_at(self, snapshot_id: int) -> Reading | None:
        """What the table has read as of a snapshot; None where its history does not hold it."""
        if snapshot_id not in self._readings:
            if len(self._readings) >= _READINGS_MAX:  # the one that was asked for the longest ago
                self._readings.pop(next(iter(self._readings)))
            try:
                reading = Reading.of(self._table_now(), snapshot_id, self.verified.definition)
            except ReadPointGone:
                self._readings[snapshot_id] = None
            else:
                self._readings[snapshot_id] = reading
        return self._readings[snapshot_id]

    def _excuse(self, point: ReadPoint) -> str | None:
        """Why an answer may differ from what the log says, though nothing is wrong."""
        table = self._table_now()
        if definition_of(table, self.verified.definition.name) != self.verified.definition:
            return _ALTERED
        links = lineage(table)
        ids = [link.snapshot_id for link in links]
        if point.snapshot_id not in ids:
            return _CHANGED
        base = self.verified.point.snapshot_id  # it may be expired by now
        since = links[ids.index(base) + 1 if base in ids else 0 : ids.index(point.snapshot_id) + 1]
        return (
            _CHANGED
            if any(one.is_beside_the_log or one.is_accepted or one.is_foreign for one in since)
            else None
        )

    def _table_now(self) -> Table:
        if self._table is None:
            self._table = self.open_table()
        return self._table


def _read_after(reached: Seam) -> str:
    """What asks for answers that are no older than those before."""
    places = [f"{topic}/{p}@{end - 1}" for topic, p, end in reached.items() if end > 0]
    return ",".join(places[:READ_AFTER_MAX])

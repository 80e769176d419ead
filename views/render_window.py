"""The records of the log that a view lays over its snapshot: scans of Kafka tables with literal offsets.

Of a scan's conditions Trino hands the Kafka connector a set of partitions, one range of offsets and one of
timestamps, all of them only when they are literals or constant for a query. The rest is checked record by
record, so that each partition counts from its own offset on.
"""

# ruff: noqa: S608  (what stands in a statement is quoted by views.sql, or an operator's own condition)

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Final

from thermocline.rules.seam import Seam
from thermocline.views import sql
from thermocline.views.groups import grouped
from thermocline.views.topics import SCHEMA, table_name

__all__ = ["RECORD", "LogWindow"]

RECORD: Final = ("_key", "_key_length", "_message", "_message_length")
_COLUMNS: Final = ("_partition_id", "_partition_offset", "_timestamp", *RECORD)


@dataclass(frozen=True, slots=True)
class LogWindow:
    """What of the log counts: per partition from ``seam`` on, up to ``end`` where there is one.

    ``catalog`` is Trino's name of the Kafka catalog. Without an ``end``, partitions that the seam does not
    know count from their first record on, and ``margin_ms`` leaves out what the broker appended within so
    many milliseconds before the query: whatever reads the log several times in one query then finds the same
    records each time, if the topics have LogAppendTime and no transactions.
    """

    catalog: str
    topics: tuple[str, ...]
    seam: Seam
    end: Seam | None = None
    margin_ms: int | None = None

    def __post_init__(self) -> None:
        if self.end is not None and self.margin_ms is not None:
            raise ValueError("an end leaves nothing for a margin to bound")

    @property
    def is_bounded(self) -> bool:
        """Whether two scans in one query find the same records."""
        return self.end is not None or self.margin_ms is not None

    def records(self) -> str | None:
        """A query that gives where each record stands, and ``RECORD``; None where nothing can be in it."""
        scans = [scan for topic in self.topics for scan in self._scans(topic)]
        return _together(scans) if len(scans) > 1 else next(iter(scans), None)

    def _scans(self, topic: str) -> Iterator[str]:
        spans = self._spans(topic)
        for group in grouped({partition: first for partition, (first, _) in spans.items()}):
            title = (
                f"{topic}, {len(group)} of {len(spans)} partitions: those whose offsets lie close together."
            )
            yield self._scan(topic, title, _conditions({partition: spans[partition] for partition in group}))
        if self.end is None:
            title = (
                f"{topic}, partitions that came after this view was published: from their first record on."
            )
            # safety: window-new-partitions
            yield self._scan(topic, title, [f"_partition_id >= {len(spans)}", "_partition_offset >= 0"])

    def _spans(self, topic: str) -> dict[int, tuple[int, int | None]]:
        """Each known partition's first offset, and its end; without those that have nothing in between."""
        places = chain(self.seam.items(), (self.end or Seam()).items())
        count = max((partition + 1 for name, partition, _ in places if name == topic), default=0)
        # safety: window-gaps
        firsts = {partition: self.seam.get((topic, partition)) for partition in range(count)}
        if self.end is None:
            return {partition: (first, None) for partition, first in firsts.items()}
        ends = ((partition, self.end.get((topic, partition))) for partition in firsts)
        return {partition: (firsts[partition], end) for partition, end in ends if firsts[partition] < end}

    def _scan(self, topic: str, title: str, conditions: list[str]) -> str:
        if self.margin_ms is not None:
            now = "CAST(current_timestamp AT TIME ZONE 'UTC' AS timestamp(3))"  # safety: window-utc
            # safety: window-margin
            conditions = [*conditions, f"_timestamp < {now} - INTERVAL '{self.margin_ms / 1000:.3f}' SECOND"]
        every = "\n  AND ".join(conditions)
        return f"""\
{sql.comment(title)}
SELECT CAST({sql.literal(topic)} AS varchar) AS _topic, {", ".join(_COLUMNS)}
FROM {sql.qualified(self.catalog, SCHEMA, table_name(topic))}
WHERE {every}"""


def _together(scans: list[str]) -> str:
    union = "\nUNION ALL\n".join(scans)
    return f"""\
SELECT _topic, {", ".join(_COLUMNS)}
FROM (
{sql.indented(union)}
)
{sql.comment("One element, so that each record stays one: Trino moves no projection below this. What parses")}
{sql.comment("the records it would else plan again for each of the scans.")}
CROSS JOIN UNNEST(ARRAY[true]) AS one (_once)"""


def _conditions(spans: Mapping[int, tuple[int, int | None]]) -> list[str]:
    """What is handed to Kafka for these partitions together, and where they differ what is exact."""
    hull = _between(min(first for first, _ in spans.values()), _farthest(spans))  # safety: window-hull
    conditions = [_is_one_of(spans), hull]
    alike: dict[tuple[int, int | None], list[int]] = {}
    for partition, span in spans.items():
        alike.setdefault(span, []).append(partition)
    if len(alike) > 1:
        exact = [f"{_is_one_of(partitions)} AND {_between(*span)}" for span, partitions in alike.items()]
        conditions.append("(" + "\n    OR ".join(exact) + ")")  # safety: window-exact
    return conditions


def _farthest(spans: Mapping[int, tuple[int, int | None]]) -> int | None:
    ends = [end for _, end in spans.values() if end is not None]
    return max(ends) if ends else None


def _between(first: int, end: int | None) -> str:
    from_first = f"_partition_offset >= {first}"  # safety: window-seam
    return from_first if end is None else f"{from_first} AND _partition_offset < {end}"  # safety: window-end


def _is_one_of(partitions: Iterable[int]) -> str:
    return f"_partition_id IN ({', '.join(map(str, partitions))})"

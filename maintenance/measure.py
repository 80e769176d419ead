"""The measure of a table's files, bucket by bucket, from its metadata alone.

A manifest never changes, so a second look reads only those that came since the first.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.conversions import from_bytes
from pyiceberg.types import PrimitiveType

from thermocline.errors import ForeignSnapshot
from thermocline.iceberg.files import ListedFile, listed_files, spec_buckets
from thermocline.iceberg.lineage import Link, lineage
from thermocline.maintenance.compact import rewrite_of

if TYPE_CHECKING:
    from pyiceberg.manifest import ManifestFile
    from pyiceberg.schema import Schema
    from pyiceberg.table import Table

    from thermocline.ingest.commit.change import ManifestContent
    from thermocline.rules.definition import LiveTable

__all__ = ["BucketMeasure", "FileMeasure", "ManifestMeasure", "Measurer", "TableMeasure"]

_RATE_SNAPSHOTS: Final = 100
"""The newest ones, by which the rate of writes is estimated."""
_TELLING_BYTES: Final = 8
"""Of a text, behind what all bounds begin with: enough to say how far apart two of them are."""
KeyBound = tuple[Any, ...]
"""Values of the leading key columns, which compare column by column."""
Span = tuple[int, int]
"""Numbers from the first one to below the second, which are ordered as keys are."""


@dataclass(frozen=True, slots=True)
class FileMeasure:
    """A data file. ``low`` and ``high`` are the least and greatest key that it may hold; None if unknown."""

    path: str
    rows: int
    bytes: int
    dead_rows: int = 0
    low: KeyBound | None = None
    high: KeyBound | None = None
    rewrite: str = ""
    """Files of one rewrite have the same, and disjoint keys; empty for others."""
    buckets: int = 0
    """How many its partition spec has; 0 if it is none of ours."""

    @property
    def live_rows(self) -> int:
        """Rows that are not deleted."""
        return self.rows - self.dead_rows

    @property
    def live_bytes(self) -> int:
        """About what its live rows take."""
        return self.bytes * self.live_rows // max(self.rows, 1)


@dataclass(frozen=True)
class BucketMeasure:
    """The files of one bucket."""

    bucket: int
    files: tuple[FileMeasure, ...]

    @cached_property
    def rows(self) -> int:
        """With the deleted ones."""
        return sum(file.rows for file in self.files)

    @cached_property
    def dead_rows(self) -> int:
        """Deleted rows that readers still pass over."""
        return sum(file.dead_rows for file in self.files)

    @cached_property
    def bytes(self) -> int:
        """Of the data files."""
        return sum(file.bytes for file in self.files)

    @cached_property
    def live_bytes(self) -> int:
        """About what the live rows take of them."""
        return sum(file.live_bytes for file in self.files)

    @cached_property
    def delete_files(self) -> int:
        """Files with deletes."""
        return sum(file.dead_rows > 0 for file in self.files)

    @property
    def dead_ratio(self) -> float:
        """Of all rows, from 0 to 1."""
        return self.dead_rows / self.rows if self.rows else 0.0

    @cached_property
    def depth(self) -> float:
        """How many files may hold the key of a live row, on average."""
        return depth_of(self.files)


@dataclass(frozen=True, slots=True)
class ManifestMeasure:
    """The manifests of one kind: how many there are, what they take, and how many live files they list."""

    manifests: int
    bytes: int
    files: int


@dataclass(frozen=True)
class TableMeasure:
    """A snapshot's files by bucket, and the size of the table's metadata."""

    snapshot_id: int
    buckets: Mapping[int, BucketMeasure]
    rows_per_hour: float = 0.0
    """Written lately, in all buckets."""
    snapshots: int = 0
    manifests: int = 0
    manifest_bytes: int = 0
    listed: Mapping[ManifestContent, ManifestMeasure] = field(default_factory=dict)
    """The manifests of each kind."""
    metadata_bytes: int = 0
    """What each reader of the snapshot loads at most: its manifests, their list, and the table's metadata."""
    buckets_written: int = 0
    """How many buckets new files have."""
    remembers_deletes: bool = False
    """Its files have rows that nobody sees (``tombstones``), which a rewrite would leave out."""

    @property
    def older_files(self) -> int:
        """Data files with another number of buckets, which are to be rewritten."""
        files = (file for bucket in self.buckets.values() for file in bucket.files)
        return sum(file.buckets != self.buckets_written for file in files)

    def without(self, paths: frozenset[str]) -> TableMeasure:
        """The same but for some files."""
        if not paths:
            return self
        buckets = {
            number: BucketMeasure(number, tuple(file for file in one.files if file.path not in paths))
            for number, one in self.buckets.items()
        }
        return replace(self, buckets=buckets)

    @property
    def files(self) -> int:
        """Data files."""
        return sum(len(bucket.files) for bucket in self.buckets.values())

    @property
    def bytes(self) -> int:
        """Of the data files."""
        return sum(bucket.bytes for bucket in self.buckets.values())

    @property
    def rows(self) -> int:
        """With the deleted ones."""
        return sum(bucket.rows for bucket in self.buckets.values())

    @property
    def dead_rows(self) -> int:
        """Deleted rows that readers still pass over."""
        return sum(bucket.dead_rows for bucket in self.buckets.values())


@dataclass(slots=True)
class Measurer:
    """Measures a table again and again; it remembers what the manifests said that are still in use."""

    definition: LiveTable
    _known: dict[str, tuple[ListedFile, ...]] = field(default_factory=dict)

    def measure(self, table: Table, now_ms: int) -> TableMeasure:
        """The current snapshot. Raises `ForeignSnapshot` where there is none, and what a store raises."""
        snapshot = table.current_snapshot()
        if snapshot is None:
            raise ForeignSnapshot(
                table=self.definition.name, snapshot_id=-1, detail="the table has no snapshot"
            )
        manifests = snapshot.manifests(table.io)
        self._known = {one.manifest_path: self._listed(table, one) for one in manifests}
        buckets = _by_bucket(
            self._known.values(),
            _KeyBounds(self.definition, table.schema()),
            spec_buckets(table),
            self.definition.buckets,
        )
        manifest_bytes = sum(one.manifest_length for one in manifests)
        others = (snapshot.manifest_list, table.metadata_location)
        return TableMeasure(
            snapshot.snapshot_id,
            buckets,
            rows_per_hour=_rows_per_hour(lineage(table, _RATE_SNAPSHOTS), now_ms),
            snapshots=len(table.metadata.snapshots),
            manifests=len(manifests),
            manifest_bytes=manifest_bytes,
            listed=self._by_content(manifests),
            metadata_bytes=manifest_bytes + sum(len(table.io.new_input(path)) for path in others),
            buckets_written=self.definition.buckets_written,
            remembers_deletes=self.definition.merging.remembers_deletes,
        )

    def _listed(self, table: Table, manifest: ManifestFile) -> tuple[ListedFile, ...]:
        known = self._known.get(manifest.manifest_path)
        return tuple(listed_files(table.io, manifest)) if known is None else known

    def _by_content(self, manifests: Sequence[ManifestFile]) -> dict[ManifestContent, ManifestMeasure]:
        """Those that list a live file: all files of a manifest are data, or none is."""
        found: dict[ManifestContent, list[ManifestFile]] = defaultdict(list)
        for manifest in manifests:
            for file in self._known[manifest.manifest_path][:1]:
                found["data" if file.content == "data" else "deletes"].append(manifest)
        return {
            content: ManifestMeasure(
                len(some),
                sum(one.manifest_length for one in some),
                sum(len(self._known[one.manifest_path]) for one in some),
            )
            for content, some in found.items()
        }


def depth_of(files: Sequence[FileMeasure]) -> float:
    """In how many files a lookup of a live row looks, on average: a file's keys lie evenly in their range."""
    ranges = _key_ranges(files)
    spans = _spans([(low, high) for low, high, _ in ranges])
    placed = [span for span in spans if span is not None]
    everywhere = len(ranges) - len(placed)
    live = sum(rows for _, _, rows in ranges)
    if not live:
        return float(everywhere)
    below = _LengthBelow(placed)
    total = 0.0
    for span, (_, _, rows) in zip(spans, ranges, strict=True):
        if span is None:
            total += rows * len(ranges)
        else:
            low, high = span
            total += rows * (everywhere + (below.of(high) - below.of(low)) / (high - low))
    return total / live


class _LengthBelow:
    """How much of some spans lies below a place, all lengths together; by sums over their ends."""

    def __init__(self, spans: Sequence[Span]) -> None:
        self._lows, self._highs = sorted(low for low, _ in spans), sorted(high for _, high in spans)
        self._low_sums, self._high_sums = [0, *accumulate(self._lows)], [0, *accumulate(self._highs)]

    def of(self, place: int) -> int:
        begun, ended = bisect_left(self._lows, place), bisect_left(self._highs, place)
        return (begun - ended) * place - self._low_sums[begun] + self._high_sums[ended]


def _spans(ranges: Sequence[tuple[KeyBound | None, KeyBound | None]]) -> list[Span | None]:
    """Ranges of keys as half-open ranges of numbers, by the first column in which they differ at all.

    None where nothing is known of it.
    """
    known = [bound for bound in chain.from_iterable(ranges) if bound is not None]
    column = _telling_column(known)
    values = chain.from_iterable(bound[column : column + 1] for bound in known)
    prefix = _common_prefix([_text(value) for value in values if not isinstance(value, int)])
    numbers = ((_number(low, column, prefix), _number(high, column, prefix)) for low, high in ranges)
    return [None if low is None or high is None else (low, high + 1) for low, high in numbers]


def _number(bound: KeyBound | None, column: int, prefix: int) -> int | None:
    if bound is None or column >= len(bound):
        return None
    value = bound[column]
    if isinstance(value, int):
        return value
    return int.from_bytes(_text(value)[prefix : prefix + _TELLING_BYTES].ljust(_TELLING_BYTES, b"\0"))


def _telling_column(known: Sequence[KeyBound]) -> int:
    """The first column in which bounds differ, by its place."""
    longest = max(map(len, known), default=0)
    differing = (place for place in range(longest) if len({bound[place : place + 1] for bound in known}) > 1)
    return next(differing, 0)


def _common_prefix(texts: Sequence[bytes]) -> int:
    """How many bytes all of them begin with."""
    if not texts:
        return 0
    first, last = min(texts), max(texts)
    return next((place for place, byte in enumerate(first) if last[place] != byte), len(first))


def _text(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _key_ranges(files: Sequence[FileMeasure]) -> list[tuple[KeyBound | None, KeyBound | None, int]]:
    """The keys and live rows of each file, those of one rewrite together: a key is in one of them at most."""
    ranges = [(file.low, file.high, file.live_rows) for file in files if not file.rewrite]
    rewrites: dict[str, list[FileMeasure]] = defaultdict(list)
    for file in files:
        if file.rewrite:
            rewrites[file.rewrite].append(file)
    for some in rewrites.values():
        one = as_one(some)
        is_known = one.low is not None and one.high is not None
        ranges.append((one.low, one.high, one.live_rows) if is_known else (None, None, one.live_rows))
    return ranges


def as_one(files: Sequence[FileMeasure]) -> FileMeasure:
    """A file with the live rows of several."""
    lows = [file.low for file in files if file.low is not None]
    highs = [file.high for file in files if file.high is not None]
    return FileMeasure(
        path="",
        rows=sum(file.live_rows for file in files),
        bytes=sum(file.live_bytes for file in files),
        low=min(lows, default=None) if len(lows) == len(files) else None,
        high=max(highs, default=None) if len(highs) == len(files) else None,
    )


def files_at_best(live_bytes: int, target_bytes: int) -> int:
    """How many files of the target size hold so much."""
    return math.ceil(live_bytes / target_bytes)


def _rows_per_hour(links: Sequence[Link], now_ms: int) -> float:
    """What the newest commits applied, by the time since the first of them."""
    ours = [link.state for link in links if link.state is not None]
    hours = (now_ms - ours[0].timestamp_ms) / 3_600_000 if ours else 0.0
    return sum(state.counts.get("applied", 0) for state in ours[1:]) / hours if hours > 0 else 0.0


@dataclass(slots=True)
class _KeyBounds:
    """The leading columns of the key, of which manifests have bounds."""

    definition: LiveTable
    schema: Schema

    def of(self, file: ListedFile) -> tuple[KeyBound | None, KeyBound | None]:
        """The least and greatest key that a file may hold, as far as its manifest says it.

        A column says something only where those before it have one value throughout the file.
        """
        low: list[Any] = []
        high: list[Any] = []
        for name in self.definition.identity:
            column = self.schema.find_field(name)
            assert isinstance(column.field_type, PrimitiveType)
            lower, upper = file.lower.get(column.field_id), file.upper.get(column.field_id)
            if lower is None or upper is None:
                break
            low.append(from_bytes(column.field_type, lower))
            high.append(from_bytes(column.field_type, upper))
            if lower != upper:
                break
        return (tuple(low), tuple(high)) if low else (None, None)


def _by_bucket(
    listed: Iterable[Sequence[ListedFile]], bounds: _KeyBounds, specs: Mapping[int, int], buckets: int
) -> dict[int, BucketMeasure]:
    data: list[ListedFile] = []
    dead: dict[str, int] = defaultdict(int)
    for file in (file for some in listed for file in some):
        if file.content == "data":
            data.append(file)
        elif file.referenced is not None:
            dead[file.referenced] += file.rows
    grouped: dict[int, list[FileMeasure]] = defaultdict(list)
    for file in data:
        gone = dead.get(file.path, 0)
        part = file.part(specs)
        bucket = part.within(buckets)
        measured = FileMeasure(
            file.path,
            file.rows,
            file.bytes,
            gone,
            *bounds.of(file),
            rewrite=rewrite_of(file.path),
            buckets=part.of,
        )
        grouped[-1 if bucket is None else bucket].append(measured)
    return {bucket: BucketMeasure(bucket, tuple(files)) for bucket, files in sorted(grouped.items())}

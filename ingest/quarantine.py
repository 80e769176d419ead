"""Quarantine: the records that could not be decoded, kept whole in a companion table.

Read tasks write the files, the driver makes them part of the table before the batch commits: a bad record is
durable before the seam passes it. A crash in between leaves repeats, which readers drop by
(topic id, partition, offset): see ``SeenRecords``.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import (
    CommitFailedException,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
)
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io.pyarrow import parquet_files_to_data_files
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)
from pyroaring import BitMap64
from sqlalchemy.exc import SQLAlchemyError

from thermocline.errors import CatalogUnreachable, TableMissing, first_line
from thermocline.failpoints import failstep
from thermocline.iceberg.catalog import QUARANTINE_SUFFIX, load_table, quarantine_identifier
from thermocline.iceberg.files import deleted_on_error, new_file, open_input
from thermocline.process.logs import fields
from thermocline.rules.headers import HeadersUnreadable

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

    from thermocline.kafka.facts import RecordChunk
    from thermocline.rules.decode import Bad

# Version 2: every reader knows it, PyIceberg can append to it, and no row of it is ever deleted alone.
_FORMAT_VERSION = "2"
# Each batch with bad records is a snapshot, a metadata file that holds all of them, and a manifest.
KEPT_SMALL = {
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "100",
    "commit.manifest-merge.enabled": "true",
}

_HEADERS = pa.list_(pa.struct([("name", pa.string()), ("value", pa.binary())]))
SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("topic_id", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("stage", pa.string()),
        ("reason", pa.string()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
    ]
)

# Commits of others that may come between, each time, before a batch with bad records is tried again later.
KEEP_ATTEMPTS_MAX = 3

# Rows read at once: of records of 1 MB, Kafka's default limit, some 200 MB with their copies.
READ_ROWS_MAX = 100
# How the catalog and the store of the files say that they can't be asked, or give half of an answer.
_AWAY = (SQLAlchemyError, RESTError, CommitFailedException, OSError, pa.ArrowException)
# What the columns beside key, value and headers are called.
PLACE_COLUMNS = ("topic", "topic_id", "partition", "offset")

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class SeenRecords:
    """Records by (topic id, partition, offset): what tells a repeat. A few bytes for each record."""

    _offsets: dict[tuple[str, int], BitMap64] = field(default_factory=dict)

    def add(self, topic_id: str, partition: int, offset: int) -> bool:
        """Adds one; False where it was there already."""
        offsets = self._offsets.setdefault((topic_id, partition), BitMap64())
        if offset in offsets:
            return False
        offsets.add(offset)
        return True

    def discard(self, others: SeenRecords) -> None:
        """Takes those out that are among others."""
        for place, offsets in others._offsets.items():
            if place in self._offsets:
                self._offsets[place] -= offsets

    def __contains__(self, place: tuple[str, int, int]) -> bool:
        topic_id, partition, offset = place
        return offset in self._offsets.get((topic_id, partition), ())

    def __len__(self) -> int:
        return sum(len(offsets) for offsets in self._offsets.values())


def create_quarantine(catalog: Catalog, identifier: str) -> None:
    """Create the companion table; nothing happens where it is already there."""
    catalog.create_table_if_not_exists(
        quarantine_identifier(identifier),
        _iceberg_schema(),
        properties={"format-version": _FORMAT_VERSION, **KEPT_SMALL},
    )


def reopen_quarantine(catalog: Catalog, name: str, identifier: str) -> Table:
    """The companion of a table that is owned; made again, empty, where somebody dropped it alone."""
    try:
        return open_quarantine(catalog, name, identifier)
    except TableMissing:
        try:
            create_quarantine(catalog, identifier)
        except _AWAY as error:
            raise CatalogUnreachable(uri=identifier, detail=first_line(error)) from error
        _logger.warning("the quarantine was gone and is made again, empty", extra=fields(table=name))
        return open_quarantine(catalog, name, identifier)


def open_quarantine(catalog: Catalog, name: str, identifier: str) -> Table:
    """The companion table. Raises `TableMissing` and `CatalogUnreachable`."""
    return load_table(catalog, name, quarantine_identifier(identifier))


def bad_records(chunk: RecordChunk, topic_ids: Mapping[str, str], bad: Sequence[Bad]) -> pa.Table:
    """The bad records of a chunk as ``SCHEMA``, in offset order."""
    return pa.Table.from_pylist([_row(chunk, topic_ids[chunk.topic], record) for record in bad], SCHEMA)


def _row(chunk: RecordChunk, topic_id: str, record: Bad) -> dict[str, object]:
    headers = _headers(chunk, record.index)
    return {
        "topic": chunk.topic,
        "topic_id": topic_id,
        "partition": chunk.partition,
        "offset": chunk.offsets[record.index],
        "timestamp": chunk.timestamps_ms[record.index] * 1000,
        "stage": record.stage.value,
        "reason": record.reason,
        "key": chunk.keys[record.index],
        "value": chunk.values[record.index],
        "headers": headers and [{"name": name, "value": value} for name, value in headers],
    }


def _headers(chunk: RecordChunk, index: int) -> list[tuple[str, bytes | None]] | None:
    """None where they can't be read, which is not the same as that there are none."""
    try:
        return chunk.headers_of(index) or []
    except HeadersUnreadable:
        return None


def headers_of(row: Mapping[str, Any]) -> list[tuple[str, bytes | None]]:
    """The headers of a record, from its row. Raises `HeadersUnreadable` where they could not be read."""
    if row["headers"] is None:  # safety: replay-headers-unreadable
        raise HeadersUnreadable
    return [(one["name"], one["value"]) for one in row["headers"]]


def write_quarantine_file(io: FileIO, location: str, records: Iterable[pa.Table]) -> str:
    """Write bad records as one file below the companion table; its path. No table knows it yet."""
    path = f"{location}/data/{uuid.uuid4()}.parquet"
    with (
        deleted_on_error(io, [path]),
        failstep("quarantine.write-file"),
        new_file(io, path) as sink,
        pq.ParquetWriter(sink, SCHEMA, compression="zstd") as writer,
    ):
        for some in records:
            if some.num_rows:
                writer.write_table(some)
    return path


def renew(quarantine: Table) -> None:
    """Load the companion table again. Raises `TableMissing` and `CatalogUnreachable`."""
    try:
        quarantine.refresh()
    except (NoSuchTableError, NoSuchNamespaceError, ValueError) as error:  # or another one has its name
        *_, name = quarantine.name()
        identifier = ".".join(quarantine.name())
        raise TableMissing(table=name.removesuffix(QUARANTINE_SUFFIX), identifier=identifier) from error
    except _AWAY as error:
        raise CatalogUnreachable(uri=quarantine.location(), detail=first_line(error)) from error


def keep_files(quarantine: Table, paths: Sequence[str]) -> None:
    """Make written files part of the companion table, which was loaded a moment ago (`renew`).

    Raises `TableMissing` and `CatalogUnreachable`; after the latter they may be part of it nevertheless, when
    the answer was lost.
    """
    try:
        for _ in range(KEEP_ATTEMPTS_MAX - 1):
            try:
                _add(quarantine, paths)
            except CommitFailedException:  # another commit came first, such as that of maintenance
                renew(quarantine)
            else:
                return
        _add(quarantine, paths)
    except _AWAY as error:
        raise CatalogUnreachable(uri=quarantine.location(), detail=first_line(error)) from error


def read_rows(
    quarantine: Table, columns: Sequence[str], wanted: BooleanExpression | None = None
) -> Iterator[dict[str, Any]]:
    """The rows of the companion table as it is now, repeats dropped, in no order.

    ``columns`` come beside ``PLACE_COLUMNS``, which every row has. ``wanted`` only spares files: rows that do
    not match it are given too. Raises `CatalogUnreachable` when a file can't be read.
    """
    seen = SeenRecords()
    for path in _paths(quarantine, wanted):
        for rows in _batches(quarantine.io, path, [*PLACE_COLUMNS, *columns]):
            for row in rows.to_pylist():
                if seen.add(row["topic_id"], row["partition"], row["offset"]):
                    yield row


def all_places(quarantine: Table) -> SeenRecords:
    """Which records the companion table has now. Raises `CatalogUnreachable` when a file can't be read."""
    places = SeenRecords()
    for row in read_rows(quarantine, ()):
        places.add(row["topic_id"], row["partition"], row["offset"])
    return places


def read_files(io: FileIO, paths: Sequence[str]) -> Iterator[dict[str, Any]]:
    """The rows of quarantine files, in order, a bounded number of them in memory at a time.

    Raises `CatalogUnreachable` when one can't be read.
    """
    for path in paths:
        for rows in _batches(io, path, SCHEMA.names):
            yield from rows.to_pylist()


def remove(quarantine: Table, settled: SeenRecords) -> None:
    """Take records out of the companion table, all their repeats with them, in one commit.

    Files that hold other records too are rewritten without them. Older snapshots of the companion table
    keep what they hold until maintenance has expired and swept them.
    Raises `TableMissing` and `CatalogUnreachable`; after the latter, a later call does it.
    """
    if not len(settled):
        return
    renew(quarantine)
    try:
        with failstep("replay.remove"), quarantine.transaction() as transaction:
            rewritten: list[str] = []
            with transaction.update_snapshot().overwrite() as overwrite:
                for task in quarantine.scan().plan_files():
                    hit, left = _without(quarantine, task.file.file_path, settled)
                    if not hit:
                        continue
                    overwrite.delete_data_file(task.file)
                    rewritten += left
                for file in parquet_files_to_data_files(
                    quarantine.io, transaction.table_metadata, iter(rewritten)
                ):
                    overwrite.append_data_file(file)
    except _AWAY as error:
        raise CatalogUnreachable(uri=quarantine.location(), detail=first_line(error)) from error


def _add(quarantine: Table, paths: Sequence[str]) -> None:
    if not KEPT_SMALL.items() <= quarantine.properties.items():  # created before these were set
        with quarantine.transaction() as transaction:
            transaction.set_properties(KEPT_SMALL)
    with failstep("quarantine.keep"):
        quarantine.add_files(list(paths), check_duplicate_files=False)


def _without(quarantine: Table, path: str, settled: SeenRecords) -> tuple[bool, list[str]]:
    """Whether the file holds settled records, and the file written with the other ones, if any."""
    rows = hits = 0
    for places in _batches(quarantine.io, path, PLACE_COLUMNS):
        rows += places.num_rows
        hits += int(np.count_nonzero(_settled(places, settled)))
    if hits in (0, rows):
        return hits > 0, []
    kept = (
        pa.table(some).filter(pa.array(~_settled(some, settled))).cast(SCHEMA)
        for some in _batches(quarantine.io, path, SCHEMA.names)
    )
    return True, [write_quarantine_file(quarantine.io, quarantine.location(), kept)]


def _settled(rows: pa.RecordBatch, settled: SeenRecords) -> np.ndarray[Any, np.dtype[np.bool_]]:
    columns = [rows.column(name).to_pylist() for name in ("topic_id", "partition", "offset")]
    return np.fromiter((place in settled for place in zip(*columns, strict=True)), bool, rows.num_rows)


def _paths(quarantine: Table, wanted: BooleanExpression | None) -> list[str]:
    """The files that may hold wanted rows; only whole files are left out."""
    scan = quarantine.scan(row_filter=wanted or AlwaysTrue())
    return [task.file.file_path for task in scan.plan_files()]


def _batches(io: FileIO, path: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    try:
        with open_input(io, path) as source:
            yield from pq.ParquetFile(source).iter_batches(READ_ROWS_MAX, columns=list(columns))
    except (OSError, pa.ArrowException) as error:
        raise CatalogUnreachable(uri=path, detail=first_line(error)) from error


def _iceberg_schema() -> Schema:
    header = StructType(NestedField(12, "name", StringType()), NestedField(13, "value", BinaryType()))
    kinds = [
        StringType(),
        StringType(),
        IntegerType(),
        LongType(),
        TimestamptzType(),
        StringType(),
        StringType(),
        BinaryType(),
        BinaryType(),
        ListType(11, header, element_required=False),
    ]
    return Schema(
        *(
            NestedField(i, name, kind)
            for i, (name, kind) in enumerate(zip(SCHEMA.names, kinds, strict=True), 1)
        )
    )

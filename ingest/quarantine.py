"""Quarantine: the records that could not be decoded, kept whole in a companion table.

Read tasks write the files, the driver makes them part of the table before the batch commits: a bad record is
durable before the seam passes it. A crash in between leaves repeats, which readers drop by
(topic id, partition, offset).
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
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
from sqlalchemy.exc import SQLAlchemyError

from thermocline.errors import CatalogUnreachable, TableMissing

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

    from thermocline.decode import Bad
    from thermocline.log import RecordChunk

# Version 2: every reader knows it, PyIceberg can append to it, and no row of it is ever deleted alone.
_FORMAT_VERSION = "2"

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


def quarantine_identifier(identifier: str) -> str:
    """The companion table's name in the catalog."""
    return f"{identifier}_quarantine"


def create_quarantine(catalog: Catalog, identifier: str) -> None:
    """Create the companion table; nothing happens where it is already there."""
    catalog.create_table_if_not_exists(
        quarantine_identifier(identifier), _iceberg_schema(), properties={"format-version": _FORMAT_VERSION}
    )


def open_quarantine(catalog: Catalog, name: str, identifier: str) -> Table:
    """The companion table. Raises `TableMissing`."""
    try:
        return catalog.load_table(quarantine_identifier(identifier))
    except NoSuchTableError as error:
        raise TableMissing(table=name, identifier=quarantine_identifier(identifier)) from error


def bad_records(chunk: RecordChunk, topic_ids: Mapping[str, str], bad: Sequence[Bad]) -> pa.Table:
    """The bad records of a chunk as ``SCHEMA``, in offset order."""
    headers = [chunk.header_of(record.index) or [] for record in bad]
    columns: list[Sequence[object]] = [
        [chunk.topic] * len(bad),
        [topic_ids[chunk.topic]] * len(bad),
        [chunk.partition] * len(bad),
        [chunk.offsets[record.index] for record in bad],
        [chunk.timestamps_ms[record.index] * 1000 for record in bad],
        [record.stage.value for record in bad],
        [record.reason for record in bad],
        [chunk.keys[record.index] for record in bad],
        [chunk.values[record.index] for record in bad],
        [[{"name": name, "value": value} for name, value in pairs] for pairs in headers],
    ]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, SCHEMA, strict=True)]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def write_quarantine_file(io: FileIO, location: str, records: pa.Table) -> str:
    """Write bad records as one file below the companion table; its path. No table knows it yet."""
    path = f"{location}/data/{uuid.uuid4()}.parquet"
    with io.new_output(path).create() as sink:
        pq.write_table(records, sink, compression="zstd")
    return path


def keep_files(quarantine: Table, paths: Sequence[str]) -> None:
    """Make written files part of the companion table. Raises `CatalogUnreachable`; then none of them is."""
    try:
        quarantine.refresh()
        quarantine.add_files(list(paths), check_duplicate_files=False)
    except (SQLAlchemyError, CommitFailedException, OSError) as error:
        raise CatalogUnreachable(uri=quarantine.location(), detail=str(error).splitlines()[0]) from error


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

"""Changes since a read point: of each key that had a record since, its row as of now, or that it is gone.

Which keys, the log says from the seam of the read point on; their rows are those of an extract, restricted to
these keys. So it does not matter how often the rows were rewritten, nor which of the records won.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb
import pyarrow as pa

from thermocline.rules.column_types import ColumnType
from thermocline.rules.definition import Column
from thermocline.serving.read.extract import BATCH_ROWS, Extract, conformed
from thermocline.serving.where.expression import expression_of

if TYPE_CHECKING:
    from thermocline.rules.seam import Seam
    from thermocline.serving.cold.index import ColdFile
    from thermocline.serving.hot.pinned import PinnedHot
    from thermocline.serving.read.extract import _BucketRows
    from thermocline.serving.read.look import ColdSide
    from thermocline.serving.read.selection import Selection

CHANGE_TYPE: Final = "_change_type"
"""The column that says what became of a key. Iceberg and Delta Lake call theirs so, too."""
UPSERT: Final = "upsert"
DELETE: Final = "delete"


class Changes(Extract):
    """An extract of the keys that had a record at or beyond a seam, each once.

    Such a key has its row as of the read point (``upsert``); or, where there is none that matches the
    condition, its key columns and nulls (``delete``), whether or not there was one before.
    """

    def __init__(
        self,
        cold: ColdSide,
        hot: PinnedHot,
        selection: Selection,
        age_seconds: float,
        spill_folder: Path,
        on_close: Callable[[], None] = lambda: None,
        *,
        since: Seam,
    ) -> None:
        """``hot`` begins at ``since`` or before; ``selection`` has the key columns. Raises as `Extract`."""
        super().__init__(cold, hot, selection, age_seconds, spill_folder, on_close)
        self._since = since
        self.schema = self.schema.append(pa.field(CHANGE_TYPE, pa.string(), nullable=False))
        self.columns = (*self.columns, Column(CHANGE_TYPE, ColumnType.parse("string"), 0))

    def _prepared(self, bucket: int, folder: Path) -> _BucketRows:
        return replace(super()._prepared(bucket, folder), changed=self._changed_keys(bucket))

    def _bucket(
        self, connection: duckdb.DuckDBPyConnection, prepared: _BucketRows
    ) -> Iterator[pa.RecordBatch]:
        if not prepared.changed:
            return
        connection.register("changed", self._seen_keys(connection, prepared.changed))
        upserted = [self._key_schema.empty_table()]
        for batch in super()._bucket(connection, prepared):
            if self._definition.merging.is_keyed:
                keys = [batch.column(name) for name in self._definition.identity]
                upserted.append(pa.table(keys, schema=self._key_schema))
            yield self._marked(batch, UPSERT)
        if self._definition.merging.is_keyed:  # a row without a key is never deleted
            yield from self._deletes(connection, pa.concat_tables(upserted))

    def _changed_keys(self, bucket: int) -> pa.Table:
        """All keys that had a record since, also those whose records lost or changed nothing."""
        winners = self._hot.scan(bucket, self._since)  # safety: since-seam
        keys = [self._keys(batch) for batch in winners.to_batches(BATCH_ROWS)]
        return pa.Table.from_batches(keys, self._key_schema)

    def _seen_keys(self, connection: duckdb.DuckDBPyConnection, changed: pa.Table) -> pa.Table:
        """Those of rows that the caller may see: that another one is gone is not for them."""
        scope = self._selection.scope
        if scope is None or not self._definition.has_key:
            return changed
        # safety: changes-in-scope
        return connection.from_arrow(changed).filter(expression_of(scope, self._names)).to_arrow_table()

    def _cold_select(self, files: Sequence[ColdFile], number: int, without: str = "deleted") -> str:
        select = super()._cold_select(files, number, without)
        keys = self._named(self._definition.identity)
        return f"SELECT * FROM ({select}) f SEMI JOIN changed USING ({keys})"  # noqa: S608  # names are ours

    def _deletes(self, connection: duckdb.DuckDBPyConnection, upserted: pa.Table) -> Iterator[pa.RecordBatch]:
        connection.register("upserted", upserted)
        keys = self._named(self._definition.identity)
        found = connection.sql(f"SELECT {keys} FROM changed ANTI JOIN upserted USING ({keys})")  # noqa: S608
        for batch in found.to_arrow_table().to_batches(BATCH_ROWS):
            key_columns = dict(zip(self._definition.identity, batch.columns, strict=True))
            arrays = [
                conformed(key_columns[field.name], field.type, None)
                if field.name in key_columns
                else pa.nulls(batch.num_rows, field.type)
                for field in self._given_schema
            ]
            yield self._marked(pa.RecordBatch.from_arrays(arrays, schema=self._given_schema), DELETE)

    def _marked(self, batch: pa.RecordBatch, change: str) -> pa.RecordBatch:
        changes = pa.array([change]).take(pa.array([0] * batch.num_rows, pa.int64()))
        return pa.RecordBatch.from_arrays([*batch.columns, changes], schema=self.schema)

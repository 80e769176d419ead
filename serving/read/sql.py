"""SQL over live tables, in this process: DuckDB scans each table as an extract, at one read point.

A statement is bound before anything is read: against empty tables, so that the tables it names are known,
and a mistake in it is reported at once. Then these tables are opened together, and each scan of a table is an
extract of its own, of the columns that the scan wants, at the table's read point.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds

from thermocline.errors import SqlRefused, SqlTooLarge, TableMissing, did_you_mean
from thermocline.iceberg.catalog import definition_of, open_table
from thermocline.process.private_folder import temporary_folder
from thermocline.rules.column_types import Kind
from thermocline.rules.definition import PROVENANCE
from thermocline.serving.read.caller import EVERYONE, Caller
from thermocline.serving.read.extract import BATCH_ROWS
from thermocline.serving.read.private import FOLDER_PREFIX, opened_together
from thermocline.serving.read.wanted import Wanted
from thermocline.serving.store.storage import storage_failed
from thermocline.serving.where.arrow import implied

if TYPE_CHECKING:
    import pyarrow.compute as pc

    from thermocline.rules.definition import LiveTable
    from thermocline.rules.read_point import ReadPoint
    from thermocline.serving.read.extract import Extract
    from thermocline.serving.read.table_at import ReadableTable
    from thermocline.serving.where.predicate import Predicate
    from thermocline.settings import Settings, SqlSettings

# More would take the cores from the extracts that feed it.
THREADS: Final = 2
_READS: Final = (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN)
_LISTS: Final = re.compile(r"\b(show|information_schema|pg_catalog|duckdb_\w+)\b", re.IGNORECASE)
"""Of a statement that may ask which tables there are."""
_EXPLAIN: Final = re.compile(r"\s*EXPLAIN(\s+ANALYZE)?\b", re.IGNORECASE)
_REFUSED: Final = {duckdb.StatementType.MULTI: "list the values of PIVOT: ON column IN (...)"}
_UUID: Final = pa.uuid()

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a statement. ``schema`` names no column twice; ``read_points`` are by table."""

    schema: pa.Schema
    read_points: Mapping[str, ReadPoint]
    _reader: pa.RecordBatchReader
    _statement: _Statement

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, in the statement's order. Called once.

        Raises:
            SqlRefused: the statement fails on a value.
            SqlTooLarge: it needs more memory than it may use.
            StorageFailed: a disk or the store of a table's files failed.
        """
        reader = self._reader
        with self._statement.failing_by_name():
            while (batch := self._statement.computed(lambda: next(reader, None))) is not None:
                if batch.num_rows:
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema)


@contextmanager
def answered(settings: Settings, text: str, caller: Caller = EVERYONE) -> Iterator[Answer]:
    """The result of one statement of a caller as of now, to be read while the block runs.

    Raises:
        SqlRefused: it isn't a statement that reads, or what it names doesn't exist.
        ThermoclineError: a source is unavailable, or a log does not fit its table.
    """
    temp_dir = settings.sql.temp_dir
    with (
        temporary_folder(FOLDER_PREFIX, temp_dir) as folder,
        _connected(settings.sql, folder) as connection,
    ):
        statement = _Statement(connection, text, settings.sql.memory_bytes_max)
        definitions = statement.tables(settings)
        with opened_together(settings, tuple(definitions)) as tables:
            scans = [
                LiveRows(table, statement.columns(table.definition), caller) for table in tables.values()
            ]
            with statement.answer(scans) as answer:
                yield answer


class LiveRows(ds.Dataset):  # type: ignore[misc]
    """A live table at a read point, as DuckDB takes datasets: each scan is an extract of its own.

    Like Lance's, it has of a dataset only what a scan asks for: ``schema`` and ``scanner``. It can be scanned
    several times, also at once. UUIDs have Arrow's type for them, so that SQL compares them with their text.
    """

    def __init__(self, table: ReadableTable, columns: Sequence[str], caller: Caller) -> None:
        """``columns``: those SQL sees. ``failure``: what a scan raised, of which DuckDB gives the text."""
        self._table, self._caller = table, caller
        self._schema = schema_of(table.definition, columns)
        self.name = table.definition.name
        self.failure: BaseException | None = None
        self.read_point = table.read_point

    @property
    def schema(self) -> pa.Schema:
        """The columns that SQL sees."""
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: pc.Expression | None = None,  # noqa: A002
    ) -> _Scan:
        """One scan: of all columns or some, and of the rows for which a condition is true."""
        wanted = self._schema.names if columns is None else list(columns)
        return _Scan(self, wanted, filter)

    def batches(self, wanted: Sequence[str], condition: pc.Expression | None) -> Iterator[pa.RecordBatch]:
        """The rows of a scan."""
        needed = [*wanted, *_needed_by(condition, self._schema, wanted)]
        where = implied(self._table.definition, condition)
        extract = self._extract(needed or self._schema.names[:1], where)
        schema = self.projected(extract.schema.names)
        try:
            for batch in extract.batches():
                rows = _as_seen(batch, schema)
                yield (rows if condition is None else rows.filter(condition)).select(wanted)
        except (Exception, KeyboardInterrupt) as error:
            self.failure = error
            raise

    def projected(self, columns: Sequence[str]) -> pa.Schema:
        """Some of its columns."""
        return pa.schema([self._schema.field(name) for name in columns])

    def _extract(self, columns: Sequence[str], where: Predicate | None = None) -> Extract:
        return self._table.scan(Wanted(columns, where, caller=self._caller))


@dataclass(frozen=True, slots=True)
class _Scan:
    """What DuckDB takes for a dataset's scanner."""

    rows: LiveRows
    wanted: Sequence[str]
    condition: pc.Expression | None

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows, read as they are asked for."""
        batches = self.rows.batches(self.wanted, self.condition)
        return pa.RecordBatchReader.from_batches(self.rows.projected(self.wanted), batches)


class _Statement:
    """One statement that reads, and what its errors are called."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, text: str, memory_bytes_max: int) -> None:
        self._connection = connection
        self._text = text
        self._memory_bytes_max = memory_bytes_max
        self._scans: Sequence[LiveRows] = ()
        try:
            text.encode()
        except UnicodeEncodeError as error:  # what a shell gave
            raise SqlRefused(problem="the statement is not valid UTF-8") from error
        with self.failing_by_name():
            found = connection.extract_statements(text)
        if len(found) != 1:
            raise SqlRefused(problem="one statement at a time, please" if found else "there is no statement")
        if found[0].type not in _READS:  # safety: sql-reads-only
            raise SqlRefused(problem=_REFUSED.get(found[0].type, "statements only read"))
        is_explained = found[0].type == duckdb.StatementType.EXPLAIN
        if is_explained:
            self._check_explained()
        self._prefix = "" if is_explained else "EXPLAIN "

    def _check_explained(self) -> None:
        """Explaining with ANALYZE runs what is explained."""
        words = _EXPLAIN.match(self._text)
        with self.failing_by_name():
            found = self._connection.extract_statements(self._text[words.end() :]) if words else []
        if [one.type for one in found] != [duckdb.StatementType.SELECT]:  # safety: sql-explains-reads
            raise SqlRefused(problem="EXPLAIN, or EXPLAIN ANALYZE, takes a SELECT")

    def tables(self, settings: Settings) -> dict[str, LiveTable]:
        """The definitions of the live tables that it names, sorted by name.

        Raises:
            SqlRefused: a table or a column doesn't exist, or whatever else is wrong with it.
            ThermoclineError: a table's definition can't be read.
        """
        found: dict[str, LiveTable] = {}
        while (name := self._missing(settings, found)) is not None:
            definition = definition_of(open_table(settings, name), name)
            found[name] = definition
            columns = schema_of(definition, self.columns(definition))
            self._connection.register(name, columns.empty_table())
        if _LISTS.search(self._text):
            self._list_others(settings, found)
        return dict(sorted(found.items()))

    def _list_others(self, settings: Settings, named: Mapping[str, LiveTable]) -> None:
        """Lets DuckDB's own catalog list all live tables; those it doesn't name stay empty."""
        for name in settings.tables.keys() - named.keys():
            with suppress(TableMissing):  # it isn't created yet
                definition = definition_of(open_table(settings, name), name)
                columns = schema_of(definition, [column.name for column in definition.columns])
                self._connection.register(name, columns.empty_table())

    def columns(self, definition: LiveTable) -> list[str]:
        """The columns of a table that it sees; those of provenance only where it names one of them."""
        declared = [column.name for column in definition.columns]
        is_named = any(name in self._text.lower() for name in PROVENANCE)
        return [*declared, *PROVENANCE] if is_named else declared

    @contextmanager
    def answer(self, scans: Sequence[LiveRows]) -> Iterator[Answer]:
        """Its result over the tables."""
        self._scans = scans
        for scan in scans:
            self._connection.unregister(scan.name)
            self._connection.register(scan.name, scan)
        with self.failing_by_name():
            reader = self.computed(lambda: self._connection.sql(self._text).to_arrow_reader(BATCH_ROWS))
        with reader:
            schema = _without_repeated_names(reader.schema)
            yield Answer(schema, {scan.name: scan.read_point for scan in scans}, reader, self)

    def computed(self, do: Callable[[], T]) -> T:
        """What it gives, computed in a thread: a signal is met here, while DuckDB would not look for one."""
        with ThreadPoolExecutor(1) as thread:
            future = thread.submit(do)
            try:
                return future.result()
            except BaseException:
                if not future.done():
                    self._connection.interrupt()
                raise

    @contextmanager
    def failing_by_name(self) -> Iterator[None]:
        """What DuckDB raises in the block comes out as one of our errors."""
        try:
            yield
        except duckdb.OutOfMemoryException as error:
            detail = str(_facts(error)["exception_message"]).partition("\n")[0]
            raise SqlTooLarge(limit_bytes=self._memory_bytes_max, detail=detail) from error
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            for scan in self._scans:
                if scan.failure is not None:
                    raise scan.failure from error
            if isinstance(error, (duckdb.IOException, OSError)):
                raise storage_failed(", ".join(scan.name for scan in self._scans), error) from error
            raise self._refused(error) from error

    def _missing(self, settings: Settings, found: Mapping[str, LiveTable]) -> str | None:
        """A live table that it names and that is not registered yet."""
        try:
            self._connection.execute(self._prefix + self._text)
        except duckdb.CatalogException as error:
            named = str(_facts(error).get("name", ""))
            by_lower = {name.lower(): name for name in settings.tables}
            name = named if named in settings.tables else by_lower.get(named.lower())
            if name is not None and name not in found:
                return name
            raise self._refused(error, self._prefix, tuple(settings.tables)) from error
        except duckdb.Error as error:
            raise self._refused(error, self._prefix) from error
        return None

    def _refused(self, error: Exception, prefix: str = "", tables: Sequence[str] = ()) -> SqlRefused:
        """An error of DuckDB's in one sentence; its place is counted in bytes, ``prefix`` included."""
        facts = _facts(error)
        problem = " ".join(str(facts["exception_message"]).split())
        if tables and facts.get("type") == "Table":
            problem = f'there is no table "{facts["name"]}"{did_you_mean(facts["name"], tables)}'
        if "position" not in facts:
            return SqlRefused(problem=problem)
        before = (prefix + self._text).encode()[: int(facts["position"])].decode(errors="ignore")
        lines = before.removeprefix(prefix).split("\n")
        return SqlRefused(problem=problem, line_and_column=(len(lines), len(lines[-1]) + 1))


def schema_of(definition: LiveTable, columns: Sequence[str]) -> pa.Schema:
    """Columns of a table as SQL sees them: as an extract has them, but UUIDs as such."""
    kinds = {column.name: column.type.kind for column in definition.columns}
    fields = (definition.given_schema.field(name) for name in columns)
    return pa.schema(
        field.with_type(_UUID) if kinds.get(field.name) is Kind.UUID else field for field in fields
    )


def _as_seen(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    arrays = [
        pa.ExtensionArray.from_storage(_UUID, column) if field.type == _UUID else column
        for column, field in zip(batch.columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _needed_by(condition: pc.Expression | None, schema: pa.Schema, wanted: Sequence[str]) -> list[str]:
    """The other columns that a condition names: Arrow can't say, but it refuses to look for a missing one."""
    if condition is None:
        return []
    return [
        name for name in schema.names if name not in wanted and not _is_bound_without(name, condition, schema)
    ]


def _is_bound_without(name: str, condition: pc.Expression, schema: pa.Schema) -> bool:
    others = pa.schema([field for field in schema if field.name != name])
    try:
        ds.dataset(others.empty_table()).scanner(filter=condition)
    except pa.ArrowInvalid:
        return False
    return True


def _without_repeated_names(schema: pa.Schema) -> pa.Schema:
    """The same columns; of those named alike, all but the first with a number: ``a``, ``a_1``."""
    names: list[str] = []
    for name in schema.names:
        numbered = (f"{name}_{number}" for number in count(1))
        names.append(name if name not in names else next(one for one in numbered if one not in names))
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])


@contextmanager
def _connected(settings: SqlSettings, folder: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    """A database in memory that SQL can't leave: no files, no network, no extensions, no settings."""
    config: dict[str, str | bool | int | float | list[str]] = {
        "threads": THREADS,
        "memory_limit": f"{settings.memory_bytes_max}B",
        "temp_directory": str(folder),
        "python_enable_replacements": False,
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "errors_as_json": True,
    }
    with duckdb.connect(config=config) as connection:
        connection.execute("LOAD icu")  # comes with DuckDB; knows time zones
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("SET enable_external_access = false")  # safety: sql-no-access
        connection.execute("SET lock_configuration = true")
        yield connection


def _facts(error: Exception) -> dict[str, Any]:
    """What an error of DuckDB's says, as JSON where it has that; else the text alone."""
    text = str(error)
    try:
        facts: dict[str, Any] = json.loads(text[text.index("{") :])
    except ValueError:
        return {"exception_message": text}
    return {"exception_message": text} | facts

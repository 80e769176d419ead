"""The bounds that a manifest gives of a data file: no engine that skips files by them misses a row."""

from __future__ import annotations

import operator
import random
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyiceberg import expressions
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import _InclusiveMetricsEvaluator, _StrictMetricsEvaluator
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.table import Table
from pyiceberg.typedef import Record

from tests.partition_spec import partition_spec_of
from thermocline.iceberg import data_file
from thermocline.iceberg.data_file import WrittenFile, write_data_file
from thermocline.ingest.commit.content_files import data_file_json
from thermocline.rules.definition import KEY, PROVENANCE, TOMBSTONE, LiveTable
from thermocline.rules.keys import encode_table

DEFINITION = LiveTable.build(
    name="bounds",
    identifier="app.bounds",
    topics=["bounds"],
    key=["id"],
    columns={
        "id": "int",
        "text": "string",
        "raw": "binary",
        "number": "long",
        "price": "decimal(38,2)",
        "ratio": "double",
        "day": "date",
        "at": "timestamptz",
        "local": "timestamp",
        "inside": "struct<city: string, deeper: struct<number: long>, some: list<string>>",
        "some": "map<string, long>",
    },
    buckets=1,
    format_version=2,
)
IDS: Final = {column.name: column.field_id for column in DEFINITION.columns}

# Bounds of strings are cut after 16 characters. After U+D7FF come surrogates, which no text holds, and after
# U+10FFFF comes nothing.
TEXTS: Final = (
    "",
    "a" * 15,
    "a" * 16,
    "a" * 17,
    "a" * 16 + "b",
    "a" * 16 + "\U0010ffff",
    "a" * 15 + "\ud7ff",
    "a" * 15 + "\ud7ff" + "z",
    "a" * 15 + "\ue000" + "z",
    "a" * 15 + "\U0010ffff" + "z",
    "a" + "\U0010ffff" * 15 + "z",
    "a" * 8 + "\U0010ffff" * 40,
    "b" * 100,
    "~" * 17,
    "\x7f" * 17,
    "é" * 20,
    "\u07ff" * 17,
    "\ud7ff" * 16,
    "\ud7ff" * 17,
    "\ud7ff" + "\U0010ffff" * 16,
    "\ue000" * 17,
    "\uffff" * 17,
    "😀" * 17,
    "\U0010ffff" * 15 + "a" * 20,
    "\U0010ffff" * 16,
    "\U0010ffff" * 17,
)
RAWS: Final = (
    b"",
    b"\0",
    b"a" * 17,
    b"a" * 15 + b"\xff" * 9,
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff" * 16,
    b"\xff" * 17,
)
NINES: Final = "9" * 36
VALUES: Final[Mapping[str, Sequence[Any]]] = {
    "text": TEXTS,
    "raw": RAWS,
    "number": (-(1 << 63), -256, -1, 0, 1, 255, (1 << 63) - 1),
    "price": [Decimal(text) for text in (f"-{NINES}.99", "-1.28", "-0.01", "0.00", "1.27", f"{NINES}.99")],
    "ratio": (-1e308, -1.5, -5e-324, 0.0, 5e-324, 1.5, 1e308),
    "day": (date(1, 1, 1), date(1969, 12, 31), date(1970, 1, 1), date(9999, 12, 31)),
    "at": (
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    ),
}
COMPARISONS: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "EqualTo": operator.eq,
    "NotEqualTo": operator.ne,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "In": lambda value, some: value in some,
    "StartsWith": lambda value, prefix: value.startswith(prefix),
    "NotStartsWith": lambda value, prefix: not value.startswith(prefix),
}


def condition(name: str, column: str, *literal: Any) -> BooleanExpression:
    """A condition of PyIceberg's, by its name: its annotations know no positional arguments."""
    made: BooleanExpression = getattr(expressions, name)(column, *literal)
    return made


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on one column."""

    comparison: str
    column: str
    literal: Any

    @property
    def expression(self) -> BooleanExpression:
        """The condition as PyIceberg has it."""
        return condition(self.comparison, self.column, self.literal)

    def fits(self, value: Any) -> bool:
        """Whether it holds for a value that is not null."""
        return bool(COMPARISONS[self.comparison](value, self.literal))


def filters(column: str) -> Iterator[Filter]:
    """Comparisons with each value, and with pairs; of strings also with what they begin with."""
    values = VALUES[column]
    for comparison in list(COMPARISONS)[:6]:
        yield from (Filter(comparison, column, value) for value in values)
    yield from (Filter("In", column, pair) for pair in pairwise(values))
    if column == "text":
        prefixes = {text[:length] for text in TEXTS for length in (1, 15, 16, 17, 18)} - {""}
        for prefix in sorted(prefixes):
            yield Filter("StartsWith", column, prefix)
            yield Filter("NotStartsWith", column, prefix)


def written(folder: Path, **columns: Sequence[Any]) -> WrittenFile:
    """A data file with these values; what is not named is null."""
    count = max(map(len, columns.values()))
    facts: dict[str, Sequence[Any]] = {
        "id": range(count),
        **dict(zip(PROVENANCE, (["bounds"] * count, [0] * count, range(count), [0] * count), strict=True)),
        TOMBSTONE: [False] * count,
        KEY: [b""] * count,
        **columns,
    }
    rows = pa.table(
        [pa.array(facts.get(field.name, [None] * count), field.type) for field in DEFINITION.records_schema],
        schema=DEFINITION.records_schema,
    )
    rows = rows.set_column(rows.schema.get_field_index(KEY), KEY, encode_table(DEFINITION, rows))
    return write_data_file(PyArrowFileIO(), str(folder / f"{uuid4().hex}.parquet"), DEFINITION, rows)


def listed(file: WrittenFile) -> DataFile:
    """The file as a manifest lists it, from what a commit says of it."""
    said = data_file_json({"spec-id": 0, "partition": [0]}, file)

    def by_id(name: str) -> dict[int, Any]:
        return dict(zip(said[name]["keys"], said[name]["values"], strict=True))

    def bounds(name: str) -> dict[int, bytes]:
        return {field_id: bytes.fromhex(bound) for field_id, bound in by_id(name).items()}

    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=said["file-path"],
        file_format=FileFormat.PARQUET,
        partition=Record(*said["partition"]),
        record_count=said["record-count"],
        file_size_in_bytes=said["file-size-in-bytes"],
        value_counts=by_id("value-counts"),
        null_value_counts=by_id("null-value-counts"),
        lower_bounds=bounds("lower-bounds"),
        upper_bounds=bounds("upper-bounds"),
    )


Judge = Callable[[DataFile], bool]


def judges(expression: BooleanExpression) -> tuple[Judge, Judge]:
    """What engines take from a manifest: whether any row of a file may fit, and whether all of them do."""
    schema = DEFINITION.iceberg_schema()
    return _InclusiveMetricsEvaluator(schema, expression).eval, _StrictMetricsEvaluator(
        schema, expression
    ).eval


@pytest.mark.parametrize("column", VALUES)
def test_bounds_hide_no_row_that_fits_and_claim_none_that_does_not(tmp_path: Path, column: str) -> None:
    """Method: files of one value, and of several at random, judged by PyIceberg's evaluators of bounds."""
    chance = random.Random(7)
    values = VALUES[column]
    groups = [[value] for value in values] + [chance.sample(values, chance.randint(2, 4)) for _ in range(15)]
    files = [listed(written(tmp_path, **{column: group})) for group in groups]
    hidden, claimed = [], []
    for one in filters(column):
        may_fit, must_fit = judges(one.expression)
        for group, file in zip(groups, files, strict=True):
            fits = [one.fits(value) for value in group]
            if any(fits) and not may_fit(file):
                hidden.append((group, one))
            if must_fit(file) and not all(fits):
                claimed.append((group, one))
    assert (hidden, claimed) == ([], [])


def test_only_columns_without_an_order_or_a_greater_value_lack_bounds(tmp_path: Path) -> None:
    file = written(tmp_path, **{column: [values[0], values[-1]] for column, values in VALUES.items()})
    assert {column for column in VALUES if IDS[column] not in file.lower_bounds} == {"raw"}
    assert {column for column in VALUES if IDS[column] not in file.upper_bounds} == {"raw", "text"}


CITIES: Final[dict[str, list[Any]]] = {
    "all null": [None, {"city": None}],
    "some null": [None, {"city": "Oslo"}, {"city": "Rome", "deeper": {"number": 7}}],
    "none null": [{"city": "Oslo", "deeper": {"number": 7}}, {"city": "b" * 20}],
}


@pytest.mark.parametrize("case", CITIES)
def test_nulls_within_structs_are_found(tmp_path: Path, case: str) -> None:
    """A struct that is null has none of its fields; lists and maps have no counts."""
    file = listed(written(tmp_path, inside=CITIES[case], some=[{"a": 1}] * len(CITIES[case])))
    cities = [one and one.get("city") for one in CITIES[case]]
    may_be_null, must_be_null = judges(condition("IsNull", "inside.city"))
    assert (may_be_null(file), must_be_null(file)) == (None in cities, not any(cities))
    schema = DEFINITION.iceberg_schema()
    counted = {schema.find_column_name(number) for number in file.null_value_counts}
    assert counted & {"inside.city", "inside.deeper.number", "inside.some.element", "inside", "some"} == {
        "inside.city",
        "inside.deeper.number",
    }
    number = schema.find_field("inside.deeper.number").field_id
    assert (number in file.lower_bounds) == (case != "all null")
    may_fit, must_fit = judges(condition("GreaterThan", "inside.deeper.number", 8))
    assert (may_fit(file), must_fit(file)) == (False, False)


@pytest.mark.parametrize("texts", [[None], [None, "a"], ["a", None], ["a"]])
def test_nulls_are_found_and_are_no_bounds(tmp_path: Path, texts: list[str | None]) -> None:
    file = listed(written(tmp_path, text=texts))
    may_be_null, must_be_null = judges(condition("IsNull", "text"))
    may_be_there, must_be_there = judges(condition("NotNull", "text"))
    assert (may_be_null(file), must_be_null(file)) == (None in texts, texts == [None])
    assert (may_be_there(file), must_be_there(file)) == ("a" in texts, texts == ["a"])


def test_a_zero_lies_within_the_bounds_whatever_its_sign(tmp_path: Path) -> None:
    """To Iceberg -0.0 lies below 0.0; Arrow takes whichever comes first for the least and the greatest."""
    for zeros in ([0.0], [-0.0], [0.0, -0.0], [-0.0, 0.0]):
        file = written(tmp_path, ratio=zeros)
        assert file.lower_bounds[IDS["ratio"]] == struct.pack("<d", -0.0)
        assert file.upper_bounds[IDS["ratio"]] == struct.pack("<d", 0.0)


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Table, pa.Table]]:
    """A table of files with three rows each, in row groups of two, and its rows."""
    monkeypatch.setattr(data_file, "ROW_GROUP_ROWS", 2)
    chance = random.Random(7)
    texts = [*TEXTS, *chance.choices(TEXTS, k=10)]
    rows = pa.table({"id": range(len(texts)), "text": texts, "raw": chance.choices(RAWS, k=len(texts))})
    catalog = SqlCatalog("bounds", uri="sqlite:///:memory:", warehouse=str(tmp_path))
    catalog.create_namespace("app")
    schema, spec = DEFINITION.iceberg_schema(), partition_spec_of(DEFINITION)
    table = catalog.create_table("app.bounds", schema, partition_spec=spec)
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for first in range(0, rows.num_rows, 3):
            append.append_data_file(listed(written(tmp_path, **rows.slice(first, 3).to_pydict())))
    yield table, rows
    catalog.close()


@pytest.mark.parametrize("column", ["text", "raw"])
def test_filtered_scans_of_three_engines_find_every_row(stored: tuple[Table, pa.Table], column: str) -> None:
    """Goal: neither the bounds in manifests nor those in the files' footers cost a row.

    Method: PyIceberg, DuckDB and Arrow look for each value, and for all values from it on.
    """
    table, rows = stored
    paths = [task.file.file_path for task in table.scan().plan_files()]
    wrong = []
    with duckdb.connect() as connection:
        for value in VALUES[column]:
            for comparison, sign in (("EqualTo", "="), ("GreaterThanOrEqual", ">=")):
                asked = Filter(comparison, column, value)
                query = f"SELECT id FROM read_parquet($paths) WHERE {column} {sign} $value"
                field_fits = COMPARISONS[comparison](ds.field(column), value)
                found = {
                    "pyiceberg": table.scan(asked.expression, ("id",)).to_arrow(),
                    "duckdb": connection.sql(query, params={"paths": paths, "value": value}).to_arrow_table(),
                    "arrow": ds.dataset(paths).to_table(["id"], filter=field_fits),
                }
                fits = [row["id"] for row in rows.to_pylist() if asked.fits(row[column])]
                wrong += [
                    (engine, asked)
                    for engine, read in found.items()
                    if sorted(read.column("id").to_pylist()) != fits
                ]
    assert wrong == []

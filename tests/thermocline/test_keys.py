from __future__ import annotations

from datetime import date
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.transforms import BucketTransform

from thermocline.rules import keys
from thermocline.rules.column_types import Kind
from thermocline.rules.definition import LiveTable

# Few letters, so that prefixes, zero bytes and the escape's own bytes meet often.
TEXTS = st.text(st.sampled_from("\x00\x01\xffab\U0010ffff"), max_size=5) | st.text(
    st.characters(exclude_categories=["Cs"]), max_size=5
)
BYTES = st.binary(max_size=4) | st.lists(st.sampled_from([0, 1, 2, 254, 255]), max_size=5).map(bytes)
VALUES: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.INT: st.integers(-3, 3) | st.integers(-(2**31), 2**31 - 1),
    Kind.LONG: st.integers(-3, 3) | st.integers(-(2**63), 2**63 - 1),
    Kind.STRING: TEXTS,
    Kind.DATE: st.dates(),
    Kind.UUID: st.uuids() | st.integers(0, 3).map(lambda number: UUID(int=number)),
    Kind.BINARY: BYTES,
}


def table_of(kinds: list[Kind]) -> LiveTable:
    columns = {f"c{index}": str(kind) for index, kind in enumerate(kinds)}
    return LiveTable.build(
        name="t", identifier="a.t", topics=["t"], key=list(columns), columns=columns | {"v": "string"}
    )


@st.composite
def tables_and_rows(draw: st.DrawFn) -> tuple[LiveTable, list[tuple[Any, ...]]]:
    kinds = draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))
    rows = st.tuples(*(VALUES[kind] for kind in kinds))
    return table_of(kinds), draw(st.lists(rows, min_size=1, max_size=8))


def arrow(definition: LiveTable, rows: list[tuple[Any, ...]]) -> pa.Table:
    columns = {
        column.name: pa.array([_stored(row[index]) for row in rows], column.type.arrow)
        for index, column in enumerate(definition.key_columns)
    }
    return pa.table(columns)


def _stored(value: object) -> object:
    return value.bytes if isinstance(value, UUID) else value


@given(tables_and_rows())
def test_bytes_sort_as_the_typed_keys_do(case: tuple[LiveTable, list[tuple[Any, ...]]]) -> None:
    definition, rows = case
    by_bytes = sorted(rows, key=lambda row: keys.encode_one(definition, row))
    assert by_bytes == sorted(rows)


@given(tables_and_rows())
def test_keys_read_back(case: tuple[LiveTable, list[tuple[Any, ...]]]) -> None:
    definition, rows = case
    encoded = [keys.encode_one(definition, row) for row in rows]
    assert [keys.decode_one(definition, key) for key in encoded] == rows
    for first in range(len(definition.key)):
        for row, key in zip(rows, encoded, strict=True):
            known = keys.encode_one(definition, row[:first])
            rest = keys.encode_one(definition, row[first:], first)
            assert known + rest == key
            assert keys.decode_one(definition, rest, first) == row[first:]
    arrays = keys.decode_arrays(definition, pa.array(encoded))
    assert [array.type for array in arrays] == [column.type.arrow for column in definition.key_columns]
    for array, column in zip(arrays, zip(*rows, strict=True), strict=True):
        assert array.to_pylist() == [value.bytes if isinstance(value, UUID) else value for value in column]


@given(tables_and_rows())
def test_a_whole_table_is_encoded_as_each_row_is(case: tuple[LiveTable, list[tuple[Any, ...]]]) -> None:
    definition, rows = case
    table = arrow(definition, rows)
    expected = [keys.encode_one(definition, row) for row in rows]
    assert keys.encode_table(definition, table).to_pylist() == expected
    assert keys.encode_table(definition, table.to_batches()[0]).to_pylist() == expected
    assert keys.encode_table(definition, table.slice(1)).to_pylist() == expected[1:]
    assert keys.encode_table(definition, pa.concat_tables([table, table])).to_pylist() == expected * 2


@given(tables_and_rows(), st.data())
def test_a_prefix_and_its_end_enclose_exactly_the_keys_that_begin_so(
    case: tuple[LiveTable, list[tuple[Any, ...]]], data: st.DataObject
) -> None:
    definition, rows = case
    columns = data.draw(st.integers(1, len(definition.key_columns)))
    prefix = keys.encode_one(definition, rows[0][:columns])
    end = keys.prefix_end(prefix)
    for row in rows:
        key = keys.encode_one(definition, row)
        same = row[:columns] == rows[0][:columns]
        assert key.startswith(prefix) == same
        assert (prefix <= key and (end is None or key < end)) == same


@given(BYTES, BYTES, BYTES)
def test_a_prefix_end_is_the_least_bound(prefix: bytes, suffix: bytes, other: bytes) -> None:
    end = keys.prefix_end(prefix)
    for candidate in (other, prefix + suffix, prefix[:-1] + suffix):
        below = end is None or candidate < end
        assert (prefix <= candidate and below) == candidate.startswith(prefix)
    assert end is not None or set(prefix) <= {255}


def test_no_rows_give_no_keys() -> None:
    definition = table_of(list(VALUES))
    assert len(keys.encode_table(definition, arrow(definition, []))) == 0
    assert [len(array) for array in keys.decode_arrays(definition, pa.array([], pa.binary()))] == [0] * 6


def test_a_slice_of_keys_reads_back() -> None:
    definition = table_of([Kind.INT, Kind.STRING, Kind.LONG])
    rows = [(index, "x" * index, -index) for index in range(20)]
    encoded = keys.encode_table(definition, arrow(definition, rows)).slice(5, 10)
    arrays = keys.decode_arrays(definition, encoded)
    assert list(zip(*(array.to_pylist() for array in arrays), strict=True)) == rows[5:15]


def test_key_columns_are_found_however_a_file_stores_them() -> None:
    definition = table_of([Kind.LONG, Kind.STRING, Kind.UUID])
    number = UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")
    stored = pa.table(
        {
            "c2": pa.array([number.bytes], pa.uuid()),
            "c1": pa.array(["x"]).dictionary_encode(),
            "c0": pa.array([7], pa.int32()),
        }
    )
    expected = keys.encode_one(definition, (7, "x", number))
    assert keys.encode_table(definition, stored).to_pylist() == [expected]
    wide = stored.set_column(1, "c1", pa.array(["x"], pa.large_string()))
    assert keys.encode_table(definition, wide).to_pylist() == [expected]


@pytest.mark.parametrize("kind", [Kind.INT, Kind.STRING])
def test_a_null_in_a_key_column_is_our_mistake(kind: Kind) -> None:
    definition = table_of([kind, Kind.STRING])
    holed = pa.table({"c0": pa.array([None], definition.key_columns[0].type.arrow), "c1": ["x"]})
    with pytest.raises(AssertionError):
        keys.encode_table(definition, holed)


SPECIFIED = [
    (Kind.INT, 34, 2017239379),
    (Kind.LONG, 34, 2017239379),
    (Kind.STRING, "iceberg", 1210000089),
    (Kind.DATE, date(2017, 11, 16), -653330422),
    (Kind.UUID, UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"), 1488055340),
    (Kind.BINARY, b"\x00\x01\x02\x03", -188683207),
]


@pytest.mark.parametrize(("kind", "value", "hashed"), SPECIFIED)
@pytest.mark.parametrize("count", [1, 7, 16, 4096])
def test_a_bucket_is_the_one_that_iceberg_specifies(kind: Kind, value: Any, hashed: int, count: int) -> None:
    definition = LiveTable.build(
        name="t", identifier="a.t", topics=["t"], key=["c0"], columns={"c0": str(kind)}, buckets=count
    )
    expected = (hashed & 0x7FFFFFFF) % count
    assert keys.bucket_of(definition, value) == expected
    assert keys.buckets(definition, arrow(definition, [(value,)])["c0"]).tolist() == [expected]


@given(st.sampled_from(list(VALUES)), st.data())
def test_many_buckets_are_as_one_and_as_pyiceberg_has_them(kind: Kind, data: st.DataObject) -> None:
    definition = table_of([kind])
    values = data.draw(st.lists(VALUES[kind], min_size=1, max_size=6))
    transform: Any = BucketTransform[Any](definition.buckets).transform(definition.bucket_column.type.iceberg)
    many = keys.buckets(definition, arrow(definition, [(value,) for value in values])["c0"])
    days = [(value - date(1970, 1, 1)).days if isinstance(value, date) else value for value in values]
    assert many.tolist() == [keys.bucket_of(definition, value) for value in values]
    assert many.tolist() == [transform(value) for value in days]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.INT, "-7", -7),
        (Kind.LONG, "9223372036854775807", 2**63 - 1),
        (Kind.STRING, "", ""),
        (Kind.STRING, "7", "7"),
        (Kind.DATE, "2026-11-21", date(2026, 11, 21)),
        (Kind.UUID, "F79C3E09-677C-4BBD-A479-3F349CB785E7", UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7")),
        (Kind.BINARY, "AAE=", b"\x00\x01"),
    ],
)
def test_a_key_value_is_read_from_text(kind: Kind, text: str, value: object) -> None:
    assert keys.parse_value(table_of([kind]).key_columns[0], text) == value


@pytest.mark.parametrize(
    ("kind", "text", "says"),
    [
        (Kind.INT, "2147483648", "out of range"),
        (Kind.INT, "1.0", "not an integer"),
        (Kind.INT, "+1", "not an integer"),
        (Kind.INT, "٣", "not an integer"),
        (Kind.INT, " 1", "not an integer"),
        (Kind.LONG, "9223372036854775808", "out of range"),
        (Kind.LONG, "9" * 6000, "out of range"),
        (Kind.DATE, "2026-02-30", "not a date"),
        (Kind.UUID, "f79c3e09677c4bbda4793f349cb785e7", "not a UUID"),
        (Kind.BINARY, "AAE", "base64"),
    ],
)
def test_a_key_value_that_is_none_says_so_in_a_sentence(kind: Kind, text: str, says: str) -> None:
    with pytest.raises(ValueError, match=says) as raised:
        keys.parse_value(table_of([kind]).key_columns[0], text)
    article = "an" if kind is Kind.INT else "a"
    assert str(raised.value).startswith(f'c0 is {article} {kind}, and "{text}" is ')

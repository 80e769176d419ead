from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.thermocline.poison import CASES, GOOD_KEY, POISONED, TOMBSTONE, Case
from thermocline.rules import keys
from thermocline.rules.decode import (
    Stage,
    Unpacker,
    decoder_for,
    json_row,
    key_table,
    pack_rows,
    records_table,
    unpack_arrays,
)
from thermocline.rules.definition import LiveTable

DECODER = decoder_for(POISONED)
NULLS = dict.fromkeys(column.name for column in POISONED.value_columns)
GOOD = Case("good", GOOD_KEY, b'{"text":"fine"}', {"text": "fine"})


def decode_one(case: Case) -> dict[str, Any] | str:
    """What a record decodes to, in the corpus's words."""
    decoded = DECODER.decode([case.key], [case.value])
    assert len(decoded.good) + len(decoded.bad) == 1
    if decoded.bad:
        assert decoded.bad[0].reason
        return str(decoded.bad[0].stage)
    assert (decoded.columns["app_id"][0], decoded.columns["user_id"][0]) == case.key_columns
    if decoded.tombstones[0]:
        assert all(decoded.columns[name] == [None] for name in NULLS)
        return TOMBSTONE
    return {name: decoded.columns[name][0] for name in NULLS if decoded.columns[name][0] is not None}


def is_bad(case: Case) -> bool:
    return isinstance(case.expected, str) and case.expected in set(Stage)


def test_the_poison_corpus_names_each_case_once() -> None:
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name[:60])
def test_a_record_decodes_by_the_record_rule(case: Case) -> None:
    found = decode_one(case)
    assert found == case.expected
    assert repr(found) == repr(case.expected)  # the type, a decimal's scale and the sign of zero count too


def test_poison_never_touches_its_neighbours() -> None:
    """Every case stands between two good records, all in one chunk; the good ones stay whole and in place."""
    mixed = [record for case in CASES for record in (GOOD, case)] + [GOOD]
    decoded = DECODER.decode([case.key for case in mixed], [case.value for case in mixed])
    bad = {record.index: str(record.stage) for record in decoded.bad}
    assert sorted([*decoded.good, *bad]) == list(range(len(mixed)))
    assert decoded.good == sorted(decoded.good)
    assert bad == {i: case.expected for i, case in enumerate(mixed) if is_bad(case)}
    for position, index in enumerate(decoded.good):
        case = mixed[index]
        assert decoded.tombstones[position] == (case.expected == TOMBSTONE)
        row = {name: decoded.columns[name][position] for name in NULLS}
        assert row == (NULLS | case.expected if isinstance(case.expected, dict) else NULLS)
        assert (decoded.columns["app_id"][position], decoded.columns["user_id"][position]) == case.key_columns


def test_every_good_record_of_the_corpus_survives_arrow_and_the_hot_tiers_payload() -> None:
    good = [case for case in CASES if not is_bad(case)]
    decoded = DECODER.decode([case.key for case in good], [case.value for case in good])
    offsets = list(range(100, 100 + len(good)))
    table = records_table(POISONED, decoded, "poisoned", 3, offsets, [1_700_000_000_123] * len(good))
    assert table.schema == POISONED.records_schema
    assert table["text"].to_pylist() == decoded.columns["text"]
    assert table["at"].to_pylist() == decoded.columns["at"]
    assert table["price"].to_pylist() == decoded.columns["price"]
    assert table["id"].to_pylist() == [None if v is None else v.bytes for v in decoded.columns["id"]]
    payloads = pack_rows(POISONED, decoded)
    live = [payload for payload in payloads if payload]
    kept = [not tombstone for tombstone in decoded.tombstones]
    expected = [[v for v, keep in zip(decoded.columns[name], kept, strict=True) if keep] for name in NULLS]
    assert list(map(Unpacker(POISONED).unpack, live)) == list(zip(*expected, strict=True))
    arrays = unpack_arrays(POISONED, pa.array(live, pa.binary()), NULLS)
    assert arrays == {name: table[name].filter(pa.array(kept)).combine_chunks() for name in NULLS}
    assert [bool(payload) for payload in payloads] == kept


def test_an_empty_chunk_decodes_to_nothing() -> None:
    decoded = DECODER.decode([], [])
    assert (decoded.good, decoded.bad, decoded.tombstones) == ([], [], [])
    assert list(decoded.columns) == [column.name for column in POISONED.columns]
    assert records_table(POISONED, decoded, "t", 0, [], []).schema == POISONED.records_schema
    assert pack_rows(POISONED, decoded) == []
    unpacked = unpack_arrays(POISONED, pa.array([], pa.binary()), NULLS)
    assert [(name, array.type, len(array)) for name, array in unpacked.items()] == [
        (column.name, column.type.arrow, 0) for column in POISONED.value_columns
    ]


def test_records_table_takes_offsets_times_and_keys_of_the_good_records_only() -> None:
    keys_ = [GOOD_KEY, b"bad", b'{"app_id":-1,"user_id":"z"}', GOOD_KEY]
    decoded = DECODER.decode(keys_, [b"{}", b"{}", None, b'{"small":true}'])
    table = records_table(POISONED, decoded, "poisoned", 5, [10, 11, 12, 13], [1000, 2000, 3000, 4000])
    assert table["_kafka_topic"].to_pylist() == ["poisoned", "poisoned"]
    assert table["_kafka_partition"].to_pylist() == [5, 5]
    assert table["_kafka_offset"].to_pylist() == [10, 12]
    assert table["_kafka_timestamp"].cast(pa.int64()).to_pylist() == [1_000_000, 3_000_000]
    assert table["_tombstone"].to_pylist() == [False, True]
    assert table["_key"].to_pylist() == [keys.encode_one(POISONED, k) for k in ((7, "u1"), (-1, "z"))]


KEYED_BY_VALUE = LiveTable.build(
    name="orders",
    identifier="app.orders",
    topics=["orders"],
    key=["id"],
    key_from="value",
    columns={"id": "long", "state": "string"},
)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (None, b'{"id":1,"state":"new"}', (1, "new")),
        (b"anything, \xff", b'{"id":1}', (1, None)),
        (b'{"id":2}', b'{"id":1}', (1, None)),
        (b'{"id":1}', None, Stage.KEY),
        (b'{"id":1}', b"", Stage.KEY),
        (None, b'{"state":"new"}', Stage.KEY),
        (None, b'{"id":null}', Stage.KEY),
        (None, b'{"id":"1"}', Stage.KEY),
        (None, b'{"id":1,"state":2}', Stage.CONTRACT),
        (None, b"[1]", Stage.DECODE),
    ],
)
def test_a_key_in_the_value_is_read_there_only(key: bytes | None, value: bytes | None, expected: Any) -> None:
    decoded = decoder_for(KEYED_BY_VALUE).decode([key], [value])
    if decoded.bad:
        assert decoded.bad[0].stage == expected
    else:
        assert (decoded.columns["id"][0], decoded.columns["state"][0]) == expected


def test_a_table_of_key_columns_alone_keeps_its_rows_and_tombstones_apart() -> None:
    members = LiveTable.build(name="m", identifier="app.m", topics=["m"], key=["a"], columns={"a": "string"})
    decoded = decoder_for(members).decode([b'{"a":"x"}', b'{"a":"y"}'], [b"{}", None])
    payloads = pack_rows(members, decoded)
    assert [bool(payload) for payload in payloads] == [True, False]
    assert Unpacker(members).unpack(payloads[0]) == ()
    assert unpack_arrays(members, pa.array(payloads[:1]), []) == {}


def test_columns_may_have_any_name() -> None:
    odd = LiveTable.build(
        name="odd",
        identifier="app.odd",
        topics=["odd"],
        key=["the id"],
        columns={"the id": "int", "a näme": "string", "class": "int"},
    )
    decoded = decoder_for(odd).decode([b'{"the id":1}'], [b'{"a n\xc3\xa4me":"x","class":2}'])
    assert decoded.columns == {"the id": [1], "a näme": ["x"], "class": [2]}


def test_a_row_as_json_is_readable_by_people_and_services() -> None:
    row = {
        "at": datetime(2026, 11, 21, 9, 33, 0, 123_000, tzinfo=UTC),
        "day": date(2026, 11, 21),
        "price": Decimal("1.50"),
        "id": UUID("f79c3e09-677c-4bbd-a479-3f349cb785e7"),
        "raw": b"\x00\x01",
        "none": None,
    }
    assert json_row(row) == (
        b'{"at":"2026-11-21T09:33:00.123000Z","day":"2026-11-21","price":"1.50",'
        b'"id":"f79c3e09-677c-4bbd-a479-3f349cb785e7","raw":"AAE=","none":null}'
    )


@given(
    st.lists(st.tuples(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=40)), max_size=8)
)
def test_any_bytes_give_a_row_or_a_reason(records: list[tuple[bytes | None, bytes | None]]) -> None:
    decoded = DECODER.decode([key for key, _ in records], [value for _, value in records])
    assert sorted([*decoded.good, *(bad.index for bad in decoded.bad)]) == list(range(len(records)))
    assert all(len(column) == len(decoded.good) for column in decoded.columns.values())


ROWS = st.fixed_dictionaries(
    {
        "small": st.none() | st.integers(-(2**31), 2**31 - 1),
        "large": st.none() | st.integers(-(2**63), 2**63 - 1),
        "text": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "ratio": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "price": st.none() | st.decimals(-(10**8) + 1, 10**8 - 1, places=2),
        "active": st.none() | st.booleans(),
        "day": st.none() | st.dates(),
        "at": st.none() | st.datetimes(timezones=st.just(UTC)),
        "id": st.none() | st.uuids(),
        "raw": st.none() | st.binary(),
    }
)


@given(ROWS)
def test_what_json_row_writes_decodes_to_the_same_row(row: dict[str, Any]) -> None:
    decoded = DECODER.decode([GOOD_KEY], [json_row(row)])
    assert decoded.bad == []
    assert {name: decoded.columns[name][0] for name in row} == row


def unpacks_to_its_columns(rows: list[dict[str, Any]], type_: pa.DataType, cut: int) -> None:
    """Whatever was packed comes back as the columns that ingest makes of the same records."""
    decoded = DECODER.decode([GOOD_KEY] * len(rows), [json_row(row) for row in rows])
    assert decoded.bad == []
    expected = records_table(POISONED, decoded, "t", 0, range(len(rows)), [0] * len(rows)).slice(cut)
    payloads = pa.array(pack_rows(POISONED, decoded), type_).slice(cut)
    assert unpack_arrays(POISONED, payloads, NULLS) == {
        name: expected[name].combine_chunks() for name in NULLS
    }


@given(st.lists(ROWS, max_size=8), st.sampled_from([pa.binary(), pa.large_binary()]), st.integers(0, 2))
def test_payloads_unpack_to_the_columns_that_were_packed(
    rows: list[dict[str, Any]], type_: pa.DataType, cut: int
) -> None:
    unpacks_to_its_columns(rows, type_, cut)


def test_payloads_unpack_at_every_size_that_the_format_tells_apart() -> None:
    lengths = [0, 1, 11, 12, 13, 31, 32, 255, 256, 65_535, 65_536]
    edges = [2**bits for bits in (5, 7, 8, 15, 16, 31, 32, 62)]
    numbers = [sign * (edge + by) for edge in edges for sign in (1, -1) for by in (-1, 0, 1)]
    seconds = [-1, 0, 2**32 - 1, 2**32, 2**34 - 1, 2**34]
    times = [datetime(1970, 1, 1, 0, 0, 0, micro, UTC) + timedelta(0, s) for s in seconds for micro in (0, 7)]
    unpacks_to_its_columns(
        [
            *({"text": "é" * length, "raw": b"\x00" * length} for length in lengths),
            *({"large": number} for number in [0, *numbers]),
            *({"at": time} for time in [*times, datetime.min.replace(tzinfo=UTC)]),
            *({"price": Decimal(text)} for text in ("0.00", "-0.01", "12345678.90")),
        ],
        pa.binary(),
        0,
    )


def test_only_the_columns_that_are_wanted_are_unpacked() -> None:
    decoded = DECODER.decode([GOOD_KEY], [GOOD.value])
    payloads = pa.array(pack_rows(POISONED, decoded))
    assert list(unpack_arrays(POISONED, payloads, ["text", "app_id"])) == ["text"]


def test_a_payload_of_another_shape_is_refused() -> None:
    with pytest.raises(msgspec.MsgspecError):
        Unpacker(POISONED).unpack(b"\x91\x01")
    for cells in (b"\xc0" * (len(NULLS) + 1), b"\x91" * len(NULLS)):
        with pytest.raises(AssertionError):
            unpack_arrays(POISONED, pa.array([b"\x9a" + cells]), [])


EVENTS = LiveTable.build(
    name="events",
    identifier="app.events",
    topics=["events"],
    key=[],
    key_from="value",
    columns={"user_id": "string", "amount": "int"},
)


def test_without_a_key_columns_come_from_the_value_and_only_an_empty_value_is_bad() -> None:
    """The record's key is not looked at; null and missing columns are null, as outside any key."""
    values = [b'{"user_id":"a","amount":1}', b"{}", None, b"", b'{"amount":"x"}', b"[]", b'{"user_id":null}']
    decoded = decoder_for(EVENTS).decode([b"not json", None, b"{}", None, None, None, None], values)
    assert decoded.good == [0, 1, 6]
    assert decoded.columns == {"user_id": ["a", None, None], "amount": [1, None, None]}
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [
        (2, Stage.DECODE),
        (3, Stage.DECODE),
        (4, Stage.CONTRACT),
        (5, Stage.DECODE),
    ]


@pytest.mark.parametrize("definition", [EVENTS, POISONED], ids=["without a key", "with a key"])
def test_ingest_and_the_hot_tier_identify_a_row_by_the_same_bytes(definition: LiveTable) -> None:
    """Also where bad records lie between: offsets are those of the whole chunk."""
    values = [b'{"user_id":"a"}', b"[", b'{"user_id":"b"}']
    decoded = decoder_for(definition).decode([GOOD_KEY] * 3, values)
    table = records_table(definition, decoded, "events", 3, [7, 8, 11], [0, 0, 0])
    identified = key_table(definition, decoded, "events", [3, 3, 3], [7, 8, 11])
    assert identified.column_names == list(definition.identity)
    assert table.column("_key").to_pylist() == keys.encode_table(definition, identified).to_pylist()
    if not definition.has_key:
        found = [keys.decode_one(definition, key) for key in table.column("_key").to_pylist()]
        assert found == [("events", 3, 7), ("events", 3, 11)]


def of_formats(columns: dict[str, Any], **choices: Any) -> LiveTable:
    settings = {"key": ["id"], "columns": columns} | choices
    return LiveTable.build(name="plain", identifier="app.plain", topics=["plain"], **settings)


@pytest.mark.parametrize(
    ("key_format", "type_", "key", "expected"),
    [
        ("string", "string", "ü1".encode(), "ü1"),
        ("string", "int", b"-7", -7),
        ("string", "long", b"9223372036854775807", 2**63 - 1),
        ("string", "date", b"2026-02-28", date(2026, 2, 28)),
        ("string", "uuid", b"00000000-0000-0000-0000-00000000000a", UUID(int=10)),
        ("uuid", "uuid", b"00000000-0000-0000-0000-00000000000A", UUID(int=10)),
        ("int", "int", b"\xff\xff\xff\xfe", -2),
        ("int", "long", b"\x00\x00\x00\x07", 7),
        ("long", "long", b"\x80" + bytes(7), -(2**63)),
        ("bytes", "binary", b"\x00\xff", b"\x00\xff"),
        ("bytes", "uuid", bytes(15) + b"\x01", UUID(int=1)),
    ],
)
def test_a_plain_key_is_one_column(key_format: str, type_: str, key: bytes, expected: Any) -> None:
    definition = of_formats({"id": type_, "name": "string"}, key_format=key_format)
    decoded = decoder_for(definition).decode([key, key], [b'{"name":"Ann"}', None])
    assert decoded.bad == []
    assert decoded.columns == {"id": [expected, expected], "name": ["Ann", None]}
    assert decoded.tombstones == [False, True]


@pytest.mark.parametrize(
    ("key_format", "type_", "good", "bad"),
    [
        ("string", "string", b"1", b"\xff"),
        ("string", "string", b"1", None),
        ("string", "int", b"7", b"07"),
        ("string", "int", b"7", b"2147483648"),
        ("string", "int", b"7", b""),
        ("string", "uuid", b"00000000-0000-0000-0000-000000000001", b"a"),
        ("int", "int", bytes(4), b"1"),
        ("int", "int", bytes(4), b""),
        ("long", "long", bytes(8), bytes(4)),
        ("bytes", "uuid", bytes(16), bytes(15)),
        ("bytes", "binary", b"\x00", None),
    ],
)
def test_a_plain_key_that_is_none_spoils_only_its_record(
    key_format: str, type_: str, good: bytes, bad: bytes | None
) -> None:
    definition = of_formats({"id": type_, "name": "string"}, key_format=key_format)
    decoded = decoder_for(definition).decode([good, bad, good], [b"{}"] * 3)
    assert decoded.good == [0, 2]
    assert [(one.index, one.stage) for one in decoded.bad] == [(1, Stage.KEY)]
    assert decoded.bad[0].reason


@pytest.mark.parametrize(
    ("key_format", "type_", "empty"), [("string", "string", ""), ("bytes", "binary", b"")]
)
def test_an_empty_key_is_one_where_it_can_be(key_format: str, type_: str, empty: object) -> None:
    definition = of_formats({"id": type_, "name": "string"}, key_format=key_format)
    decoded = decoder_for(definition).decode([b"", b"", None], [b'{"name":"a"}', None, b"{}"])
    assert decoded.columns == {"id": [empty, empty], "name": ["a", None]}
    assert decoded.tombstones == [False, True]
    assert [(one.index, one.reason) for one in decoded.bad] == [(2, "the record has no key")]


JSON_KEY = b'{"id":"k"}'
WHOLE = "not one JSON object: "
HALF = "it has half a surrogate pair, which is no character (an emoji that was cut in two?)"
REASONS: list[tuple[bytes, bytes, str]] = [
    (
        b"u1-and-more-than-twenty",
        b"{}",
        WHOLE + 'it begins "u1-and-more-than-twe…"; for plain text set key_format = "string"',
    ),
    (b"u1", b"{}", WHOLE + 'it begins "u1"; for plain text set key_format = "string"'),
    (b"7", b"{}", WHOLE + 'it is a number by itself; for single values set key_format, such as "string"'),
    (b"", b"{}", "the record's key is empty"),
    (JSON_KEY, b" \n", WHOLE + "it is blank"),
    (JSON_KEY, b"null", WHOLE + "it is the text null; a delete is a record without a value"),
    (
        JSON_KEY,
        b"\xef\xbb\xbf{}",
        WHOLE + "it begins with a byte order mark (UTF-8), which JSON doesn't have",
    ),
    (
        JSON_KEY,
        bytes([0, 0, 0, 0, 7]) + b"{}",
        WHOLE + "it begins with a zero byte and the schema id 7, as schema registries' serializers do; "
        'set format = "avro", "protobuf" or "json_schema"',
    ),
    (JSON_KEY, b'{"x":NaN}', WHOLE + "it has NaN, which is no JSON number; write null, or a string"),
    (
        JSON_KEY,
        b'{"x":-Infinity}',
        WHOLE + "it has -Infinity, which is no JSON number; write null, or a string",
    ),
    (
        JSON_KEY,
        b'[{"name":"a"}]',
        WHOLE + 'it is an array by itself; for single values set format, such as "string"',
    ),
    (
        JSON_KEY,
        b"{'name':'a'}",
        WHOLE + "Expecting property name enclosed in double quotes: line 1 column 2 (char 1); "
        "it begins \"{'name':'a'}\"",
    ),
    (JSON_KEY, b'{"name":"\\ud83d"}', WHOLE + HALF),
    (JSON_KEY, b'{"x":"\\ud83d"}', WHOLE + HALF),
    (
        JSON_KEY,
        b'{"name":{"$oid":"5f"}}',
        (
            "name (string): Expected `string | null`, got `object`: it is MongoDB's extended JSON; "
            'set path = "name.$oid", or use a json column'
        ),
    ),
]


@pytest.mark.parametrize(("key", "value", "reason"), REASONS, ids=[repr(value) for _, value, _ in REASONS])
def test_a_record_is_refused_in_the_words_of_its_writer(key: bytes, value: bytes, reason: str) -> None:
    definition = of_formats({"id": "string", "name": "string"})
    (bad,) = decoder_for(definition).decode([key], [value]).bad
    assert bad.reason == reason


def test_a_plain_value_may_be_empty_and_only_none_deletes() -> None:
    definition = of_formats({"id": "string", "text": "string"}, key_format="string", format="string")
    decoded = decoder_for(definition).decode([b"a", b"b", b"c"], [b"", None, b"\xff"])
    assert decoded.columns == {"id": ["a", "b"], "text": ["", None]}
    assert decoded.tombstones == [False, True]
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(2, Stage.CONTRACT)]


NESTED = of_formats(
    {
        "id": "string",
        "city": {"type": "string", "path": "address.city"},
        "zip": {"type": "int", "path": "address.zip.code"},
        "address": "json",
        "label": {"type": "string", "path": ["a.b"]},
        "tags": "json",
    },
    key_format="string",
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"{}", {}),
        (b'{"address":null}', {}),
        (b'{"address":{"city":null,"zip":null}}', {"address": '{"city":null,"zip":null}'}),
        (
            b'{"address": {"city":"Oslo", "zip":{"code":7,"x":[]}}, "a.b":"l", "tags":[1, "\\u00fc"]}',
            {
                "city": "Oslo",
                "zip": 7,
                "address": '{"city":"Oslo", "zip":{"code":7,"x":[]}}',
                "label": "l",
                "tags": '[1, "\\u00fc"]',
            },
        ),
        (b'{"tags":"t","a":{"b":"other"}}', {"tags": '"t"'}),
        (b'{"address":{"city":1,"city":"last"}}', {"city": "last", "address": '{"city":1,"city":"last"}'}),
        (b'{"address":1,"address":{"city":"last"}}', {"city": "last", "address": '{"city":"last"}'}),
        (b'{"address":{"zip":{"code":1}},"address":null}', {}),
        (b'{"address":"Oslo"}', Stage.CONTRACT),
        (b'{"address":[]}', Stage.CONTRACT),
        (b'{"address":{"city":7}}', Stage.CONTRACT),
        (b'{"address":{"zip":7}}', Stage.CONTRACT),
        (b'{"address":{"zip":{"code":"7"}}}', Stage.CONTRACT),
        (b'{"tags":[1,}', Stage.DECODE),
        (b'{"tags":"\xff"}', Stage.DECODE),
    ],
)
def test_columns_are_read_by_their_paths(value: bytes, expected: dict[str, Any] | Stage) -> None:
    """Method: with a good record before and after it, which must not be touched."""
    decoded = decoder_for(NESTED).decode([b"1", b"2", b"3"], [b'{"address":{"city":"A"}}', value, b"{}"])
    assert decoded.columns["city"][0] == "A"
    if isinstance(expected, Stage):
        assert [(bad.index, bad.stage) for bad in decoded.bad] == [(1, expected)]
        return
    assert decoded.bad == []
    found = {name: values[1] for name, values in decoded.columns.items() if values[1] is not None}
    assert found == {"id": "2"} | expected


def test_what_is_no_object_on_the_way_is_named() -> None:
    (bad,) = decoder_for(NESTED).decode([b"1"], [b'{"address":{"zip":7}}']).bad
    assert bad.reason == "address.zip: not one JSON object: Expected `object`, got `integer`"


def test_a_path_alone_reads_as_the_shared_one_does() -> None:
    """Goal: whether another column reads the object around it, too, makes no difference."""
    columns = {"id": "string", "city": {"type": "string", "path": "address.city"}}
    alone = decoder_for(of_formats(columns, key_format="string"))
    shared = decoder_for(of_formats({**columns, "address": "json"}, key_format="string"))
    texts = [
        b'{"address":%s}' % one
        for one in (
            b"null",
            b"{}",
            b'{"city":"A"}',
            b'{"city":1}',
            b"1",
            b'"x"',
            b"[]",
            b'{"city":1,"city":null}',
        )
    ]
    found = []
    for decoder in (alone, shared):
        decoded = decoder.decode([b"k"] * len(texts), texts)
        found.append((decoded.good, decoded.columns["city"], [bad.index for bad in decoded.bad]))
    assert found[0] == found[1]


def test_a_key_column_may_have_a_path_in_the_value() -> None:
    definition = of_formats(
        {"id": {"type": "int", "path": "user.id"}, "name": {"type": "string", "path": "user.name"}},
        key_from="value",
    )
    texts = [
        b'{"user":{"id":7,"name":"Ann"}}',
        b'{"user":{"name":"Ann"}}',
        b'{"user":null}',
        b"{}",
        b'{"user":1}',
    ]
    decoded = decoder_for(definition).decode([None] * 5, texts)
    assert decoded.columns == {"id": [7], "name": ["Ann"]}
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(index, Stage.KEY) for index in range(1, 5)]


def test_a_column_from_a_header_is_null_without_it_and_its_last_value_else() -> None:
    columns = {"id": "string", "raw": {"type": "binary", "header": "h"}, "n": {"type": "int", "header": "n"}}
    decoder = decoder_for(of_formats(columns, key_format="string"))
    headers: list[list[tuple[str, bytes | None]] | None] = [
        None,
        [("h", b"\xff"), ("other", b"x")],
        [("n", b"1"), ("n", b"2")],
        [("n", b"1"), ("n", None)],
        [("n", b"x")],
        [("n", b"x")],
    ]
    decoded = decoder.decode([b"k"] * 6, [b"{}"] * 5 + [None], headers.__getitem__)
    assert [(bad.index, bad.stage) for bad in decoded.bad] == [(4, Stage.CONTRACT)]
    assert decoded.columns["raw"] == [None, b"\xff", None, None, None]
    assert decoded.columns["n"] == [None, None, 2, None, None]
    assert decoded.tombstones == [False, False, False, False, True]


@pytest.mark.parametrize("key_from", ["key", "value"])
def test_a_column_without_a_field_is_absent_and_one_that_is_null_is_not(key_from: str) -> None:
    """Also by path: an object that is null makes its columns null, one without the field leaves them."""
    table = LiveTable.build(
        name="t",
        identifier="a.t",
        topics=["t"],
        key=["k"],
        key_from=key_from,
        columns={
            "k": "string",
            "v": "long",
            "city": {"type": "string", "path": "address.city"},
            "zip": {"type": "int", "path": "address.zip"},
            "address": "json",
            "source": {"type": "string", "header": "source"},
        },
        partial_updates=True,
    )
    said = {
        b'{"k":"a","v":null,"address":{"city":"Oslo","zip":null}}': (),
        b'{"k":"a","address":{"zip":1}}': ("v", "city"),
        b'{"k":"a","address":null}': ("v",),
        b'{"k":"a","v":1,"v":2}': ("city", "zip", "address"),
        b'{"k":"a"}': ("v", "city", "zip", "address"),
    }
    bad = [b'{"k":"a","v":"x"}', b"[]", b"{", b'{"k":"a","address":7}']
    decoded = decoder_for(table).decode([b'{"k":"a"}'] * 9, [*said, *bad])
    assert [one.index for one in decoded.bad] == [5, 6, 7, 8]
    assert decoded.absent == list(said.values())
    assert decoded.columns["source"] == [None] * 5  # set by each record, and absent from none
    for place, absent in enumerate(said.values()):
        assert all(decoded.columns[name][place] is None for name in absent)


def test_a_delete_leaves_no_column_as_it_is() -> None:
    table = LiveTable.build(
        name="t",
        identifier="a.t",
        topics=["t"],
        key=["k"],
        columns={"k": "string", "v": "long"},
        delete_when={"path": "op", "values": ["D"]},
        partial_updates=True,
    )
    values = [b'{"op":"D"}', None, b'{"op":"U"}']
    decoded = decoder_for(table).decode([b'{"k":"a"}'] * 3, values)
    assert decoded.tombstones == [True, True, False]
    assert decoded.absent == [(), (), ("v",)]


def test_a_delete_that_can_not_be_told_names_the_field_of_the_rule() -> None:
    table = LiveTable.build(
        name="t", identifier="a.t", topics=["t"], key=["k"], columns={"k": "string", "v": "long"},
        delete_when={"path": "meta.op", "values": ["D"]},
    )  # fmt: skip
    decoded = decoder_for(table).decode([b'{"k":"a"}'], [b'{"v":1,"meta":{"op":1}}'])
    (bad,) = decoded.bad
    assert bad.reason == "delete_when (meta.op): Expected `string | null`, got `integer`"


@pytest.mark.parametrize(
    ("key_from", "key", "value", "expected"),
    [
        ("key", b'{"a":1,"b":"x"}', b'{"n":"no number"}', (1, "x")),
        ("key", b'{"a":1,"b":"x"}', b"no JSON", (1, "x")),
        ("key", b'{"a":"one","b":"x"}', b'{"n":1}', None),
        ("key", b"no JSON", b'{"n":1}', None),
        ("key", None, b'{"n":1}', None),
        ("value", None, b'{"a":1,"b":"x","n":"no number"}', None),
        ("value", None, b"no JSON", None),
    ],
)
def test_a_bad_record_says_of_which_key_it_is_where_that_could_be_read(
    key_from: str, key: bytes | None, value: bytes, expected: tuple[Any, ...] | None
) -> None:
    definition = LiveTable.build(
        name="t", identifier="app.t", topics=["t"], key=["a", "b"], key_from=key_from,
        columns={"a": "int", "b": "string", "n": "int"},
    )  # fmt: skip
    (bad,) = decoder_for(definition).decode([key], [value]).bad
    assert bad.key == expected

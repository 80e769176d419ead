"""Trino's SQL judges records as ``thermocline.rules.decode`` does: record by record, value by value."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from trino.exceptions import TrinoUserError

from tests.thermocline.poison import CASES, GOOD_KEY, POISONED
from tests.views.trino.any_records import any_document
from tests.views.trino.conftest import ADMIN, TrinoSite
from tests.views.trino.raw_records import Record, read_by_decode, read_in_trino, write_raw
from thermocline.rules.definition import LiveTable
from thermocline.rules.seam import Seam
from thermocline.views.render_window import LogWindow

pytestmark = [pytest.mark.trino, pytest.mark.full]

CORPUS: list[Record] = [(case.key, case.value) for case in CASES]
RANDOM_RECORDS = 20_000
MESSAGE_BYTES_MAX = 4_000_000  # the corpus has a document of a megabyte

KEYED_BY_VALUE = LiveTable.build(
    name="by_value",
    identifier="app.by_value",
    topics=["by_value"],
    key=["id", "day", "raw", "large", "text"],
    entity=["id"],
    key_from="value",
    columns={column.name: column.type.declared for column in POISONED.columns},
)
WITHOUT_KEY = LiveTable.build(
    name="appended",
    identifier="app.appended",
    topics=["appended"],
    key=[],
    key_from="value",
    columns={column.name: column.type.declared for column in POISONED.columns},
)
DECIMALS = LiveTable.build(
    name="decimals",
    identifier="app.decimals",
    topics=["decimals"],
    key=["app_id"],
    columns={
        "app_id": "int",
        "whole": "decimal(38,0)",
        "part": "decimal(38,38)",
        "money": "decimal(20,4)",
        "tiny": "decimal(1,0)",
        "tenth": "decimal(1,1)",
        "at_s": {"type": "timestamptz", "epoch": "s"},
        "at_us": {"type": "timestamptz", "epoch": "us"},
    },
)
SLASHED = LiveTable.build(
    name="slashed",
    identifier="app.slashed",
    topics=["slashed"],
    key=["id"],
    columns={"id": "int", "a/b": "decimal(10,2)"},
)
ODD_NAMES = LiveTable.build(
    name="odd_names",
    identifier="app.odd_names",
    topics=["odd_names"],
    key=["a.b"],
    columns={
        "a.b": "string",
        "two words": "int",
        "Grün €😀": "int",
        "$[0]": "int",
        "5": "int",
        "select": "int",
        "x]": "int",
        "*": "int",
        "Upper": "int",
        "{": "int",
        "-- no comment": "int",
    },
)

NESTED = LiveTable.build(
    name="nested",
    identifier="app.nested",
    topics=["nested"],
    key=["id"],
    key_format="string",
    columns={
        "id": "string",
        "city": {"type": "string", "path": "address.city"},
        "zip": {"type": "int", "path": "address.zip.code"},
        "price": {"type": "decimal(6,2)", "path": "terms.price"},
        "fee": {"type": "decimal(6,2)", "path": "charge"},
        "label": {"type": "string", "path": ["a.b"]},
    },
)
NESTED_RECORDS: list[Record] = [
    *((key, b"{}") for key in (b"a", "ü 1".encode(), b"\xff", b'{"id":1}', b"null", b" ")),
    (b"deleted", None),
    *(
        (b"k", value)
        for value in (
            b'{"address":null}',
            b'{"address":{}}',
            b'{"address":{"city":"Oslo","zip":{"code":7}},"terms":{"price":1.10},"a.b":"l","charge":"2.5"}',
            b'{"address":{"city":7}}',
            b'{"address":{"zip":{"code":"7"}}}',
            b'{"address":{"zip":7}}',
            b'{"address":{"zip":null}}',
            b'{"address":"Oslo"}',
            b'{"address":[{"city":"Oslo"}]}',
            b'{"address":1}',
            b'{"address":false}',
            b'{"address":{"city":1,"city":"last"}}',
            b'{"address":1,"address":{"city":"last"}}',
            b'{"address":{"city":"first"},"address":{"zip":{"code":1}}}',
            b'{"address":{"city":"first"},"address":null}',
            b'{"terms":{"price":1.005}}',
            b'{"terms":{"price":12345678901234567890}}',
            b'{"terms":{"price":1e2},"price":3,"charge":1e-2}',
            b'{"terms":{"price":"9999.99"},"charge":0.30}',
            b'{"terms":{"price":1.5,"price":2.5}}',
            b'{"terms":{"terms":{"price":1.5}}}',
            b'{"\\u0061ddress":{"\\u0063ity":"escaped"}}',
            b'{"a":{"b":"other"},"a.b":null}',
            b'{"Address":{"city":"Oslo"}}',
            b'{"x":1,"y":[]}',
            b'{"x":1,"charge":null}',
            b'{"x":null}',
        )
    ),
]


def differences(found: dict[int, Any], expected: dict[int, Any], records: list[Record]) -> list[object]:
    """Every record that one of both has otherwise, as the record, Trino's row and decode's."""
    return [
        (records[place], found.get(place), expected.get(place))
        for place in range(len(records))
        if found.get(place) != expected.get(place)
    ]


def test_trino_reads_the_poison_corpus_as_decode_does(site: TrinoSite) -> None:
    found = read_in_trino(site, POISONED, write_raw(site, "corpus", CORPUS))
    assert differences(found, read_by_decode(POISONED, CORPUS), CORPUS) == []
    assert 0 < len(found) < len(CORPUS)


def test_trino_fails_where_decode_reads_by_a_schema_and_reads_what_only_looks_alike(site: TrinoSite) -> None:
    good = b'{"address":{"city":"Oslo"}}'
    alike: list[Record] = [
        (b"k", text)
        for text in (
            b'{"schema":"v1","payload":{"address":null}}',
            b'{"schema":[],"payload":{"address":null}}',
            b'{"schema":{}}',
            b'{"schema":null,"payload":null,"a.b":"x"}',
            b'{"schema":{},"payload":{}',
            b'{"address":{"city":"{\\"schema\\":null,\\"payload\\":null}"}}',
            good,
        )
    ]
    found = read_in_trino(site, NESTED, write_raw(site, "alike", alike))
    assert found == read_by_decode(NESTED, alike)
    assert found[6][2] == "Oslo"
    whole = [
        b'{"schema":null,"payload":null}',
        b'{"schema":{"type":"struct"},"payload":{}}',
        b'{"schema" : {}, "\\u0070ayload":1}',
    ]
    for number, value in enumerate(whole):
        query = write_raw(site, f"whole_{number}", [(b"k", good), (b"k", value)])
        with pytest.raises(TrinoUserError, match="have their schema beside them"):
            read_in_trino(site, NESTED, query)
    keys: list[Record] = [(GOOD_KEY, None), (b'{"schema":null,"payload":' + GOOD_KEY + b"}", None)]
    with pytest.raises(TrinoUserError, match="have their schema beside them"):
        read_in_trino(site, POISONED, write_raw(site, "whole_key", keys))


def test_trino_reads_plain_keys_and_fields_by_path_as_decode_does(site: TrinoSite) -> None:
    found = read_in_trino(site, NESTED, write_raw(site, "nested", NESTED_RECORDS))
    assert differences(found, read_by_decode(NESTED, NESTED_RECORDS), NESTED_RECORDS) == []
    assert 0 < len(found) < len(NESTED_RECORDS)


@pytest.mark.parametrize("key", [b"", None])
def test_trino_refuses_to_answer_where_a_plain_key_is_empty_or_missing(
    site: TrinoSite, key: bytes | None
) -> None:
    records = write_raw(site, f"empty_{key is None}".lower(), [(b"a", b"{}"), (key, b"{}")])
    with pytest.raises(TrinoUserError, match="whose key is empty or missing"):
        read_in_trino(site, NESTED, records)


def test_the_kafka_connector_hands_over_the_same_bytes(site: TrinoSite) -> None:
    """Goal: what the other tests read from Parquet stands for what Trino reads from Kafka.

    The corpus, and empty or missing keys and values, go through a real topic; all bytes and rows are equal.
    """
    records: list[Record] = [*CORPUS, (b"", b"{}"), (None, b""), (GOOD_KEY, None), (b"\xff\x00", b"\x00")]
    site.kafka.create_topic("corpus", 1, {"max.message.bytes": str(MESSAGE_BYTES_MAX)})
    producer = Producer(
        {"bootstrap.servers": site.kafka.bootstrap_servers, "message.max.bytes": MESSAGE_BYTES_MAX}
    )
    for key, value in records:
        producer.produce("corpus", key=key, value=value)
        producer.flush()
    site.kafka_catalog("kafka_corpus", ["corpus"])
    window = LogWindow("kafka_corpus", ("corpus",), Seam())
    from_kafka, from_parquet = window.records(), write_raw(site, "corpus_again", records)
    assert from_kafka is not None
    raw = [
        site.query(
            f"SELECT _partition_offset, to_hex(to_utf8(_key)), _key_length, to_hex(to_utf8(_message)), "
            f"_message_length FROM ({side}) ORDER BY 1",
            user=ADMIN,
        )
        for side in (from_kafka, from_parquet)
    ]
    assert raw[0] == raw[1]
    assert [bytes.fromhex(row[3] or "") for row in raw[0]] == [value or b"" for _, value in records]
    found = read_in_trino(site, POISONED, from_kafka)
    assert differences(found, read_by_decode(POISONED, records), records) == []


@pytest.mark.parametrize(
    "definition", [POISONED, KEYED_BY_VALUE, WITHOUT_KEY, DECIMALS], ids=lambda definition: definition.name
)
def test_trino_reads_any_record_as_decode_does(site: TrinoSite, definition: LiveTable) -> None:
    seed = Random().randrange(1 << 32)
    print(f"seed {seed}")
    random = Random(seed)
    names = [column.name for column in definition.columns]
    keys = [GOOD_KEY, GOOD_KEY, GOOD_KEY, None]
    records: list[Record] = []
    for _ in range(RANDOM_RECORDS):
        key = (
            any_document(random, list(definition.key) or names)
            if random.random() < 0.2
            else random.choice(keys)
        )
        about = [random.choice(names)] if random.random() < 0.6 else names
        value = any_document(random, about)
        if definition.key_from == "value" and definition.has_key and random.random() < 0.7:
            value = value[:-1] + (b"," if value[-2:] != b"{}" else b"") + KEY_FIELDS + b"}"
        records.append((key, value))
    found = read_in_trino(site, definition, write_raw(site, f"any_{definition.name}", records))
    assert differences(found, read_by_decode(definition, records), records) == []
    assert RANDOM_RECORDS / 50 < len(found) < RANDOM_RECORDS


KEY_FIELDS = (
    b'"id":"f79c3e09-677c-4bbd-a479-3f349cb785e7","day":"2026-11-21","raw":"AAECAw==","large":-5,'
    b'"text":"\\u00e4 x\\""'
)


def test_columns_of_any_name_are_read(site: TrinoSite) -> None:
    names = [column.name for column in ODD_NAMES.columns[1:]]
    records: list[Record] = [
        (b'{"a.b":"k","a":{"b":"no"}}', json.dumps({name: place}).encode())
        for place, name in enumerate(names)
    ]
    records += [(b'{"a":{"b":"k"}}', b"{}"), (b'{"a.b":"k"}', b'{"upper":1,"two":{"words":1}}')]
    found = read_in_trino(site, ODD_NAMES, write_raw(site, "odd_names", records))
    assert found == read_by_decode(ODD_NAMES, records)
    assert [found[place][place + 2] for place in range(len(names))] == list(map(str, range(len(names))))


def test_of_several_numbers_by_one_name_the_last_counts_to_its_last_digit(site: TrinoSite) -> None:
    """Whatever the name is spelled like, and wherever else it stands."""
    exact, long = "0.1", "0.1000000000000000000001"
    texts = [
        *(f'{{"price":{first},"price":{second}}}' for first, second in ((exact, long), (long, exact))),
        *(f'{{"price":{first},"\\u0070rice":{second}}}' for first, second in ((exact, long), (long, exact))),
        *(f'{{"\\u0070rice":{first},"price":{second}}}' for first, second in ((exact, long), (long, exact))),
        *(
            f'{{"other":{{"price":{first}}},"price":{second}}}'
            for first, second in ((exact, long), (long, exact))
        ),
        *(f'{{"price":{number},"text":"\\"price\\":1.5"}}' for number in (exact, long)),
        *(f'{{"text":"price","price":{number}}}' for number in (exact, long)),
    ]
    records: list[Record] = [(GOOD_KEY, text.encode()) for text in texts]
    found = read_in_trino(site, POISONED, write_raw(site, "prices", records))
    assert found == read_by_decode(POISONED, records)
    assert set(found) == {1, 3, 5, 7, 8, 10}


def test_a_name_with_a_slash_is_found_however_it_is_escaped(site: TrinoSite) -> None:
    values = [
        r'{"a\/b":1.5,"a/b":2.5}',
        r'{"a/b":1.5,"a\/b":2.5}',
        r'{"a\/b":"x","a/b":2.5}',
        r'{"a\/b":"x"}',
    ]
    records: list[Record] = [(b'{"id":1}', value.encode()) for value in values]
    found = read_in_trino(site, SLASHED, write_raw(site, "slashed", records))
    assert found == read_by_decode(SLASHED, records)
    assert {place: row[2] for place, row in found.items()} == {0: "2.50", 1: "2.50", 2: "2.50"}

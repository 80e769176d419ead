"""Codes of reasons why records are bad: of real ones, and without anything that a record has."""

from __future__ import annotations

from typing import Any

import pytest

from thermocline.rules.bad_codes import MEANINGS, BadCode, coded
from thermocline.rules.decode import decoder_for
from thermocline.rules.definition import LiveTable

KEY = b'{"id":1}'
COLUMNS = {
    "id": "int",
    "id (old)": "int",
    "age": "int",
    "at": "timestamptz",
    "e": "decimal(9,2)",
    "l": "list<int>",
}


def table(**settings: Any) -> LiveTable:
    return LiveTable.build(
        name="t", identifier="app.t", topics=["t"], key=["id"], **{"columns": COLUMNS, **settings}
    )


def code_of(
    definition: LiveTable, value: bytes | None, key: bytes | None = KEY
) -> tuple[str, str, str | None]:
    (bad,) = decoder_for(definition, None).decode([key], [value]).bad
    code, column = coded(bad.reason, definition)
    return bad.stage.value, code.value, column


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (b"oops, my password", ("decode", "not-json", None)),
        (b"[1]", ("decode", "not-json", None)),
        (b'{"age":"secret"}', ("contract", "wrong-type", "age")),
        (b'{"age":12345678901}', ("contract", "wrong-value", "age")),
        (b'{"at":"yesterday"}', ("contract", "wrong-value", "at")),
        (b'{"e":"1.234"}', ("contract", "wrong-value", "e")),
        (b'{"l":[1,"x"]}', ("contract", "wrong-type", "l")),
        (b'{"id (old)":"x"}', ("contract", "wrong-type", "id (old)")),
        (b'{"zzz":1}', ("contract", "no-field", None)),
    ],
)
def test_a_value_that_is_bad_has_a_code_and_its_column(
    value: bytes, expected: tuple[str, str, str | None]
) -> None:
    assert code_of(table(), value) == expected


def test_a_key_that_is_bad_has_a_code() -> None:
    assert code_of(table(), b"{}", None) == ("key", "no-key", None)
    assert code_of(table(), b"{}", b"") == ("key", "no-key", None)
    assert code_of(table(), b"{}", b"x") == ("key", "not-json", None)
    assert code_of(table(), b"{}", b"{}") == ("key", "missing", "id")
    assert code_of(table(), b"{}", b'{"id":"a"}') == ("key", "wrong-type", "id")


def test_events_deletes_and_sizes_have_codes_of_their_own() -> None:
    event = b'{"op":"zz","after":null}'
    assert code_of(table(envelope="debezium"), event) == ("decode", "not-an-event", None)
    assert code_of(table(envelope="debezium"), b'{"op":"c"}') == ("decode", "not-an-event", None)
    deletes = table(delete_when={"path": "op", "values": ["D"]})
    assert code_of(deletes, b'{"op":5}') == ("contract", "delete-when", None)
    small = table(record_bytes_max=1000)
    assert code_of(small, b'"%s"' % (b"x" * 2000)) == ("decode", "too-large", None)


def test_a_reason_that_is_not_known_names_no_column_and_no_value() -> None:
    assert coded("something new about ada@example.com", table()) == (BadCode.OTHER, None)
    assert coded("ages: 7", table()) == (BadCode.OTHER, None), "no column's name, though it begins as one"
    assert coded("schema 17 can't be compiled: x", table()) == (BadCode.SCHEMA, None)
    assert coded("no schema has the id 17", table()) == (BadCode.SCHEMA, None)


def test_every_code_has_its_meaning() -> None:
    assert set(MEANINGS) == set(BadCode)

from __future__ import annotations

import asyncio
import random
from typing import Any
from urllib.parse import parse_qsl

import pytest

from thermocline.errors import BadParameter
from thermocline.rules.definition import LiveTable
from thermocline.serving.http.requests import JsonRequest, _pairs, entities_of, entity_of_query


def test_a_query_string_without_anything_to_unquote_is_split_as_the_library_does(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(5_000):
        query = "".join(chance.choice("ab=&;+7.,#/?") for _ in range(chance.randrange(12)))
        assert _pairs(query) == parse_qsl(query, keep_blank_values=True)


TEXTS = LiveTable.build(
    name="texts", identifier="app.texts", topics=["texts"], key=["a"], columns={"a": "string"}
)


@pytest.mark.timeout(20)
def test_a_parameter_given_twice_is_found_among_very_many() -> None:
    """Comparing each with all before it would take the event loop for minutes."""
    names = [f"a{number}" for number in range(200_000)]
    with pytest.raises(BadParameter, match="a199999: it is given twice"):
        entity_of_query(TEXTS, "&".join([*names, names[-1]]).encode())


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7.0", 7),
        ("-651.000", -651),
        ("1.5e1", 15),
        ("9007199254740993.0", 9_007_199_254_740_993),
        ("9223372036854775807.0", 2**63 - 1),
    ],
)
def test_an_integer_with_a_point_in_a_batch_is_that_integer_and_no_other(text: str, number: int) -> None:
    table = LiveTable.build(name="t", identifier="app.t", topics=["t"], key=["a"], columns={"a": "long"})
    (with_a_point,) = entities_of(table, [_decoded(text)])
    (without,) = entities_of(table, [{"a": number}])
    assert with_a_point == without


@pytest.mark.parametrize("text", ["7.5", "1e19", "1e300", "9223372036854775807.5", "1e-99999999999999999999"])
def test_a_number_that_is_no_integer_of_the_column_is_refused(text: str) -> None:
    table = LiveTable.build(name="t", identifier="app.t", topics=["t"], key=["a"], columns={"a": "long"})
    with pytest.raises(BadParameter):
        entities_of(table, [_decoded(text)])


def _decoded(text: str) -> Any:
    async def body() -> Any:
        return {"type": "http.request", "body": b'{"a": %b}' % text.encode(), "more_body": False}

    return asyncio.run(JsonRequest({"type": "http", "method": "POST", "headers": []}, body).json())

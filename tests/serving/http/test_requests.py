from __future__ import annotations

import random
from urllib.parse import parse_qsl

import pytest

from thermocline.errors import BadParameter
from thermocline.rules.definition import LiveTable
from thermocline.serving.http.requests import _pairs, entity_of_query


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

from __future__ import annotations

import random
from urllib.parse import parse_qsl

from serving.requests import _pairs


def test_a_query_string_without_anything_to_unquote_is_split_as_the_library_does(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(5_000):
        query = "".join(chance.choice("ab=&;+7.,#/?") for _ in range(chance.randrange(12)))
        assert _pairs(query) == parse_qsl(query, keep_blank_values=True)

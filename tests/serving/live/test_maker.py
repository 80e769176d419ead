"""Snapshots as of now of a real table: what PyIceberg reads of one is what lookups give."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.serving.live.real_table import RealTable


def test_x(real_table: Callable[..., RealTable], seed: int) -> None:
    chance = random.Random(seed)
    table = real_table()
    for _ in range(6):
        for _ in range(40):
            number = chance.randrange(30)
            value = None if chance.random() < 0.25 else {"value": f"{chance.random()}"}
            table.produce(number, value)
        assert table.read() == table.world.rows()
        if chance.random() < 0.5:
            table.commit()

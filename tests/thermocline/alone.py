"""What holds of every decoder: nothing raises, no record is lost, and none touches another."""

from __future__ import annotations

from thermocline.rules.decode import Decoder


def alone_and_together_are_the_same(decoder: Decoder, key: bytes | None, values: list[bytes]) -> None:
    """Nothing raises, good + bad = given, and no record touches another."""
    together = decoder.decode([key] * len(values), values)
    assert sorted([*together.good, *(bad.index for bad in together.bad)]) == list(range(len(values)))
    rows = [[column[place] for column in together.columns.values()] for place in range(len(together.good))]
    found = {bad.index: (bad.stage, bad.reason) for bad in together.bad} | dict(
        zip(together.good, rows, strict=True)
    )
    for index, value in enumerate(values):
        alone = decoder.decode([key], [value])
        one = (
            (alone.bad[0].stage, alone.bad[0].reason)
            if alone.bad
            else [column[0] for column in alone.columns.values()]
        )
        assert repr(one) == repr(found[index]), value

"""The feed of a hot tier: what it knows of records that are not the table's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from thermocline.kafka.facts import RecordChunk
from thermocline.rules.definition import LiveTable
from thermocline.rules.seam import Seam
from thermocline.serving.tail.feed import Feed

ORDERS = LiveTable.build(
    name="orders",
    identifier="app.orders",
    topics=["shop"],
    key=["id"],
    columns={"id": "int", "v": "string"},
    where={"field": "type", "is": "order"},
)


def chunk_of(first: int, *types: str) -> RecordChunk:
    keys: list[bytes | None] = [b'{"id":%d}' % number for number in range(len(types))]
    values: list[bytes | None] = [b'{"type":"%s"}' % one.encode() for one in types]
    return RecordChunk("shop", 0, keys, values, list(range(first, first + len(types))), [0] * len(types))


def test_a_seam_counts_as_further_on_where_nothing_behind_it_is_the_tables() -> None:
    """Goal: a table whose records come seldom is not behind, while ingest puts off its next commit."""
    tier: Any = SimpleNamespace(end=Seam.of({"shop": {0: 10, 1: 7}}))

    def append(_: object, positions: Seam, __: object) -> None:
        tier.end = tier.end.advanced({(topic, p): offset for topic, p, offset in positions.items()})

    tier.append = append
    feed = Feed(tier, ORDERS)
    seam = tier.end
    assert feed.reached(seam) == seam
    feed.take([chunk_of(10, "line", "line")], Seam.of({"shop": {0: 12}}), {})
    assert feed.reached(seam) == Seam.of({"shop": {0: 12, 1: 7}})
    assert feed.reached(Seam.of({"shop": {0: 9}})) == Seam.of({"shop": {0: 9}})  # who knows what it had there
    feed.take([chunk_of(12, "line", "order")], Seam.of({"shop": {0: 14}}), {})
    assert feed.reached(seam) == seam
    feed.take([chunk_of(14, "line")], Seam.of({"shop": {0: 15}}), {})
    assert feed.reached(seam) == seam
    assert feed.reached(Seam.of({"shop": {0: 14, 1: 7}})) == Seam.of({"shop": {0: 15, 1: 7}})

"""Differences on compacted topics: what compaction explains is not called one, and nothing else is let go."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping

import pytest

from tests.verify.story import definition_of
from thermocline.kafka.facts import RecordChunk
from thermocline.rules.keys import encode_one
from thermocline.rules.seam import Seam
from thermocline.verify.finding import Finding
from thermocline.verify.report import Report
from thermocline.verify.row_judge import Reason
from thermocline.verify.unconfirmed import Origin, UnconfirmedFindings, offsets_of

KEY = b"k"
DIFFERS = Finding("extract-differs", "it differs", {"user": "k"})
AT = ("t", 0)
END = Seam({AT: 10})


@pytest.mark.parametrize(
    ("compacted", "origin", "offsets", "is_reported"),
    [
        (set(), None, {(AT, 12)}, True),
        (set(), (AT, 7), set(), True),
        ({"t"}, (AT, 7), {(AT, 7)}, True),
        ({"t"}, (AT, 7), {(AT, 12)}, False),
        ({"t"}, None, {(AT, 9)}, True),
        ({"t"}, None, {(AT, 10)}, False),
        ({"another"}, (AT, 7), set(), True),
        ({"another"}, None, {(AT, 12)}, True),
    ],
    ids=[
        "nothing is ever dropped",
        "nor what a row comes from",
        "the row's record is there",
        "the row's record was dropped for a newer one",
        "no newer record",
        "a newer record",
        "another topic's row",
        "a newer record in a topic that keeps all",
    ],
)
def test_what_compaction_explains_is_not_judged(
    compacted: set[str], origin: Origin | None, offsets: set[Origin], is_reported: bool
) -> None:
    report = Report("t")
    unconfirmed = UnconfirmedFindings(compacted, is_by_value=False, report=report)
    unconfirmed.take(DIFFERS, KEY, origin, END)

    def look(keys: Collection[bytes]) -> Mapping[bytes, Collection[Origin]]:
        assert keys == {KEY}
        return {KEY: offsets}

    unconfirmed.settle(look)
    assert report.counts == ({"extract-differs": 1} if is_reported else {})
    assert report.unjudged == ({} if is_reported else {Reason.COMPACTED: 1})
    unconfirmed.settle(look)
    assert report.counts.total() + report.unjudged.total() == 1, "nothing is counted twice"


def test_where_compaction_goes_by_another_key_what_lacks_is_not_judged() -> None:
    report = Report("t")
    unconfirmed = UnconfirmedFindings({"t"}, is_by_value=True, report=report)
    unconfirmed.take(DIFFERS, KEY, None, END)
    unconfirmed.settle(lambda _: {})
    assert report.agrees


def test_the_second_look_sees_bad_records_of_the_keys_too() -> None:
    """A bad record is a reason for compaction to drop a good one."""
    definition = definition_of()
    keys = [json.dumps({"user": user}).encode() for user in ("a", "b", "a", "c")] + [b"{"]
    chunk = RecordChunk("scores", 0, list(keys), [b"{", b"{}", None, None, None], [3, 4, 5, 6, 7], [0] * 5)
    a, b = encode_one(definition, ["a"]), encode_one(definition, ["b"])
    found = offsets_of(definition, iter([chunk]), [a, b])
    assert found == {a: {(("scores", 0), 3), (("scores", 0), 5)}, b: {(("scores", 0), 4)}}

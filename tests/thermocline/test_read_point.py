from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thermocline.errors import BadParameter, NotReady
from thermocline.rules.definition import LiveTable
from thermocline.rules.read_point import ReadPoint, check_topics, parse_read_after
from thermocline.rules.seam import Seam

POINT = ReadPoint(123, Seam.of({"profiles": {0: 100}}), Seam.of({"profiles": {0: 120}}))
SEAMS = st.dictionaries(
    st.tuples(st.sampled_from(["a", "b.c-d_e"]), st.integers(0, 80)), st.integers(0, 2**63 - 1)
).map(Seam)


def test_a_read_point_is_shown_as_answers_carry_it() -> None:
    expected = {"snapshot_id": "123", "seam": {"profiles": {"0": 100}}, "end": {"profiles": {"0": 120}}}
    assert POINT.to_dict() == expected
    assert POINT.to_header() == (
        '{"snapshot_id":"123","seam":{"profiles":{"0":100}},"end":{"profiles":{"0":120}}}'
    )


@given(st.integers(0, 2**63 - 1), SEAMS, SEAMS)
def test_a_read_point_reads_back_from_its_header(snapshot_id: int, seam: Seam, end: Seam) -> None:
    point = ReadPoint(snapshot_id, seam, end)
    assert ReadPoint.parse(point.to_header()) == point
    assert "\n" not in point.to_header()


@pytest.mark.parametrize(
    "text",
    [
        *("", "null", "[]", "{}", "123", '{"snapshot_id":"1"}', "[" * 100_000),
        '{"snapshot_id":1,"seam":{},"end":{}}',
        '{"snapshot_id":"x","seam":{},"end":{}}',
        '{"snapshot_id":"1","seam":[],"end":{}}',
        '{"snapshot_id":"1","seam":{"t":{"0":"5"}},"end":{}}',
        '{"snapshot_id":"1","seam":{"t":5},"end":{}}',
    ],
)
def test_what_is_no_read_point_is_the_callers_error(text: str) -> None:
    with pytest.raises(BadParameter) as raised:
        ReadPoint.parse(text)
    assert raised.value.name == "read_point"


def test_read_after_names_records_of_partitions() -> None:
    assert parse_read_after("profiles/0@42") == {("profiles", 0): 42}
    assert parse_read_after(" a.b-c_d/1@0,a/2@7 ") == {("a.b-c_d", 1): 0, ("a", 2): 7}


def test_of_one_partitions_records_the_last_is_waited_for() -> None:
    assert parse_read_after("t/0@42, t/0@7") == {("t", 0): 42}


@pytest.mark.parametrize(
    "text",
    ["", ",", "t", "t/0", "t@1", "t/0@", "t/x@1", "t/0@-1", "t/-1@1", "t/0@1;t/1@1", "t/0@1,", "t/٣@1"],
)
def test_what_names_no_record_is_the_callers_error(text: str) -> None:
    with pytest.raises(BadParameter) as raised:
        parse_read_after(text)
    assert raised.value.name == "Thermocline-Read-After"


def test_too_many_records_to_wait_for_are_the_callers_error() -> None:
    with pytest.raises(BadParameter, match="more than 1000"):
        parse_read_after(",".join(f"t/{partition}@1" for partition in range(1001)))


def test_a_record_of_a_topic_that_a_pattern_is_to_find_can_be_waited_for_again() -> None:
    table = LiveTable.build(
        name="t",
        identifier="app.t",
        topics=["log.1"],
        topic_patterns=[r"log\.\d+"],
        key=["id"],
        columns={"id": "int"},
    )
    check_topics(table, {("log.1", 0): 5})
    with pytest.raises(NotReady, match=r"topic log\.2 is not part of it yet, or has left it"):
        check_topics(table, {("log.2", 0): 5})
    with pytest.raises(BadParameter, match="not fed from topic other"):
        check_topics(table, {("other", 0): 5})

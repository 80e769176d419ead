"""One row against records of its key, where the log of a topic was replaced."""

from __future__ import annotations

from dataclasses import replace

from tests.verify.story import definition_of
from thermocline.iceberg.reading import Incarnation, Reading
from thermocline.rules.seam import Seam
from thermocline.verify.log_decode import CERTAIN
from thermocline.verify.row_judge import JudgeContext, LastRecord, Reason, Stored, judge

DEFINITION = definition_of()
A, B = ("a", 0), ("b", 0)


def test_a_row_of_a_log_that_was_replaced_is_not_called_older_than_a_record_of_another_topic() -> None:
    """Method: topic a was read to 100, lost its end, and is read again from 80 on; the row is of before."""
    incarnations = {A: Incarnation(80, 2, (80, 90)), B: Incarnation(0, 0, (0, 10, 10, 10))}
    reading = Reading(
        Seam({A: 90, B: 10}),
        incarnations,
        [DEFINITION] * 4,
        [DEFINITION],
        is_whole=True,
        replaced=frozenset({"a"}),
    )
    context = JudgeContext(reading, {A: 80, B: 0}, set(), set(), [False])
    record = LastRecord(B, 5, 0, 1, CERTAIN, False, (1,), 0)
    verdict = judge([record], [Stored(A, 50, 0, (2,))], context)
    assert verdict.reason is Reason.REPLACED


def test_between_partitions_times_count_only_where_the_log_holds_what_they_follow_from() -> None:
    """Method: both partitions have a record of the key; the log of the one with the row is cut, or not."""
    incarnations = {A: Incarnation(0, 0, (0, 10)), B: Incarnation(0, 0, (0, 10))}
    reading = Reading(Seam({A: 10, B: 10}), incarnations, [DEFINITION] * 2, [DEFINITION], is_whole=True)
    said = [LastRecord(place, 5, 3_000, 1, CERTAIN, False, (1,), at) for place, at in ((A, 3), (B, 4))]
    for first, code in ((0, "row-stale"), (2, "")):
        context = JudgeContext(reading, {A: first, B: 0}, set(), set(), [False])
        assert judge(said, [Stored(A, 5, 3_000, (1,))], context).code == code


def test_a_row_of_a_topic_that_left_is_not_judged_where_a_pattern_finds_such_topics() -> None:
    """Method: the log has a record of the key in another topic; nobody knows which of the two was last."""
    record = LastRecord(B, 5, 0, 1, CERTAIN, False, (1,), 0)
    for patterns, said in (("a.?",), (Reason.LEFT, "")), ((), (None, "row-beyond-seam")):
        definition = replace(DEFINITION, topics=("b",), topic_patterns=patterns)
        reading = Reading(
            Seam({B: 10}), {B: Incarnation(0, 0, (0, 10))}, [definition] * 2, [definition], is_whole=True
        )
        context = JudgeContext(reading, {B: 0}, set(), set(), [False])
        verdict = judge([record], [Stored(A, 50, 0, (2,))], context)
        assert (verdict.reason, verdict.code) == said
        assert judge([record], [], context).if_keys_stay is bool(patterns)

"""Bad records before a batch commits: what stops it, and what a dead letter says. Without Kafka."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ingest.bad_records import RATIO_BAD_RECORDS_MIN, BadRecordsPolicy, check_bearable, dead_letter
from ingest.read_task import FirstBad, ReadReport
from thermocline.definition import OnError
from thermocline.errors import BadRecord, TooManyBadRecords

QUARANTINE = OnError.parse("quarantine")


def policy(
    on_error: OnError = QUARANTINE, ratio_max: float = 0.5, count_max: int | None = None
) -> BadRecordsPolicy:
    return BadRecordsPolicy("profiles", on_error, ratio_max, count_max, None)


def report(read: int, offset: int = 0, **bad: int) -> ReadReport:
    firsts = {stage: FirstBad("profiles", 0, offset + i, stage, "why") for i, stage in enumerate(bad)}
    return ReadReport(covered=[], records=read, bad=bad, first_bad=firsts)


def test_a_stage_that_fails_stops_on_its_first_record_and_other_stages_do_not() -> None:
    fail_on_keys = policy(OnError.parse({"key": "fail", "contract": "skip"}))
    check_bearable(fail_on_keys, [report(10, decode=3, contract=4)])
    with pytest.raises(BadRecord) as bad:
        check_bearable(fail_on_keys, [report(10, 50, decode=1, key=1), report(10, 20, decode=3, key=2)])
    assert (bad.value.offset, bad.value.stage) == (21, "key")


def test_the_count_is_of_the_whole_batch_and_of_all_stages() -> None:
    reports = [report(1_000, decode=3), report(1_000, contract=2)]
    check_bearable(policy(count_max=5), reports)
    with pytest.raises(TooManyBadRecords) as stop:
        check_bearable(policy(count_max=4), reports)
    assert (stop.value.bad, stop.value.read) == (5, 2_000)
    assert stop.value.stages == ("2 at contract", "3 at decode")
    assert stop.value.limits == ("errors_count_max = 4",)
    assert "profiles/0@0 (contract): why" in stop.value.cause


def test_the_ratio_counts_once_enough_records_are_bad() -> None:
    few = RATIO_BAD_RECORDS_MIN - 1
    check_bearable(policy(), [report(few, key=few)])
    check_bearable(policy(), [report(200, key=100)])
    with pytest.raises(TooManyBadRecords) as stop:
        check_bearable(policy(), [report(199, key=100)])
    assert stop.value.limits == ("errors_ratio_max = 0.5",)
    check_bearable(policy(ratio_max=1.0), [report(199, key=199)])


def test_skipped_records_count_for_the_breakers() -> None:
    with pytest.raises(TooManyBadRecords):
        check_bearable(policy(OnError.parse("skip"), count_max=0), [report(1, key=1)])


def test_a_dead_letter_is_the_record_with_our_headers_after_its_own() -> None:
    row = {
        "topic": "profiles",
        "topic_id": "id",
        "partition": 3,
        "offset": 7,
        "timestamp": datetime(2026, 3, 1, 12, 0, 0, 123_000, UTC),
        "stage": "decode",
        "reason": "not one JSON object",
        "key": b"k",
        "value": None,
        "headers": [{"name": "trace", "value": b"\xff"}, {"name": "none", "value": None}],
    }
    letter = dead_letter("profiles", row)
    assert (letter.key, letter.value, letter.place) == (b"k", None, "profiles/3@7")
    assert letter.headers == (
        ("trace", b"\xff"),
        ("none", None),
        ("thermocline.table", b"profiles"),
        ("thermocline.topic", b"profiles"),
        ("thermocline.topic-id", b"id"),
        ("thermocline.partition", b"3"),
        ("thermocline.offset", b"7"),
        ("thermocline.timestamp", b"2026-03-01T12:00:00.123+00:00"),
        ("thermocline.stage", b"decode"),
        ("thermocline.reason", b"not one JSON object"),
    )

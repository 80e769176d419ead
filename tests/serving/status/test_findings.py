"""Findings: what a person is told of a table, and the command that goes with it."""

from __future__ import annotations

from typing import Any

import pytest

from thermocline.serving.status.document import (
    DebtStatus,
    Freshness,
    IngestStatus,
    OwnerStatus,
    RecordsStatus,
    StandbyStatus,
)
from thermocline.serving.status.findings import findings_of, is_bad_bucket, verdict_of
from thermocline.serving.status.words import ago, bytes_text, duration, moment, share, until

FRESH = Freshness(age_seconds=0.02, stale=False, stale_after_seconds=5)
OWNER = OwnerStatus(host="a", pid=1, epoch=1, since="", renewed="", lease_seconds=60, is_gone=False)


def told(**more: Any) -> list[tuple[str, str, str]]:
    given: dict[str, Any] = {
        "problem": "",
        "tailer": {},
        "freshness": FRESH,
        "ingest": IngestStatus(lag_records=3, lag_seconds=60.0, interval_seconds=60),
        "owner": OWNER,
        "records": RecordsStatus(),
        "debt": None,
    } | more
    return [(one.level, one.text, one.next) for one in findings_of("orders", **given)]


def test_what_an_owner_left_is_one_word_of_the_command_that_is_printed() -> None:
    stopped = OWNER.model_copy(update={"stopped_by": "x; rm -r ~", "stopped_because": "?"})
    assert [step for _, _, step in told(owner=stopped)] == ["`thermocline explain 'x; rm -r ~'`"]


def test_a_table_that_is_well_has_no_findings() -> None:
    assert told() == []
    assert verdict_of(()).text == "is well"


def test_each_thing_that_is_wrong_is_said_with_what_to_do() -> None:
    stale = Freshness(age_seconds=41, stale=True, stale_after_seconds=5)
    down = {"problem": {"code": "kafka-unreachable", "what": "Kafka is down.", "next": "start it\nor wait"}}
    assert told(freshness=stale, tailer=down) == [
        (
            "trouble",
            "is stale: answers are 41 s old, and 5 s are allowed: [kafka-unreachable] Kafka is down.",
            "start it",
        )
    ]
    behind = IngestStatus(lag_records=1_200, lag_seconds=200, interval_seconds=60)
    assert told(ingest=behind) == [
        (
            "attention",
            "is behind: 1,200 records wait to be committed, for 3 min",
            "`thermocline ingest plan orders`",
        )
    ]
    gone = OWNER.model_copy(update={"is_gone": True})
    assert told(owner=gone) == [
        (
            "trouble",
            "is not ingested: process 1 on a is gone without a word",
            "`thermocline ingest run orders`",
        )
    ]
    standby = StandbyStatus(host="b", pid=2, since="", renewed="")
    assert told(owner=gone.model_copy(update={"standby": standby})) == [
        ("attention", "is being taken over by a standby: process 2 on b", "`thermocline status`")
    ]
    assert told(owner=OWNER.model_copy(update={"standby": standby})) == []
    ended = OWNER.model_copy(update={"ended": "2026-01-01T00:00:00+00:00"})
    assert told(owner=ended) == [
        (
            "attention",
            "has had no owner since 2026-01-01 00:00:00 UTC",
            "`thermocline ingest run orders`",
        )
    ]
    refused = RecordsStatus(refused=100, refused_more=True)
    assert told(records=refused) == [
        ("attention", "refused 100 records or more since the last commit", "`thermocline refused orders`")
    ]


def test_the_worst_comes_first() -> None:
    worn = DebtStatus(
        files=300,
        bytes=1,
        rows=1,
        dead_rows=1,
        worst_dead_share=0.1,
        worst_files=201,
        buckets=1,
        bad_buckets=1,
    )
    levels = [level for level, _, _ in told(debt=worn, problem="it is gone")]
    assert levels == ["trouble", "attention"]


@pytest.mark.parametrize(
    ("files", "rows", "dead", "is_bad"),
    [(200, 100, 0, False), (201, 100, 0, True), (1, 75, 25, False), (1, 74, 26, True), (0, 0, 0, False)],
)
def test_a_bad_bucket_is_one_that_an_alert_would_name(files: int, rows: int, dead: int, is_bad: bool) -> None:
    assert is_bad_bucket(files, rows, dead) is is_bad


def test_numbers_and_times_are_words() -> None:
    assert [duration(one) for one in (None, 0, 0.04, 1.24, 12.4, 300, 12_000, 90_000, 900_000)] == [
        *("not known", "0 s", "40 ms", "1.2 s", "12 s", "5 min", "3 h 20 min", "1 d 1 h", "10 d")
    ]
    assert [ago(1_000, now) for now in (1_500, 5_000, 13_000)] == ["just now", "4 s ago", "12 s ago"]
    assert [until(10_000, now) for now in (0, 9_500, 190_000)] == ["in 10 s", "due now", "due for 3 min"]
    assert moment(1_769_860_800_000) == "2026-01-31 12:00:00 UTC"
    assert moment(10**20) == "not known"
    assert [share(one) for one in (0, 0.001, 0.256)] == ["0 %", "under 1 %", "26 %"]
    assert [bytes_text(one) for one in (None, 999, 81_920, 5 * 10**12)] == [
        *("not known", "999 B", "81.9 kB", "5.0 TB")
    ]

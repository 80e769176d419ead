"""Bad records before a batch commits: what stops it, and what a dead letter says. Without Kafka."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.table import Table

from thermocline.errors import CatalogUnreachable, KafkaUnreachable, TooManyBadRecords
from thermocline.iceberg.catalog import open_catalog
from thermocline.ingest.batch.bad_records import (
    RATIO_BAD_RECORDS_MIN,
    BadRecordsPolicy,
    check_bearable,
    dead_letter,
    settle_bad_records,
)
from thermocline.ingest.batch.read_task import FirstBad, ReadReport
from thermocline.ingest.quarantine import SCHEMA, create_quarantine, open_quarantine, write_quarantine_file
from thermocline.kafka import dead_letters
from thermocline.kafka.dead_letters import DeadLetter
from thermocline.rules.contract.refusing import REFUSED
from thermocline.rules.definition import OnError
from thermocline.settings import CatalogSettings

QUARANTINE = OnError.parse("quarantine")
NOWHERE = {"bootstrap.servers": "127.0.0.1:1"}


def policy(
    on_error: OnError = QUARANTINE, ratio_max: float = 0.5, count_max: int | None = None
) -> BadRecordsPolicy:
    return BadRecordsPolicy("profiles", on_error, ratio_max, count_max, None)


def report(read: int, offset: int = 0, **bad: int) -> ReadReport:
    firsts = {stage: FirstBad("profiles", 0, offset + i, stage, "why") for i, stage in enumerate(bad)}
    return ReadReport(covered=[], records=read, bad=bad, first_bad=firsts)


def test_a_stage_that_fails_stops_on_its_records_and_other_stages_do_not() -> None:
    fail_on_keys = policy(OnError.parse({"key": "fail", "contract": "skip"}))
    check_bearable(fail_on_keys, [report(10, decode=3, contract=4)])
    with pytest.raises(TooManyBadRecords) as stop:
        check_bearable(fail_on_keys, [report(10, 50, decode=1, key=1), report(10, 20, decode=3, key=2)])
    assert stop.value.limits == ('on_error = "fail" for key',)
    assert stop.value.examples == ("profiles/0@21 (key): why", "profiles/0@51 (key): why")


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


def test_records_that_are_not_the_tables_do_not_make_its_share_of_bad_ones_small() -> None:
    others = ReadReport(covered=[], records=10_000, filtered=5_000, unmatched=4_900)
    check_bearable(policy(), [others, report(100, key=100)])
    with pytest.raises(TooManyBadRecords) as stop:
        check_bearable(policy(), [others, report(101, key=101)])
    assert (stop.value.read, stop.value.limits) == (10_101, ("errors_ratio_max = 0.5",))


def refused(read: int, refused: int, **bad: int) -> ReadReport:
    """With records of a schema that the contract quarantines, the first of all."""
    found = report(read, 10, **bad)
    found.bad["contract"] = found.bad.get("contract", 0) + refused
    found.first_bad["contract"] = FirstBad("profiles", 0, 0, "contract", f"{REFUSED} 2: field x is new")
    found.refused = refused
    return found


def test_records_that_the_contract_quarantines_are_no_broken_producer() -> None:
    check_bearable(policy(count_max=0), [refused(1_000, 1_000)])
    check_bearable(policy(), [refused(1_000, 1_000)])
    # Nor do they make the share of a broken one small: 150 of 200 others.
    with pytest.raises(TooManyBadRecords) as stop:
        check_bearable(policy(), [refused(1_200, 1_000, decode=150)])
    assert (stop.value.bad, stop.value.stages) == (150, ("150 at decode",))
    assert stop.value.examples == ("profiles/0@10 (decode): why",)
    check_bearable(policy(), [refused(1_200, 1_000, decode=100)])
    with pytest.raises(TooManyBadRecords) as stop:
        check_bearable(policy(count_max=2), [refused(1_000, 900, contract=3)])
    assert (stop.value.bad, stop.value.limits) == (3, ("errors_count_max = 2",))


def test_but_a_stage_that_fails_stops_on_them_too() -> None:
    with pytest.raises(TooManyBadRecords) as stop:
        check_bearable(policy(OnError.parse({"contract": "fail"})), [refused(9, 2)])
    assert (stop.value.bad, stop.value.limits) == (2, ('on_error = "fail" for contract',))


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


# The quarantine and the dead-letter topic, in which order

WITH_LETTERS = BadRecordsPolicy("profiles", QUARANTINE, 0.5, None, "letters")


@pytest.fixture
def quarantine(tmp_path: Path) -> Table:
    settings = CatalogSettings(uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path / "warehouse"))
    catalog = open_catalog(settings, may_create=True)
    catalog.create_namespace("app")
    create_quarantine(catalog, "app.profiles")
    return open_quarantine(catalog, "profiles", "app.profiles")


def folder(quarantine: Table) -> Path:
    return Path(quarantine.location().removeprefix("file://")) / "data"


def written(quarantine: Table, first: int = 0, partition: int = 0) -> ReadReport:
    """The report of a task that read ten records and wrote the first two of them as bad."""
    row = {"topic": "profiles", "topic_id": "id", "partition": partition, "stage": "decode", "reason": "why"}
    at = datetime(2026, 3, 1, tzinfo=UTC)
    rows = [row | {"offset": offset, "timestamp": at, "value": b"{"} for offset in (first, first + 1)]
    records = [pa.Table.from_pylist(rows, SCHEMA)]
    path = write_quarantine_file(quarantine.io, quarantine.location(), records)
    covered = [("profiles", partition, first, first + 10)]
    return ReadReport(covered, records=10, bad={"decode": 2}, quarantine_files=[path])


def test_while_dead_letters_cannot_be_sent_the_quarantine_does_not_grow(
    quarantine: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: an outage that lasts for hours, with an attempt every few seconds, leaves nothing behind."""
    monkeypatch.setattr(dead_letters, "DELIVERY_STALL_SECONDS", 0.2)
    for _ in range(2):
        with pytest.raises(KafkaUnreachable):
            settle_bad_records(WITH_LETTERS, [written(quarantine)], quarantine, NOWHERE)
        assert quarantine.refresh().current_snapshot() is None
        assert list(folder(quarantine).iterdir()) == []


def test_while_the_quarantine_cannot_be_loaded_attempts_leave_no_files(
    quarantine: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = written(quarantine)

    def away(*_: object) -> None:
        raise OSError("no answer")

    monkeypatch.setattr(quarantine.catalog, "load_table", away)
    with pytest.raises(CatalogUnreachable):
        settle_bad_records(policy(), [report], quarantine, NOWHERE)
    assert list(folder(quarantine).iterdir()) == []


def test_files_whose_commit_to_the_quarantine_has_an_unknown_outcome_stay(
    quarantine: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = written(quarantine)

    def lost(*_: object) -> None:
        raise OSError("no answer")

    monkeypatch.setattr(quarantine.catalog, "commit_table", lost)
    with pytest.raises(CatalogUnreachable):
        settle_bad_records(policy(), [report], quarantine, NOWHERE)
    assert len(list(folder(quarantine).iterdir())) == 1


@pytest.mark.parametrize("content", [None, b"", b"PAR1 and no more"], ids=["gone", "empty", "torn"])
def test_a_quarantine_file_that_cannot_be_read_for_its_letters_is_an_error_to_try_again(
    quarantine: Table, content: bytes | None
) -> None:
    report = written(quarantine)
    (file,) = folder(quarantine).iterdir()
    file.unlink() if content is None else file.write_bytes(content)
    with pytest.raises(CatalogUnreachable) as stop:
        settle_bad_records(WITH_LETTERS, [report], quarantine, NOWHERE)
    assert stop.value.retryable
    assert file.name in stop.value.uri
    assert stop.value.detail
    assert quarantine.refresh().current_snapshot() is None


def test_dead_letters_are_sent_in_the_order_of_the_log_whatever_task_ends_first(
    quarantine: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def send(config: object, table: str, topic: str, letters: Iterable[DeadLetter]) -> None:
        sent.extend(letter.place for letter in letters)

    monkeypatch.setattr("thermocline.ingest.batch.bad_records.send_dead_letters", send)
    reports = [written(quarantine, first, partition) for first, partition in ((10, 0), (0, 1), (0, 0))]
    settle_bad_records(WITH_LETTERS, [*reports, ReadReport([])], quarantine, NOWHERE)
    assert sent == [f"profiles/{place}" for place in ("0@0", "0@1", "0@10", "0@11", "1@0", "1@1")]
    assert quarantine.refresh().scan().count() == 6

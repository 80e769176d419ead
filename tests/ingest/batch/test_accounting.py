from __future__ import annotations

from thermocline.ingest.batch.accounting import Accounting, account, greatest_times, watermark_ms
from thermocline.ingest.batch.batch import BatchResult
from thermocline.ingest.batch.plan import Batch
from thermocline.ingest.batch.read_task import ReadReport
from thermocline.kafka.facts import OffsetRange, RecordChunk
from thermocline.rules.definition import OnError
from thermocline.rules.seam import Seam
from thermocline.upsert.bucket_task import BucketResult

QUARANTINE = OnError.parse("quarantine")


def result(read: int, bad: dict[str, int], applied: int, superseded: int, unchanged: int) -> BatchResult:
    report = ReadReport(covered=[], records=read, bad=bad)
    done = BucketResult(0, applied=applied, superseded=superseded, unchanged=unchanged)
    return BatchResult((report,), (done,))


def test_a_record_that_is_missing_or_counted_twice_leaves_the_accounting_open() -> None:
    assert account(result(10, {"key": 1}, 5, 3, 1), QUARANTINE).is_closed()
    assert not account(result(10, {"key": 1}, 5, 3, 0), QUARANTINE).is_closed()
    assert not account(result(10, {"key": 1}, 5, 3, 2), QUARANTINE).is_closed()


def test_bad_records_are_quarantined_or_skipped_as_the_table_says_of_their_stage() -> None:
    bad = {"key": 1, "decode": 2, "contract": 4}
    of_stages = OnError.parse({"decode": "skip", "contract": "fail"})
    assert account(result(7, bad, 0, 0, 0), QUARANTINE) == Accounting(read=7, quarantined=7)
    assert account(result(7, bad, 0, 0, 0), OnError.parse("skip")) == Accounting(read=7, skipped=7)
    assert account(result(7, bad, 0, 0, 0), of_stages) == Accounting(read=7, quarantined=5, skipped=2)


def test_the_watermark_is_the_oldest_partitions_last_record_unless_it_is_drained() -> None:
    batch = Batch(
        (), end=Seam.of({"t": {0: 10, 1: 10, 2: 10}}), log_ends=Seam.of({"t": {0: 10, 1: 50, 2: 10}})
    )
    reports = [ReadReport(covered=[], last_timestamps_ms={"t/0": 100, "t/1": 700})]
    assert watermark_ms(batch, reports, planned_at_ms=1_000, before_ms=5) == 700


def test_the_watermark_stays_where_a_lagging_partition_was_not_read() -> None:
    batch = Batch((), end=Seam.of({"t": {0: 10, 1: 10}}), log_ends=Seam.of({"t": {0: 10, 1: 50}}))
    assert watermark_ms(batch, [], planned_at_ms=1_000, before_ms=5) == 5


def chunk_of(topic: str, partition: int, times_ms: list[int]) -> RecordChunk:
    nothing: list[bytes | None] = [None] * len(times_ms)
    return RecordChunk(topic, partition, nothing, nothing, list(range(len(times_ms))), times_ms)


def test_a_partition_is_as_far_in_time_as_the_farthest_of_its_pieces() -> None:
    ranges = (OffsetRange("t", 0, 0, 10), OffsetRange("a/b", 1, 0, 5))
    reports = [ReadReport(covered=[]) for _ in range(3)]
    reports[0].took(chunk_of("t", 0, [700, 900]))
    reports[0].took(chunk_of("t", 0, [100]))
    reports[1].took(chunk_of("t", 0, [800]))
    reports[2].took(chunk_of("a/b", 1, [-1]))
    assert greatest_times(Batch(ranges, Seam(), Seam()), reports) == {("t", 0): 900, ("a/b", 1): -1}

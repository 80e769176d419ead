"""What the driver makes of what the tasks of a batch give."""

from __future__ import annotations

import pickle
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from tests.ingest.one_bucket import DEFINITION, records_of
from thermocline.errors import InternalError, RangeIncomplete, StorageFailed, TopicMissing
from thermocline.iceberg.data_file import WrittenFile
from thermocline.iceberg.files import Deletes
from thermocline.ingest.batch.batch import BatchResult, gather, gather_all
from thermocline.ingest.batch.read_task import PACKED_SCHEMA, REPORT_BUCKET, KafkaRanges, ReadReport, ReadTask
from thermocline.ingest.batch.scan import Scan, Share
from thermocline.ingest.engine import local
from thermocline.ingest.engine.local import LocalEngine
from thermocline.kafka.facts import OffsetRange
from thermocline.settings import CatalogSettings
from thermocline.upsert.bucket_task import BucketResult

PLANNED = [OffsetRange("profiles", 0, 10, 20), OffsetRange("profiles", 1, 0, 5)]
IO = PyArrowFileIO()
WHOLE = [("profiles", 1, 0, 5), ("profiles", 0, 10, 20)]


def reported(*reports: ReadReport) -> tuple[int, bytes]:
    return REPORT_BUCKET, msgspec.msgpack.encode(reports)


def test_a_batch_whose_ranges_were_all_covered_has_the_results_of_all_its_buckets() -> None:
    done = [BucketResult(bucket, applied=bucket) for bucket in (3, 5)]
    reports = [ReadReport(WHOLE[:1], records=4), ReadReport([]), ReadReport(WHOLE[1:], records=4)]
    results = [(one.bucket, msgspec.msgpack.encode(one)) for one in done]
    batch = gather([results[0], reported(*reports), results[1]], KafkaRanges([PLANNED]), IO, IO)
    assert (list(batch.reports), list(batch.buckets)) == (reports, done)


@pytest.mark.parametrize(
    "covered",
    [
        [],
        [("profiles", 1, 0, 5)],
        [("profiles", 1, 0, 5), ("profiles", 0, 10, 19)],
        [("profiles", 1, 0, 5), ("profiles", 0, 11, 20)],
        [("profiles", 1, 0, 5), ("others", 0, 10, 20)],
    ],
    ids=["nothing", "one partition", "not its end", "not its start", "another topic"],
)
def test_a_batch_with_a_hole_is_refused(covered: list[tuple[str, int, int, int]]) -> None:
    with pytest.raises(RangeIncomplete) as refused:
        gather([reported(ReadReport(covered))], KafkaRanges([PLANNED]), IO, IO)
    assert (refused.value.topic, refused.value.partition, refused.value.first) == ("profiles", 0, 10)


def test_what_ended_a_read_task_ends_the_batch_and_leaves_no_files_of_the_others(tmp_path: Path) -> None:
    """No table names these files, and the next attempt writes others: they would stay for ever."""
    error = pickle.dumps(TopicMissing(topic="profiles", bootstrap_servers="localhost:9092"))
    files = [tmp_path / name for name in ("data", "deletes", "quarantine")]
    for file in files:
        file.touch()
    data, deletes, bad = (file.as_uri() for file in files)
    added = WrittenFile(data, 1, 1, {}, {}, {})
    done = BucketResult(3, (added,), {"x": Deletes(deletes, "puffin", 0, 1, 1, 1)}, applied=1)
    reports = reported(ReadReport(WHOLE, quarantine_files=[bad]), ReadReport([], error=error))
    with pytest.raises(TopicMissing):
        gather([(3, msgspec.msgpack.encode(done)), reports], KafkaRanges([PLANNED]), IO, IO)
    assert list(tmp_path.iterdir()) == []


def test_no_file_stays_whatever_ends_a_batch_and_it_ends_no_other(tmp_path: Path) -> None:
    """Method: two tables share a scan; what one's worker says of its error can't be read."""
    done, results = [], []
    for share in (0, 1):
        (tmp_path / f"{share}").touch()
        added = WrittenFile((tmp_path / f"{share}").as_uri(), 1, 1, {}, {}, {})
        done.append(BucketResult(3, (added,), applied=1))
        error = None if share else b"no pickle"
        report = reported(ReadReport(WHOLE), ReadReport([], error=error))
        results += [(share, 3, msgspec.msgpack.encode(done[share])), (share, *report)]
    shares = [Share(ReadTask(DEFINITION, {}, IO, IO, "", {}), {}, "") for _ in (0, 1)]
    ended, whole = gather_all(results, Scan(KafkaRanges([PLANNED]), shares))
    assert isinstance(ended, InternalError)
    assert isinstance(whole, BatchResult)
    assert whole.buckets == (done[1],)
    assert [one.name for one in tmp_path.iterdir()] == ["1"]


def packed_record() -> pa.Table:
    """One record of bucket 1, as a read task gives it."""
    stream = pa.BufferOutputStream()
    records = records_of([(0, (1, "u", "k"), "v")])
    with pa.ipc.new_stream(stream, records.schema) as packed:
        packed.write_table(records)
    return pa.table({"share": [0], "bucket": [1], "stream": [stream.getvalue().to_pybytes()]}, PACKED_SCHEMA)


@pytest.mark.jvm
@pytest.mark.usefixtures("jvm")
def test_a_store_that_takes_no_file_ends_the_batch_with_an_error_that_is_waited_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").touch()  # where a folder would have to be
    report = pa.table(
        {"share": [0], "bucket": [REPORT_BUCKET], "stream": [msgspec.msgpack.encode(ReadReport(WHOLE))]},
        PACKED_SCHEMA,
    )
    read = [*packed_record().to_batches(), *report.to_batches()]
    monkeypatch.setattr(local, "run_read_task", lambda *_: read)
    engine = LocalEngine(CatalogSettings(uri="sqlite:///none.db", warehouse="none"))
    task = ReadTask(DEFINITION, {}, IO, IO, tmp_path.as_uri(), {})
    (failed,) = engine.run(Scan(KafkaRanges([PLANNED]), [Share(task, {}, f"{tmp_path.as_uri()}/data")]))
    assert isinstance(failed, StorageFailed)
    assert (failed.table, failed.retryable) == ("profiles", True)
    engine.stop()

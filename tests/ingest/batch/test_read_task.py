"""A read task that ends early: what it says, and what it leaves behind."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from tests.ingest.one_bucket import DEFINITION
from thermocline.errors import EngineFailed, KafkaUnreachable, StorageFailed, ThermoclineError
from thermocline.ingest.batch import read_task as module
from thermocline.ingest.batch.read_task import REPORT_BUCKET, KafkaRanges, ReadReport, ReadTask, run_read_task
from thermocline.kafka.facts import OffsetRange, RecordChunk

RANGES = [OffsetRange("profiles", 0, 0, 4)]


class Bare:
    """A message as far as it is read for the quarantine."""

    def headers(self) -> None:
        return None


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (KafkaUnreachable(bootstrap_servers="x", detail="away"), KafkaUnreachable),
        (OSError(errno.ENOSPC, "No space left on device"), StorageFailed),
        (FileNotFoundError(errno.ENOENT, "No such file"), EngineFailed),
        (MemoryError(), EngineFailed),
        (KeyboardInterrupt(), None),
    ],
)
def test_a_task_that_ends_early_leaves_no_bad_records_behind(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    said: type[ThermoclineError] | None,
) -> None:
    """Goal: no quarantine file stays that no table will ever know. Method: the log ends after two chunks.

    A disk that is full is waited out, as brokers that do not answer are. The quarantine is where only its own
    access reaches, as where a catalog grants access to single tables.
    """
    written: list[list[Path]] = []

    def chunks(*_: object) -> Iterator[RecordChunk]:
        for offset in (0, 2):
            yield RecordChunk(
                "profiles",
                0,
                [b"no key"] * 2,
                [b"{}"] * 2,
                [offset, offset + 1],
                [0, 0],
                [Bare()] * 2,
            )
        written.append(list((tmp_path / "data").iterdir()))
        raise error

    monkeypatch.setattr(module, "QUARANTINE_RECORDS_MAX", 2)
    monkeypatch.setattr(module, "read_ranges", chunks)
    no_access = cast("Any", None)
    task = ReadTask(DEFINITION, {}, no_access, PyArrowFileIO(), tmp_path.as_uri(), {"profiles": "id"})
    if said is None:
        with pytest.raises(type(error)):
            list(run_read_task([task], KafkaRanges([RANGES]), 0))
    else:
        (last,) = run_read_task([task], KafkaRanges([RANGES]), 0)
        assert last.column("bucket").to_pylist() == [REPORT_BUCKET]
        report = msgspec.msgpack.decode(last.column("stream")[0].as_py(), type=ReadReport)
        assert report.error is not None
        told = pickle.loads(report.error)
        assert (type(told), told.retryable) == (said, said is not EngineFailed)
        assert (report.covered, report.quarantine_files) == ([], [])
    assert len(written[0]) == 2
    assert list((tmp_path / "data").iterdir()) == []

"""A read task that ends early: what it says, and what it leaves behind."""

from __future__ import annotations

import errno
import pickle
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from tests.ingest.one_bucket import DEFINITION
from tests.thermocline.registered import Registered, framed
from thermocline.errors import EngineFailed, KafkaUnreachable, OffsetsGone, StorageFailed, ThermoclineError
from thermocline.ingest.batch import read_task as module
from thermocline.ingest.batch.read_task import REPORT_BUCKET, KafkaRanges, ReadReport, ReadTask, run_read_task
from thermocline.kafka.facts import OffsetRange, RecordChunk
from thermocline.rules.decode import SharedTexts, TextReader, decoder_for
from thermocline.rules.definition import LiveTable

RANGES = [OffsetRange("profiles", 0, 0, 4)]
VALUE = b'{"value": "v"}'

Taken = list[tuple[list[int], int, ReadReport]]


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


class ReadOnce:
    """A log of two chunks, and how often it was read."""

    def __init__(self, error: ThermoclineError | None = None) -> None:
        self.reads, self._error = 0, error

    def __call__(self, *_: object) -> Iterator[RecordChunk]:
        self.reads += 1
        for offset in (0, 2):
            keys = [b'{"app_id": 1, "user_id": "u", "key": "%d"}' % at for at in (offset, offset + 1)]
            yield RecordChunk("profiles", 0, [*keys], [VALUE] * 2, [offset, offset + 1], [0, 0], [Bare()] * 2)
        if self._error is not None:
            raise self._error


def read_for(tables: Sequence[str], log: ReadOnce, monkeypatch: pytest.MonkeyPatch) -> Taken:
    """What a part came to for each table, by its place: offsets, packed pieces, report."""
    monkeypatch.setattr(module, "read_ranges", log)
    nothing = cast("Any", None)
    tasks = [ReadTask(replace(DEFINITION, name=name), {}, nothing, nothing, "", {}) for name in tables]
    taken: Taken = [([], 0, ReadReport([])) for _ in tables]
    for packed in run_read_task(tasks, KafkaRanges([RANGES]), 0):
        for share, bucket, stream in zip(*(column.to_pylist() for column in packed.columns), strict=True):
            offsets, pieces, _ = taken[share]
            if bucket == REPORT_BUCKET:
                taken[share] = (offsets, pieces, msgspec.msgpack.decode(stream, type=ReadReport))
            else:
                read = pa.ipc.open_stream(stream).read_all().column("_kafka_offset").to_pylist()
                taken[share] = ([*offsets, *read], pieces + 1, taken[share][2])
    return taken


def test_a_part_is_read_once_for_all_tables_and_each_has_a_report_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = ReadOnce()
    for offsets, _, report in read_for(["a", "b", "c"], log, monkeypatch):
        assert sorted(offsets) == [0, 1, 2, 3]
        assert (report.records, report.covered, report.error) == (4, [("profiles", 0, 0, 4)], None)
        assert report.packed_bytes > 0
    assert log.reads == 1


def test_what_is_held_before_it_is_packed_is_bounded_for_all_tables_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "PACK_RECORDS_MAX", 4)
    assert [pieces for _, pieces, _ in read_for(["a"], ReadOnce(), monkeypatch)] == [1]
    assert [pieces for _, pieces, _ in read_for(["a", "b"], ReadOnce(), monkeypatch)] == [2, 2]


def test_a_decoder_that_raises_for_one_table_fails_the_part_of_that_table_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:

    def made_for(definition: LiveTable, registry: Any, texts: SharedTexts) -> Any:
        def decode(*_: object) -> Any:
            raise ValueError("a bug")

        return (
            SimpleNamespace(decode=decode)
            if definition.name == "b"
            else decoder_for(definition, registry, texts)
        )

    monkeypatch.setattr(module, "decoder_for", made_for)
    first, broken, third = read_for(["a", "b", "c"], ReadOnce(), monkeypatch)
    assert sorted(first[0]) == sorted(third[0]) == [0, 1, 2, 3]
    assert (first[2].error, third[2].error) == (None, None)
    assert broken[2].error is not None
    assert isinstance(pickle.loads(broken[2].error), EngineFailed)
    assert (broken[0], broken[2].covered) == ([], [])


def test_the_texts_of_a_chunk_are_read_once_for_all_tables_that_look_at_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Goal: each table has its own records, whatever its columns; one that reads otherwise does so alone."""
    texts_read, read = [0], TextReader.read

    def counted(reader: TextReader, *chunk: Any) -> Any:
        texts_read[0] += 1
        return read(reader, *chunk)

    def log(*_: object) -> Iterator[RecordChunk]:
        for first in (0, 4):
            keys: list[bytes | None] = [b'{"id":%d}' % at for at in range(4)]
            values: list[bytes | None] = [b'{"type":"t%d"}' % at for at in range(3)]
            yield RecordChunk(
                "profiles", 0, keys, [*values, b"broken"], [*range(first, first + 4)], [0] * 4, [Bare()] * 4
            )

    monkeypatch.setattr(TextReader, "read", counted)
    monkeypatch.setattr(module, "read_ranges", log)
    by_header = {"delete_when": {"header": "h", "values": ["x"]}}
    tables = [table_of("t0"), table_of("t1"), table_of("t2"), table_of("none"), table_of("t0", **by_header)]
    nothing = cast("Any", None)
    tasks = [ReadTask(table, {}, nothing, nothing, "", {"profiles": "id"}) for table in tables]
    *_, first, second, third, none, other = (
        msgspec.msgpack.decode(packed.column("stream")[-1].as_py(), type=ReadReport)
        for packed in run_read_task(tasks, KafkaRanges([RANGES]), 0)
        if REPORT_BUCKET in packed.column("bucket").to_pylist()
    )
    for report in (first, second, third, other):
        assert (report.error, report.records, report.filtered, report.bad) == (None, 8, 4, {"decode": 2})
    assert (none.error, none.records, none.filtered, none.bad) == (None, 8, 6, {"decode": 2})
    assert texts_read == [4]  # two readers, two chunks


def table_of(kind: str, **options: Any) -> LiveTable:
    """A table of the records of one type, with a column of its own."""
    return LiveTable.build(
        name=f"of_{kind}",
        identifier=f"app.of_{kind}",
        topics=["profiles"],
        key=["id"],
        columns={"id": "int", f"v_{kind}": "string"},
        where={"field": "type", "is": kind},
        on_error="skip",
        require_fields=False,
        **options,
    )


def test_each_table_is_told_in_its_name_that_the_log_was_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    cut = OffsetsGone(table="a", gaps=("profiles/0@0-2",))
    reports = [report for _, _, report in read_for(["a", "b"], ReadOnce(cut), monkeypatch)]
    told = [pickle.loads(report.error) for report in reports if report.error]
    assert [(error.table, error.gaps) for error in told] == [("a", cut.gaps), ("b", cut.gaps)]


def test_fields_that_a_schema_declares_and_no_column_is_read_from_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two of the records are of a schema with such a field, which the registry is asked for."""
    fields = [{"name": "value", "type": "string"}]
    more = [*fields, {"name": "plan", "type": "string"}]
    registry = Registered(
        {one: {"type": "record", "name": "R", "fields": of} for one, of in ((1, fields), (2, more))}
    )
    values = [framed(1, b"\x02v"), framed(2, b"\x02v\x02p"), framed(2, b"\x02w\x02p"), None]

    def log(*_: object) -> Iterator[RecordChunk]:
        keys = [b'{"app_id": 1, "user_id": "u", "key": "%d"}' % at for at in range(4)]
        yield RecordChunk("profiles", 0, [*keys], [*values], [0, 1, 2, 3], [0] * 4, [Bare()] * 4)

    monkeypatch.setattr(module, "read_ranges", log)
    columns = {column.name: column.type.declared for column in DEFINITION.columns}
    avro = LiveTable.build(
        name="profiles",
        identifier="app.profiles",
        topics=["profiles"],
        key=DEFINITION.key,
        columns=columns,
        format="avro",
        key_format="json",
    )
    nothing = cast("Any", None)
    task = ReadTask(avro, {}, nothing, nothing, "", {}, cast("Any", registry))
    *_, last = run_read_task([task], KafkaRanges([RANGES]), 0)
    report = msgspec.msgpack.decode(last.column("stream")[-1].as_py(), type=ReadReport)
    assert (report.error, report.bad) == (None, {})
    assert (report.sampled_values, report.unread_fields) == (3, {"plan": 2})

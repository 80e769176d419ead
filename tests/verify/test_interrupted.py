"""What changes while it is verified: the log is cut, snapshots are expired, storage fails."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.verify.story import TOPIC, Story, definition_of
from thermocline.cli.verify_read_paths import _hot_here
from thermocline.errors import ExitCode, OffsetsGone, ReadPointGone, StorageFailed
from thermocline.iceberg.reading import Reading
from thermocline.kafka.facts import OffsetRange, RecordChunk
from thermocline.process.clock import SystemClock
from thermocline.rules.partition_time import PartitionTimes
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam
from thermocline.serving.hot.manifest import MANIFEST
from thermocline.serving.store.layout import HOT
from thermocline.verify import comparison, log_pass
from thermocline.verify import lookups as lookups_module
from thermocline.verify.comparison import failed
from thermocline.verify.entities import Entities
from thermocline.verify.log_pass import LogPass
from thermocline.verify.lookups import LookupChecks
from thermocline.verify.report import Report
from thermocline.verify.sample import Sample
from thermocline.verify.staging import MEMORY_BYTES_MIN, Staging

DEFINITION = definition_of()
PLACE = (TOPIC, 0)


class CutLog:
    """A log that was cut: it begins behind whatever is asked for."""

    def starts(self, _topics: Sequence[str]) -> Seam:
        return Seam({PLACE: 50})


def read_cut(
    _config: Mapping[str, Any], ranges: Sequence[OffsetRange], table: str, _clock: object
) -> Iterator[RecordChunk]:
    """As `thermocline.kafka.log.read_ranges` with a log that begins at 50."""
    for one in ranges:
        if one.first < 50:
            raise OffsetsGone(table=table, gaps=(f"{one.topic}/{one.partition}@{one.first}-50",))
    yield from ()


def lookups(reading: Reading) -> LookupChecks:
    end = Seam({PLACE: 10})
    log: Any = SimpleNamespace(
        ends=end, entities=Entities(DEFINITION, reading), partition_times=PartitionTimes()
    )
    verified: Any = SimpleNamespace(
        definition=DEFINITION, reading=reading, log=log, point=ReadPoint(1, end, end), unconfirmed=None
    )
    cut: Any = CutLog()
    table: Any = None
    report = Report("scores")
    return LookupChecks(verified, lambda *_: {}, {}, cut, lambda: table, Sample(1, 1), SystemClock(), report)


def story() -> Story:
    told = Story(random.Random(1))
    told.produce(20, users=3)
    told.commit()
    return told


def test_a_log_that_was_cut_while_it_was_watched_ends_the_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that nobody read might explain any difference: it must not be taken for one."""
    monkeypatch.setattr(lookups_module, "read_ranges", read_cut)
    seam = Seam({PLACE: 10})
    with pytest.raises(ReadPointGone, match=f"{TOPIC}/0@10-50") as raised:
        lookups(story().reading()).read_on([ReadPoint(1, seam, Seam({PLACE: 60}))])
    assert raised.value.exit_code == ExitCode.UNAVAILABLE


def test_a_log_that_is_cut_faster_than_it_is_read_says_so_and_no_gap_is_to_be_accepted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def always_gone(*_: object) -> Iterator[RecordChunk]:
        raise OffsetsGone(table="scores", gaps=(f"{TOPIC}/0@0-5",))

    monkeypatch.setattr(log_pass, "read_ranges", always_gone)
    log: Any = SimpleNamespace(starts=lambda _topics: Seam({PLACE: 0, (TOPIC, 1): 0}))
    reading = story().reading()
    one = LogPass(log, {}, reading, [], Sample(1, 1), False, SystemClock(), lambda *_: None)
    with (
        closing(Staging(tmp_path, reading.definition, MEMORY_BYTES_MIN)) as staging,
        pytest.raises(ReadPointGone, match="faster than it can be read"),
    ):
        one.read(staging)


def test_of_a_log_only_what_lies_beyond_the_seam_is_held_for_lookups(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = story()
    monkeypatch.setattr(log_pass, "read_ranges", lambda *_: iter(told.chunks()))
    reading = told.reading()
    starts = Seam(dict.fromkeys(reading.incarnations, 0))
    log: Any = SimpleNamespace(starts=lambda _topics: starts)
    one = LogPass(log, {}, reading, [], Sample(1, 9), False, SystemClock(), lambda *_: None)
    with closing(Staging(tmp_path, reading.definition, MEMORY_BYTES_MIN)) as staging:
        assert one.read(staging).read == 20
        assert one._waiting == []


def test_what_tables_have_read_is_remembered_of_few_snapshots(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = story().reading()
    loaded: list[int] = []

    def load(_table: object, snapshot_id: int, _definition: object) -> Reading:
        loaded.append(snapshot_id)
        return reading

    monkeypatch.setattr(Reading, "of", load)
    watched = lookups(reading)
    assert all(watched.reading_at(number) is reading for number in (*range(100), 99, 98))
    assert loaded == [*range(100)], "the newest are remembered"
    assert watched.reading_at(90) is reading
    assert loaded[100:] == [90], "and the others are not"


@pytest.mark.parametrize(("is_there", "expected"), [(True, StorageFailed), (False, ReadPointGone)])
def test_a_file_that_is_gone_is_no_bug_of_ours(
    monkeypatch: pytest.MonkeyPatch, is_there: bool, expected: type[Exception]
) -> None:
    table = SimpleNamespace(snapshot_by_id=lambda _: object() if is_there else None)
    monkeypatch.setattr(comparison, "open_table", lambda *_: table)
    settings: Any = None
    error = failed(settings, "scores", ReadPoint(7, Seam(), Seam()), FileNotFoundError("a.parquet"))
    assert type(error) is expected
    assert error.exit_code == ExitCode.UNAVAILABLE


def test_a_hot_tier_of_this_machine_that_can_not_be_read_is_named_and_the_rest_is_compared(
    tmp_path: Path,
) -> None:
    """As by another user than the server's. Method: a folder in place of the manifest."""
    (tmp_path / "scores" / HOT / MANIFEST).mkdir(parents=True)
    settings: Any = SimpleNamespace(serving=SimpleNamespace(state_dir=tmp_path))
    with ExitStack() as stack:
        hot, problem = _hot_here(settings, "scores", stack)
    assert hot is None
    assert "Is a directory" in problem

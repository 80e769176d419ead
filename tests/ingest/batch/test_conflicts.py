"""What the log says of keys that were met in several partitions."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.ingest.one_bucket import DEFINITION
from thermocline.ingest.batch.batch import BatchResult
from thermocline.ingest.batch.plan import Batch
from thermocline.ingest.batch.read_task import ReadReport, ReadTask
from thermocline.ingest.owner.contested import warn_of_contested_keys
from thermocline.ingest.owner.owner import Owner
from thermocline.ingest.owner.table_batch import Read, Wanted, read_for
from thermocline.ingest.owner.upkeep import NoUpkeep
from thermocline.process import logs
from thermocline.rules.keys import encode_one
from thermocline.rules.partition_time import PartitionTimes
from thermocline.rules.seam import Seam
from thermocline.text.shown import as_field
from thermocline.upsert.bucket_task import BucketResult

PLACES = (("profiles", 0), ("profiles", 5))


def bucket(
    keys: int, example: bytes | None = None, places: tuple[tuple[str, int], ...] = PLACES
) -> BucketResult:
    return BucketResult(0, keys_in_several_partitions=keys, conflict_example=example, conflict_places=places)


def warned(caplog: pytest.LogCaptureFixture, *buckets: BucketResult) -> dict[str, Any]:
    with caplog.at_level(logging.WARNING):
        warn_of_contested_keys(DEFINITION, BatchResult((), buckets))
    (record,) = caplog.records
    said: dict[str, Any] = record.__dict__["fields"]
    return said


EXAMPLE = encode_one(DEFINITION, [7, "ada", "plan"])


def test_an_example_is_named_by_its_columns_and_where_it_was_met_and_not_by_its_bytes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = warned(caplog, bucket(0), bucket(2, EXAMPLE), bucket(1, b"another"))
    assert (said["table"], said["keys"], said["partitions"]) == ("profiles", 3, "profiles/0, profiles/5")
    assert as_field(said["example"]) == '(app_id=7, user_id="ada", key="plan")'
    assert "gained partitions" in said["advice"]


def test_the_log_line_shows_what_to_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger(), "level", logging.INFO)
    logs.configure("info")
    warn_of_contested_keys(DEFINITION, BatchResult((), (bucket(2, EXAMPLE),)))
    assert "gained partitions" in capsys.readouterr().err


def test_of_two_topics_with_the_same_keys_it_says_what_to_do_about_these(
    caplog: pytest.LogCaptureFixture,
) -> None:
    said = warned(caplog, bucket(1, EXAMPLE, (("eu", 3), ("us", 3))))
    assert said["partitions"] == "eu/3, us/3"
    assert said["advice"].startswith("two topics of the table have the same keys")


def test_a_batch_is_read_again_for_contested_keys_and_what_it_wrote_before_goes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The batch after it is read for them at once, until one has none."""
    asked: list[bool] = []
    gone: list[Any] = []

    def scan(wanted: Wanted) -> Read:
        assert (wanted.share.task.partition_times is times) is not wanted.may_cut
        asked.append(not wanted.may_cut)
        return Read(BatchResult((ReadReport([]),), (results.pop(0),)), at=0.0, tables=1)

    def read() -> BatchResult:
        course = read_for(owner, batch)
        wanted = next(course)
        while True:
            try:
                wanted = course.send(scan(wanted))
            except StopIteration as done:
                result: BatchResult = done.value.result
                return result

    monkeypatch.setattr("thermocline.ingest.owner.owner.delete_files", lambda *given: gone.append(given))
    monkeypatch.setattr("thermocline.ingest.owner.table_batch.data_location", lambda _: "data")
    times = PartitionTimes()
    discarded: list[Any] = []
    owner: Any = SimpleNamespace(
        is_contested=False,
        task=ReadTask(DEFINITION, {}, cast(Any, None), cast(Any, None), "", {}),
        at=SimpleNamespace(partition_times=times),
        position=SimpleNamespace(files={}),
        upkeep=NoUpkeep(),
        table=SimpleNamespace(io="io"),
        bad_records=SimpleNamespace(discard=discarded.append),
        routing=None,
        schemas=SimpleNamespace(takes_up=lambda *_: False),
        leave=lambda result: Owner.leave(owner, result),
    )
    batch = Batch((), Seam(), Seam())
    results = [bucket(1, EXAMPLE), bucket(2, EXAMPLE), bucket(1, EXAMPLE), bucket(0), bucket(0)]
    assert read().buckets == (bucket(2, EXAMPLE),)
    assert (asked, gone, discarded) == ([False, True], [("io", [])], [(ReadReport([]),)])
    for _ in range(3):
        read()
    assert asked == [False, True, True, True, False]
    assert len(gone) == 1

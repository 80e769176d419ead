"""The audit log in files: whole lines, once each, whoever else writes, rotates, dies or fills the disk."""

from __future__ import annotations

import errno
import fcntl
import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.manual_clock import ManualClock
from tests.serving.access import full_disk_of_audit
from tests.serving.access.audit_parts import access, lines_of, wait_for
from thermocline.errors import AuditUnavailable
from thermocline.serving.access import audit
from thermocline.serving.access.audit import AuditLog
from thermocline.serving.access.audit_file import FileSink
from thermocline.serving.access.audit_sink import Line
from thermocline.serving.access.entity_hash import EntityHash

ROTATE_BYTES = 1_000_000
LINE = Line("billing", b'{"time":"now"}\n')
forks = multiprocessing.get_context("fork")


def sink_of(folder: Path, rotate_bytes: int = ROTATE_BYTES, keep_files: int = 1_000) -> FileSink:
    return FileSink(folder, rotate_bytes, keep_files)


def text(*words: str) -> list[Line]:
    return [Line(None, f"{word}\n".encode()) for word in words]


def test_lines_are_appended_for_this_user_alone(tmp_path: Path) -> None:
    folder = tmp_path / "deep" / "audit"
    for words in (("a", "b"), ("c",)):
        sink = sink_of(folder)
        sink.write(text(*words))
        sink.close()
    assert (folder / "audit.jsonl").read_bytes() == b"a\nb\nc\n"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {one.name: one.stat().st_mode & 0o777 for one in folder.iterdir()} == {
        "audit.jsonl": 0o600,
        "audit.lock": 0o600,
    }


def test_a_file_that_others_could_read_is_closed_to_them(tmp_path: Path) -> None:
    (tmp_path / "audit.jsonl").write_bytes(b"a\n")
    (tmp_path / "audit.jsonl").chmod(0o644)
    sink_of(tmp_path).write(text("b"))
    assert (tmp_path / "audit.jsonl").stat().st_mode & 0o777 == 0o600


def test_a_file_is_set_aside_before_it_is_too_large_and_the_oldest_go(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, rotate_bytes=10, keep_files=2)
    for word in ("aaaa", "bbbb", "cccc", "dddd", "eeee", "ffff", "a line that is longer", "gggg"):
        sink.write(text(word))
    assert {one.name: one.read_text() for one in tmp_path.glob("*.jsonl")} == {
        "audit-000003.jsonl": "eeee\nffff\n",
        "audit-000004.jsonl": "a line that is longer\n",
        "audit.jsonl": "gggg\n",
    }
    sink.write(text("hhhh"))
    sink.write(text("iiii"))
    assert sorted(one.name for one in tmp_path.glob("*.jsonl")) == [
        "audit-000004.jsonl",
        "audit-000005.jsonl",
        "audit.jsonl",
    ]


def test_other_files_of_the_folder_are_left_alone(tmp_path: Path) -> None:
    others = ["audit-1.jsonl", "audit-000001.jsonl.gz", "audit-copy.jsonl", "notes"]
    for name in others:
        (tmp_path / name).write_text(name)
    sink = sink_of(tmp_path, rotate_bytes=10, keep_files=1)
    for word in ("aaaa", "bbbb", "cccc", "dddd", "eeee", "ffff"):
        sink.write(text(word))
    assert [(tmp_path / name).read_text() for name in others] == others
    assert sorted(one.name for one in tmp_path.glob("audit-0*.jsonl")) == ["audit-000002.jsonl"]


def test_what_another_process_set_aside_is_not_written_to_any_more(tmp_path: Path) -> None:
    ours, theirs = sink_of(tmp_path, 10), sink_of(tmp_path, 10)
    ours.write(text("aaaa"))
    theirs.write(text("bbbb"))
    theirs.write(text("cccc"))
    ours.write(text("dddd"))
    assert (tmp_path / "audit-000001.jsonl").read_text() == "aaaa\nbbbb\n"
    assert (tmp_path / "audit.jsonl").read_text() == "cccc\ndddd\n"


def test_a_file_or_folder_that_somebody_took_away_is_made_again(tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    sink = sink_of(folder)
    sink.write(text("a"))
    (folder / "audit.jsonl").rename(tmp_path / "taken.jsonl")  # as logrotate does
    sink.write(text("b"))
    assert (tmp_path / "taken.jsonl").read_text() == "a\n"
    assert (folder / "audit.jsonl").read_text() == "b\n"
    for one in folder.iterdir():
        one.unlink()
    folder.rmdir()
    sink.write(text("c"))
    assert (folder / "audit.jsonl").read_text() == "c\n"


@pytest.mark.parametrize("torn", ["half", "x" * 200_000], ids=["short", "long"])
def test_half_a_line_of_a_killed_process_is_cut_off(tmp_path: Path, torn: str) -> None:
    for before in ("", "a\nb\n"):
        (tmp_path / "audit.jsonl").write_text(before + torn)
        sink_of(tmp_path).write(text("c"))
        assert (tmp_path / "audit.jsonl").read_text() == f"{before}c\n"


def test_lines_that_were_written_in_part_are_taken_back_and_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: the disk takes a line and a half, and at another time all but fails to sync."""
    sink = sink_of(tmp_path)
    sink.write(text("a"))
    write = os.write

    def some(file: int, content: bytes) -> int:
        if len(content) < 5:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, content[:5])

    with monkeypatch.context() as full:
        full.setattr(os, "write", some)
        with pytest.raises(OSError, match="No space"):
            sink.write(text("bbb", "ccc"))
    assert (tmp_path / "audit.jsonl").read_text() == "a\n"

    def no_sync(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as broken:
        broken.setattr(os, "fdatasync", no_sync)
        with pytest.raises(OSError, match="Input/output"):
            sink.write(text("bbb", "ccc"))
    assert (tmp_path / "audit.jsonl").read_text() == "a\n"
    sink.write(text("bbb", "ccc"))
    assert (tmp_path / "audit.jsonl").read_text() == "a\nbbb\nccc\n"


def test_who_keeps_the_others_from_writing_for_too_long_is_a_problem_and_waited_for(tmp_path: Path) -> None:
    clock = ManualClock()
    with (tmp_path / "audit.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        log = AuditLog(sink_of(tmp_path), EntityHash(bytes(32)), clock)
        log.write(access(1))

        def is_noticed() -> bool:
            clock.advance(1)
            return log.problem() is not None

        wait_for(is_noticed)
        assert log.problem() == "the audit log has not taken a record for 10 s"
    wait_for(lambda: log.problem() is None)
    log.close()
    assert len(lines_of(tmp_path)) == 1


# Several processes

WRITERS = 4
LINES_EACH = 15_000


def write_many(folder: Path, writer: int) -> None:
    """Lines of all lengths, in batches of all sizes, through the log as a worker has it."""
    log = AuditLog(FileSink(folder, ROTATE_BYTES, 1_000), EntityHash(bytes(32)))
    source = random.Random(writer)
    for number in range(LINES_EACH):
        request = access(number)
        request.client, request.address = f"w{writer}", "x" * source.randrange(200)
        log.write(request)
        if source.random() < 0.01:
            time.sleep(source.random() * 0.02)
    log.close()


def test_every_line_of_several_processes_is_there_once_and_whole_through_many_rotations(
    tmp_path: Path,
) -> None:
    writers = [forks.Process(target=write_many, args=(tmp_path, number)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
    files = sorted(tmp_path.glob("audit-*.jsonl"))
    assert len(files) > 5
    assert all(one.stat().st_size <= ROTATE_BYTES for one in files)
    said = [json.loads(line) for line in lines_of(tmp_path)]
    by_writer = {f"w{number}": [] for number in range(WRITERS)}  # type: dict[str, list[str]]
    for line in said:
        by_writer[line["client"]].append(line["request_id"])
    expected = [f"r{number}" for number in range(LINES_EACH)]
    assert {name: found == expected for name, found in by_writer.items()} == dict.fromkeys(by_writer, True)


def write_on_and_on(folder: Path) -> None:
    sink = sink_of(folder, rotate_bytes=200_000)
    while True:
        sink.write(text(*(f"{number:05}" + "x" * 500 for number in range(100))))


def test_processes_that_are_killed_while_they_write_and_rotate_leave_whole_lines(tmp_path: Path) -> None:
    source = random.Random(7)
    for _ in range(20):
        killed = [forks.Process(target=write_on_and_on, args=(tmp_path,)) for _ in range(2)]
        for one in killed:
            one.start()
        time.sleep(source.uniform(0.02, 0.1))
        for one in killed:
            assert one.pid is not None
            os.kill(one.pid, signal.SIGKILL)
            one.join()
    sink_of(tmp_path, rotate_bytes=200_000).write(text("end"))
    lines = lines_of(tmp_path)
    assert lines[-1] == b"end\n"
    assert Counter(len(line) for line in lines[:-1]).keys() == {506}
    assert len(lines) > 100


# A disk that takes nothing


@pytest.fixture
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "FLUSH_SECONDS", 0.01)
    monkeypatch.setattr(audit, "RETRY_SECONDS", 0.01)


@pytest.mark.usefixtures("short_waits")
def test_a_folder_that_cannot_be_made_is_named_and_taken_once_it_can(tmp_path: Path) -> None:
    (tmp_path / "audit").touch()
    log = AuditLog(sink_of(tmp_path / "audit"), EntityHash(bytes(32)), is_required=True)
    log.write(access(1))
    wait_for(lambda: log.problem() is not None)
    assert log.problem() == "the audit log can't be written: Not a directory"
    with pytest.raises(AuditUnavailable):
        log.check()
    (tmp_path / "audit").unlink()
    wait_for(lambda: log.problem() is None)
    log.check()
    log.write(access(2))
    log.close()
    assert [json.loads(line)["request_id"] for line in lines_of(tmp_path / "audit")] == ["r1", "r2"]


def test_a_full_or_read_only_disk_is_named_refuses_and_is_taken_again_when_it_has_room(
    tmp_path: Path,
) -> None:
    """Method: a tmpfs in a mount namespace of a process of its own; without the right to that, skipped."""
    command = [sys.executable, "-m", "tests.serving.access.full_disk_of_audit", str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode == full_disk_of_audit.NOT_PERMITTED:
        pytest.skip("no mount namespace here")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.splitlines() == [
        "the audit log can't be written: Read-only file system",
        "the audit log can't be written: No space left on device",
    ]

"""The audit log on standard output: whole lines, from several processes, to a reader that may stop."""

from __future__ import annotations

import json
import multiprocessing
import os
import threading
from pathlib import Path

import pytest

from tests.serving.access.audit_parts import access, wait_for
from thermocline.serving.access import audit, audit_stdout
from thermocline.serving.access.audit import AuditLog
from thermocline.serving.access.audit_sink import Line, SinkFailed
from thermocline.serving.access.audit_stdout import StdoutSink
from thermocline.serving.access.entity_hash import EntityHash

forks = multiprocessing.get_context("fork")
WRITERS = 3
LINES_EACH = 300
PIPE_BYTES = 65_536


class Pipe:
    """A pipe, and what somebody has read of it."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.content = b""
        self._reader = threading.Thread(target=self._read, daemon=True)

    def read_on(self) -> None:
        self._reader.start()

    def end(self) -> bytes:
        os.close(self.writing)
        self._reader.join()
        os.close(self.reading)
        return self.content

    def _read(self) -> None:
        while part := os.read(self.reading, 1_000):
            self.content += part


@pytest.fixture
def pipe() -> Pipe:
    return Pipe()


def sink_of(folder: Path, pipe: Pipe) -> StdoutSink:
    return StdoutSink(folder / "audit.lock", pipe.writing)


def test_lines_go_out_as_they_are(tmp_path: Path, pipe: Pipe) -> None:
    pipe.read_on()
    sink = sink_of(tmp_path, pipe)
    sink.write([Line(None, b"a\n"), Line(None, b"b\n")])
    sink.write([Line(None, b"c" * 10_000 + b"\n"), Line(None, b"d\n")])
    sink.close()
    assert pipe.end() == b"a\nb\n" + b"c" * 10_000 + b"\nd\n"


def write_many(folder: Path, pipe: Pipe, writer: int) -> None:
    """Every tenth line is longer than a pipe takes as a whole."""
    sink = sink_of(folder, pipe)
    for number in range(LINES_EACH):
        filling = "x" * (20_000 if number % 10 == 0 else 100)
        line = json.dumps({"writer": writer, "number": number, "filling": filling})
        sink.write([Line(None, f"{line}\n".encode())] * 2)


def test_lines_of_several_processes_are_never_mixed(tmp_path: Path, pipe: Pipe) -> None:
    pipe.read_on()
    writers = [forks.Process(target=write_many, args=(tmp_path, pipe, number)) for number in range(WRITERS)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    said = [json.loads(line) for line in pipe.end().splitlines()]
    for name in range(WRITERS):
        numbers = [line["number"] for line in said if line["writer"] == name]
        assert numbers == [number for number in range(LINES_EACH) for _ in range(2)]


def test_a_reader_that_stops_is_a_problem_and_gets_every_line_once_when_it_goes_on(
    tmp_path: Path, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process gets no line into one that was begun."""
    monkeypatch.setattr(audit_stdout, "UNTAKEN_SECONDS_MAX", 0.01)
    long, sink = b"y" * 2 * PIPE_BYTES + b"\n", sink_of(tmp_path, pipe)
    with pytest.raises(SinkFailed, match="nobody reads"):
        sink.write([Line(None, b"a\n"), Line(None, long), Line(None, b"b\n")])
    with pytest.raises(SinkFailed, match="nobody reads"):
        sink.write([])
    others = forks.Process(target=write_one, args=(tmp_path, pipe))
    others.start()
    pipe.read_on()
    others.join(0.5)
    assert others.is_alive()  # though there is room now
    wait_for(lambda: is_written(sink))
    others.join()
    assert others.exitcode == 0
    assert pipe.end() == b"a\n" + long + b"b\nother\n"


def is_written(sink: StdoutSink) -> bool:
    try:
        sink.write([])
    except SinkFailed:
        return False
    return True


def write_one(folder: Path, pipe: Pipe) -> None:
    sink = sink_of(folder, pipe)
    for _ in range(100):
        try:
            sink.write([Line(None, b"other\n")])
        except SinkFailed:
            continue
        return
    raise AssertionError


def test_a_reader_that_has_gone_is_a_problem_of_the_log(
    tmp_path: Path, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "CLOSE_SECONDS_MAX", 0.05)
    log = AuditLog(sink_of(tmp_path, pipe), EntityHash(bytes(32)))
    os.close(pipe.reading)
    log.write(access())
    wait_for(lambda: log.problem() is not None)
    assert log.problem() == "the audit log can't be written: Broken pipe"
    os.close(pipe.writing)
    log.close()


def test_it_is_the_standard_output_of_the_process_that_is_meant(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    StdoutSink(tmp_path / "audit.lock").write([Line(None, b"a\n")])
    assert capfd.readouterr().out == "a\n"

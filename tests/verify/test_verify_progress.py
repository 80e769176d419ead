"""What is said while a verification runs where nobody sees a bar."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.manual_clock import ManualClock
from thermocline.cli import entry
from thermocline.cli.verify import SHOWN_MAX
from thermocline.cli.verify_progress import LINE_SECONDS, ProgressLines, shown_progress
from thermocline.errors import ExitCode
from thermocline.verify.extract_file import CountingFile
from thermocline.verify.history import KEYS_MAX


def test_without_a_terminal_a_line_is_said_now_and_then() -> None:
    said: list[str] = []
    clock = ManualClock()
    lines = ProgressLines(clock, said.append)
    lines("log", 1, 5_000)
    assert said == [], "a short verification says nothing"
    for done in (1_000, 2_000, 3_000):
        clock.advance(LINE_SECONDS / 2)
        lines("log", done, 5_000)
    clock.advance(LINE_SECONDS)
    lines("extract, MB", 7, 0)
    assert said == ["verify: log 2,000 of 5,000", "verify: extract, MB 7"]


def test_the_lines_go_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    clock = ManualClock()
    with shown_progress(clock) as progress:
        clock.advance(LINE_SECONDS)
        progress("files", 1, 2)
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", "verify: files 1 of 2\n")


def test_an_extract_tells_how_much_was_written(tmp_path: Path) -> None:
    told: list[int] = []
    with CountingFile(tmp_path / "extract", told.append) as sink:
        sink.write(b"four")
        sink.write(memoryview(b"and six"))
    assert told == [4, 11]
    assert (tmp_path / "extract").read_bytes() == b"fourand six"


def test_more_histories_than_are_told_are_not_asked_for() -> None:
    assert SHOWN_MAX == KEYS_MAX
    assert entry.run(["verify", "scores", "--show", str(SHOWN_MAX + 1)]) == ExitCode.USAGE

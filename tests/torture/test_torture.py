"""That the torture can fail: it notices each kind of lie, and its plan comes from the seed alone."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from tests.behaviour.topic import key_bytes, value_bytes
from tests.torture.episode import Tally
from tests.torture.faults import Faults
from tests.torture.judge import ANY, Answer, Findings, Judge
from tests.torture.ledger import Ledger
from tests.torture.plan import KINDS, rounds
from tests.torture.report import report
from thermocline.dev.oracle import Row, RowKey
from thermocline.rules.read_point import ReadPoint
from thermocline.rules.seam import Seam

TOPIC = "profiles"
ROW = (7, "u1", "plan")


@pytest.fixture
def ledger() -> Ledger:
    """Of a row that was free, then pro, and then deleted; and a bad record."""
    ledger = Ledger({}, TOPIC, 1)
    for offset, value in enumerate(("free", "pro", None)):
        ledger.take(0, offset, key_bytes(ROW), value_bytes(value))
    ledger.take(0, 3, key_bytes(ROW), b"{no value")
    return ledger


@pytest.fixture
def findings() -> Findings:
    return Findings()


@pytest.fixture
def judge(ledger: Ledger, findings: Findings) -> Iterator[Judge]:
    judge = Judge(ledger, findings)
    judge.start()
    yield judge
    judge.stop()


def row(value: str, key: RowKey = ROW) -> Row:
    rows = Ledger({}, TOPIC, 1)
    rows.take(0, 0, key_bytes(key), value_bytes(value))
    return rows.rows(at(1))[key]


def at(offset: int) -> Seam:
    return Seam({(TOPIC, 0): offset})


def answer(end: int, *rows: Row, floor: Seam = ANY) -> Answer:
    return Answer("session 1", "lookup", ROW[:2], rows, ReadPoint(1, at(0), at(end)), floor)


def test_right_answers_are_no_differences(judge: Judge, findings: Findings) -> None:
    for end, rows in ((0, []), (1, [row("free")]), (2, [row("pro")]), (3, []), (4, [])):
        judge.take(answer(end, *rows))
        judge.take(Answer("session 2", "extract", None, rows, ReadPoint(1, at(0), at(end))))
    judge.settle()
    assert not findings.lines
    assert judge.judged == {"lookup": 5, "extract": 5}


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        pytest.param([answer(1)], "wrong rows", id="lost"),
        pytest.param([answer(2, row("pro"), row("pro"))], "wrong rows", id="repeated"),
        pytest.param([answer(3, row("pro"))], "wrong rows", id="resurrected"),
        pytest.param([answer(2, row("free"))], "wrong rows", id="stale"),
        pytest.param([answer(2, row("pro"), row("pro", (7, "u1", "x")))], "wrong rows", id="never written"),
        pytest.param([answer(2, row("pro")), answer(1, row("free"))], "went back", id="back in a session"),
        pytest.param([answer(1, row("free"), floor=at(2))], "stale", id="without what was acknowledged"),
    ],
)
def test_each_lie_is_noticed(judge: Judge, findings: Findings, wrong: list[Answer], kind: str) -> None:
    for one in wrong:
        judge.take(one)
    judge.settle()
    assert [line.partition(":")[0] for line in findings.lines] == [kind]


def test_an_answer_beyond_all_that_the_log_holds_is_noticed(ledger: Ledger, findings: Findings) -> None:
    judge = Judge(ledger, findings, patience_seconds=0.0)
    judge.start()
    judge.take(answer(9))
    judge.stop()
    assert [line.partition(":")[0] for line in findings.lines] == ["beyond the log"]


def test_the_same_seed_draws_the_same_faults_and_another_one_others() -> None:
    assert list(islice(rounds(1), 50)) == list(islice(rounds(1), 50))
    assert list(islice(rounds(1), 50)) != list(islice(rounds(2), 50))


def test_every_kind_of_fault_is_drawn_and_can_be_brought_about() -> None:
    drawn = Counter(fault.kind for played in islice(rounds(1), 400) for fault in played.faults)
    assert drawn.keys() == KINDS.keys() == Faults.by_kind.keys()
    without = {
        fault.kind for played in islice(rounds(1, frozenset({"disk"})), 400) for fault in played.faults
    }
    assert without == {name for name, kind in KINDS.items() if kind.needs != "disk"}


def test_the_report_names_the_faults_and_the_differences() -> None:
    tally = Tally(episodes=1, rounds=2, faults=Counter({"owner killed": 3}), records=1234)
    text = report(tally, ["wrong rows: of one"], {"seed": "1"})
    assert "3 faults in 2 rounds and 1 episodes, **1 difference**" in text
    assert "| owner killed | 3 |" in text
    assert "| records | 1,234 |" in text
    assert "- wrong rows: of one" in text


@pytest.mark.jvm
@pytest.mark.full
def test_a_short_torture_finds_no_difference(tmp_path: Path) -> None:
    """A round of faults on real processes: the harness works, and so does what it breaks."""
    path = tmp_path / "report.md"
    options = ["--seed", "14", "--rounds", "1", "--folder", str(tmp_path / "work"), "--report", str(path)]
    ended = subprocess.run(
        [sys.executable, "-m", "tests.torture", *options], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    text = path.read_text()
    assert "in 1 rounds and 1 episodes, **no differences**" in text
    assert "| `thermocline verify` | agreed 1 |" in text

"""The order of a verification, and what it makes of a read point that goes and of a log that is empty."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.verify.story import definition_of
from thermocline.errors import ExitCode, KafkaUnreachable, ReadPointGone
from thermocline.process.clock import SystemClock
from thermocline.verify import verifier as verifier_module
from thermocline.verify.finding import Finding
from thermocline.verify.report import Report
from thermocline.verify.row_judge import Reason
from thermocline.verify.verifier import Choices, Verifier

GONE = ReadPointGone(table="scores", detail="snapshot 7 is gone")


class Parts:
    """What a verification consists of, in place of the real parts; ``asked`` is in which order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[str] = []
        self.is_away = False
        self.damages: list[Finding] = []
        self.rows: list[Any] = []
        monkeypatch.setattr(verifier_module, "open_table", lambda *_: None)
        monkeypatch.setattr(verifier_module, "definition_of", lambda *_: definition_of())
        monkeypatch.setattr(verifier_module, "Log", lambda _: SimpleNamespace(cluster_id=self._ask_log))
        monkeypatch.setattr(verifier_module, "structure_findings", self._structure)
        monkeypatch.setattr(Verifier, "_check_rows", self._check_rows)
        monkeypatch.setattr(Verifier, "_tell", lambda *_: None)

    def verified(self) -> Report:
        settings: Any = SimpleNamespace(kafka=None)
        read_paths: Any = None
        verifier = Verifier(settings, "scores", read_paths, Choices(seed=1), SystemClock(), lambda *_: None)
        return verifier.verify()[0]

    def _ask_log(self) -> str:
        self.asked.append("log")
        if self.is_away:
            raise KafkaUnreachable(bootstrap_servers="nowhere:1", detail="refused")
        return "cluster"

    def _structure(self, *_: object) -> list[Finding]:
        self.asked.append("structure")
        return self.damages

    def _check_rows(self, _scope: object, report: Report) -> None:
        self.asked.append("rows")
        report.rows += 3
        one = self.rows.pop(0)
        if isinstance(one, Exception):
            raise one
        one(report)


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> Parts:
    return Parts(monkeypatch)


def agree(report: Report) -> None:
    report.agreed = 3


def test_a_log_that_is_away_is_said_before_any_file_is_read(parts: Parts) -> None:
    parts.is_away = True
    with pytest.raises(KafkaUnreachable) as raised:
        parts.verified()
    assert parts.asked == ["log"]
    assert raised.value.exit_code == ExitCode.UNAVAILABLE


def test_a_read_point_that_goes_meanwhile_is_chosen_again_and_nothing_is_counted_twice(parts: Parts) -> None:
    parts.rows = [GONE, agree]
    report = parts.verified()
    assert parts.asked == ["log", "structure", "rows", "rows"]
    assert (report.rows, report.agrees, report.is_complete) == (3, True, True)


def test_read_points_that_always_go_end_with_the_command_to_repeat(parts: Parts) -> None:
    parts.rows = [GONE, GONE]
    with pytest.raises(ReadPointGone, match="snapshot 7 is gone") as raised:
        parts.verified()
    assert raised.value.next.startswith("thermocline verify scores")
    assert GONE.next.startswith("thermocline extract scores"), "for whoever reads"


def test_read_points_that_always_go_hide_no_damage(parts: Parts) -> None:
    parts.rows, parts.damages = [GONE, GONE], [Finding("file-missing", "a file")]
    report = parts.verified()
    assert report.counts == {"file-missing": 1}
    assert len(report.unchecked) == 1


@pytest.mark.parametrize(
    ("judged", "unjudged", "is_complete"), [(0, 3, False), (1, 2, True), (0, 0, True)],
    ids=["none of the rows", "some of the rows", "there are none"],
)  # fmt: skip
def test_that_nothing_could_be_judged_is_not_said_to_agree(
    parts: Parts, judged: int, unjudged: int, is_complete: bool
) -> None:
    def compare(report: Report) -> None:
        report.agreed = judged
        report.unjudged.update({Reason.OLDER: unjudged} if unjudged else {})

    parts.rows = [compare]
    report = parts.verified()
    assert (report.agrees, report.is_complete) == (True, is_complete)
    assert all("retention.ms" in part for part in report.unchecked)

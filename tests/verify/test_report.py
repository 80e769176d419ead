"""What a report keeps of many differences."""

from __future__ import annotations

import pytest

from thermocline.cli import entry
from thermocline.verify.finding import CODES, Finding
from thermocline.verify.report import KEPT_MAX, Report


def test_a_flood_of_one_difference_hides_no_other() -> None:
    report = Report("scores")
    report.add_all(Finding("file-missing", f"file {number}") for number in range(KEPT_MAX + 10))
    report.add_all(Finding("row-stale", "stale", {"user": user}) for user in ("u1", "u2"))
    assert report.counts == {"file-missing": KEPT_MAX + 10, "row-stale": 2}
    assert [one.code for one in report.findings[KEPT_MAX - 1 :]] == ["file-missing", "row-stale"]


@pytest.mark.parametrize("code", sorted(CODES))
def test_every_kind_of_difference_is_explained(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.run(["explain", code]) == 0
    assert CODES[code] in capsys.readouterr().out.replace("\n", " ")

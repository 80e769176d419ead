"""``thermocline doctor``: everything that a deployment rests on, checked in order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from rich.text import Text

from thermocline.cli.output import show
from thermocline.cli.session import AsJson, session_of
from thermocline.text.typed import as_typed

if TYPE_CHECKING:
    from thermocline.doctor.finding import Examined, Finding

_WIDTH: Final = 18  # of the longest name, and a space
_STYLES: Final = {"well": "green", "warning": "yellow", "problem": "bold red", "not looked at": "dim"}
_OUTCOME_WIDTH: Final = 14
_TOLD: Final = ("warning", "problem")


def doctor(
    context: typer.Context,
    tables: Annotated[
        list[str] | None,
        typer.Option("--table", metavar="TABLE", help="Look at this table only. Repeatable. Default: all."),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Check all that a deployment rests on, and print fixes.

    Looks at the configuration, versions, this machine, Kafka and its topics, the catalog, the store, clocks,
    the newest records' keys, and the tables. Changes nothing: rights are tried by what has no effect, and by
    one small file in each store, which is deleted. Fixes can be pasted into a shell. Each check takes a
    minute at most; one whose source is unavailable is not looked at. Exit codes: 0 no problem (there may be
    warnings); 3 a source is unavailable; 2 a table, a topic or the configuration is wrong; 1 another problem;
    or that of the error that a table would stop with, such as 40.
    """
    session = session_of(context)
    from thermocline.doctor.check import Examination
    from thermocline.doctor.checks import CHECKS
    from thermocline.doctor.finding import exit_code_of
    from thermocline.doctor.run import examine
    from thermocline.process.clock import SystemClock

    examination = Examination(session.config, SystemClock(), tuple(dict.fromkeys(tables or ())))
    done: list[Examined] = []
    for one in examine(examination, CHECKS):
        done.append(one)
        if not as_json:
            show(None, Text("\n").join(_lines(one)), as_json)
    code = exit_code_of(done)
    document: dict[str, Any] = {"checks": [one.to_dict() for one in done], "exit_code": code}
    show(document, Text(_summed_up(done)), as_json)
    return code


def _lines(examined: Examined) -> Iterator[Text]:
    """A line for the check, and below it what needs to be looked at."""
    outcome = examined.outcome.value
    line = Text.assemble(
        (f"{outcome:<{_OUTCOME_WIDTH}}", _STYLES[outcome]),
        f"{examined.check:<{_WIDTH}}{examined.seconds:>6.2f} s  ",
    )
    good = [one for one in examined.findings if one.outcome.value not in _TOLD]
    yield line + Text("; ".join(map(_said, good)) or examined.asks)
    for one in examined.findings:
        if one.outcome.value in _TOLD:
            yield from _told(one)


def _told(finding: Finding) -> Iterator[Text]:
    code = f" [{finding.code}]" if finding.code else ""
    style = _STYLES[finding.outcome.value]
    yield Text.assemble(("  found  ", style), f"{_said(finding)}{code}")
    yield Text(f"  means  {finding.means}")
    for label, line in zip(("  fix    ", *[" " * 9] * 99), as_typed(finding.fix).splitlines(), strict=False):
        yield Text(f"{label}{line}")


def _said(finding: Finding) -> str:
    subject = f"{finding.subject}: " if finding.subject else ""
    return f"{subject}{finding.looked_at}"


def _summed_up(done: list[Examined]) -> str:
    counts = {outcome: sum(one.outcome.value == outcome for one in done) for outcome in _STYLES}
    said = [f"{count:,} {outcome}" for outcome, count in counts.items() if count]
    return f"\n{len(done):,} checks in {sum(one.seconds for one in done):.1f} s: {', '.join(said)}"

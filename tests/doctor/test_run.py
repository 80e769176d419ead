"""Checks in their order: what is down, what hangs and what breaks in one leaves the others their say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import pytest

from thermocline.doctor.check import Check, Examination
from thermocline.doctor.checks import CHECKS
from thermocline.doctor.finding import Examined, Finding, Outcome, exit_code_of, of_error, well
from thermocline.doctor.run import examine
from thermocline.errors import ExitCode, KafkaUnreachable, TableMissing, TopicMissing
from thermocline.process.clock import SystemClock

Look = Callable[[Examination], Sequence[Finding]]


def examination() -> Examination:
    return Examination(None, SystemClock())


def fails(_: Examination) -> Sequence[Finding]:
    raise KafkaUnreachable(bootstrap_servers="b:1", detail="refused")


def breaks(_: Examination) -> Sequence[Finding]:
    raise ZeroDivisionError


def check(name: str, look: Look, *needs: str, is_open: bool = True, seconds_max: float = 20.0) -> Check:
    return Check(name, "?", look, needs, lambda _: is_open, seconds_max)


def outcomes(*checks: Check) -> dict[str, str]:
    return {one.check: one.outcome.value for one in examine(examination(), checks)}


def test_what_is_down_takes_only_what_hangs_on_it_with_it() -> None:
    good: Look = lambda _: [well("seen")]  # noqa: E731
    assert outcomes(
        check("kafka", fails, is_open=False),
        check("topics", good, "kafka"),
        check("retention", good, "topics"),
        check("catalog", good),
    ) == {
        "kafka": "problem",
        "topics": "not looked at",
        "retention": "not looked at",
        "catalog": "well",
    }


def test_a_bug_in_a_check_is_said_and_the_others_go_on() -> None:
    good: Look = lambda _: [well("seen")]  # noqa: E731
    broken, after = examine(examination(), [check("a", breaks), check("b", good)])
    (finding,) = broken.findings
    assert (finding.code, finding.exit_code) == ("internal-error", ExitCode.BUG)
    assert after.outcome is Outcome.WELL


@pytest.fixture
def released() -> Iterator[threading.Event]:
    event = threading.Event()
    yield event
    event.set()


def test_a_check_that_hangs_is_given_up(released: threading.Event) -> None:
    def hangs(_: Examination) -> Sequence[Finding]:
        released.wait()
        return [well("seen")]

    (one,) = examine(examination(), [check("hangs", hangs, seconds_max=0.1)])
    (finding,) = one.findings
    assert (finding.outcome, finding.looked_at) == (Outcome.NOT_LOOKED_AT, "no answer within 0.1 s")


def test_a_package_that_is_not_installed_is_no_problem() -> None:
    def misses(_: Examination) -> Sequence[Finding]:
        raise ModuleNotFoundError("No module named 'trino'", name="trino")

    assert outcomes(check("trino", misses)) == {"trino": "not looked at"}


def test_the_exit_code_is_that_of_the_gravest_and_a_source_that_is_down_goes_before() -> None:
    def of(*findings: Finding) -> int:
        return exit_code_of([Examined("a", "?", findings, 0.0)])

    warning = Finding(Outcome.WARNING, "w", "m")
    topic = of_error(TopicMissing(topic="t", bootstrap_servers="b:1"))
    down = of_error(KafkaUnreachable(bootstrap_servers="b:1", detail="refused"))
    assert of(well("seen"), warning) == ExitCode.DONE
    assert of(warning, Finding(Outcome.PROBLEM, "p", "m")) == ExitCode.BAD_ANSWER
    assert of(Finding(Outcome.PROBLEM, "p", "m"), topic) == ExitCode.USAGE
    assert of(Finding(Outcome.PROBLEM, "p", "m", exit_code=ExitCode.STOPPED), down) == ExitCode.UNAVAILABLE


def test_the_next_step_of_an_error_can_be_pasted() -> None:
    missing = of_error(TopicMissing(topic="t", bootstrap_servers="b:1"))
    assert missing.fix == "# or correct the table's topics\nthermocline topic create t"
    assert of_error(TableMissing(table="t", identifier="app.t")).fix == "thermocline table create t"


def test_each_check_needs_only_what_comes_before_it() -> None:
    names = [one.name for one in CHECKS]
    assert len(set(names)) == len(names)
    for place, one in enumerate(CHECKS):
        assert set(one.needs) <= set(names[:place]), one.name

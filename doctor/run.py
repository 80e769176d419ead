"""Runs checks in order, each in a bounded time; one that can't look has only its dependents not look."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from thermocline.doctor.check import Check, Examination
from thermocline.doctor.finding import Examined, Finding, not_looked_at, of_error
from thermocline.errors import DependencyMissing, InternalError, ThermoclineError
from thermocline.process.answered import answered

__all__ = ["examine"]


def examine(examination: Examination, checks: Sequence[Check]) -> Iterator[Examined]:
    """Each check's result as it comes."""
    closed: set[str] = set()
    for check in checks:
        began = examination.clock.monotonic()
        missing = next((name for name in check.needs if name in closed), None)
        if missing is None:
            findings = _look(check, examination, began)
        else:
            findings = (not_looked_at(f'needs what "{missing}" looks for'),)
        if missing is not None or not check.is_open(examination):
            closed.add(check.name)  # safety: doctor-dependents
        yield Examined(check.name, check.asks, tuple(findings), examination.clock.monotonic() - began)


def _look(check: Check, examination: Examination, began: float) -> Sequence[Finding]:
    """What it finds, or why it could not look."""
    asked = {check.name: lambda: _findings(check, examination)}
    found = answered(asked, began + check.seconds_max).get(check.name)
    if found is None:
        return (not_looked_at(f"no answer within {check.seconds_max:g} s"),)
    return found or (not_looked_at("there is nothing to look at"),)


def _findings(check: Check, examination: Examination) -> Sequence[Finding]:
    try:
        return check.look(examination)
    except DependencyMissing as error:
        return (not_looked_at(f"needs {error.what_is_missing}: {error.how_to_get}"),)
    except ModuleNotFoundError as error:
        return (not_looked_at(f"needs the Python package {error.name}, which is not installed here"),)
    except ThermoclineError as error:
        return (of_error(error),)
    except Exception as error:  # noqa: BLE001  a bug in one check must not hide what the others find
        return (of_error(InternalError.of(error, f"the check {check.name}")),)

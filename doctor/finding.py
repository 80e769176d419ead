"""Findings: what a check saw, what that means, and the command that fixes it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from thermocline.errors import ExitCode, ThermoclineError
from thermocline.text.typed import as_typed

__all__ = ["Examined", "Finding", "Outcome", "exit_code_of", "not_looked_at", "of_error", "well"]


class Outcome(StrEnum):
    """How something is, from good to bad; what was not looked at may be either."""

    WELL = "well"
    NOT_LOOKED_AT = "not looked at"
    WARNING = "warning"
    PROBLEM = "problem"


_ORDER = tuple(Outcome)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    ``subject`` is whose it is: a table, a topic, a disk. ``means`` and ``fix`` are empty where all is well.
    A fix can be pasted into a shell; words in it are comments of the shell. ``exit_code`` is that of the
    command, if nothing graver is found.
    """

    outcome: Outcome
    looked_at: str
    means: str = ""
    fix: str = ""
    subject: str = ""
    code: str = ""
    exit_code: int = ExitCode.DONE

    def __post_init__(self) -> None:
        """A problem always has an exit code."""
        if self.outcome is Outcome.PROBLEM and self.exit_code == ExitCode.DONE:
            object.__setattr__(self, "exit_code", ExitCode.BAD_ANSWER)  # safety: doctor-exit-code

    def to_dict(self) -> dict[str, Any]:
        """For JSON output."""
        return {
            "outcome": self.outcome.value,
            "subject": self.subject,
            "looked_at": self.looked_at,
            "means": self.means,
            "fix": as_typed(self.fix) or None,
            "code": self.code or None,
        }


@dataclass(frozen=True, slots=True)
class Examined:
    """A check that was run: what it asks, what it found, and the time that took."""

    check: str
    asks: str
    findings: tuple[Finding, ...]
    seconds: float

    @property
    def outcome(self) -> Outcome:
        """The worst of its findings."""
        return max((one.outcome for one in self.findings), key=_ORDER.index)

    def to_dict(self) -> dict[str, Any]:
        """For JSON output."""
        return {
            "check": self.check,
            "asks": self.asks,
            "outcome": self.outcome.value,
            "seconds": round(self.seconds, 3),
            "findings": [one.to_dict() for one in self.findings],
        }


def well(looked_at: str, subject: str = "") -> Finding:
    """Nothing is to be done."""
    return Finding(Outcome.WELL, looked_at, subject=subject)


def not_looked_at(why: str, subject: str = "") -> Finding:
    """Nothing can be said, and why."""
    return Finding(Outcome.NOT_LOOKED_AT, why, subject=subject)


def of_error(error: ThermoclineError, subject: str = "", fix: str = "") -> Finding:
    """A problem that one of our errors says, with what that says to do next."""
    words, explained = error.next, f"thermocline explain {error.code}"
    return Finding(
        Outcome.PROBLEM,
        error.what,
        means="; ".join(filter(None, (error.cause, error.state))) or error.title(),
        fix=fix or (as_pasted(words) if words else explained),
        subject=subject,
        code=error.code,
        exit_code=error.exit_code,
    )


def as_pasted(words: str) -> str:
    """The next step of an error with its words as comments, so that a shell takes all of it."""
    lines = []
    for line in words.splitlines():
        is_command = line.startswith("thermocline ")
        command, _, remark = line.partition("      (")
        if is_command and remark:
            lines += [f"# {remark.removesuffix(')')}", command]
        else:
            lines.append(line if is_command else f"# {line}")
    return "\n".join(sorted(lines, key=lambda line: not line.startswith("#")))


def exit_code_of(examined: Iterable[Examined]) -> int:
    """That of the gravest finding, as `thermocline status` has them: 3 goes before all others."""
    codes = [finding.exit_code for one in examined for finding in one.findings]
    return int(ExitCode.UNAVAILABLE if ExitCode.UNAVAILABLE in codes else max(codes, default=ExitCode.DONE))


def or_well(findings: Sequence[Finding], looked_at: str) -> tuple[Finding, ...]:
    """The findings; where there is none, that all is well."""
    return tuple(findings) or (well(looked_at),)

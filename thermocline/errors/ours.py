"""Errors of Thermocline itself."""

from __future__ import annotations

from typing import Self

from thermocline.errors.root import SAME_COMMAND, ExitCode, ThermoclineError
from thermocline.process.masking import mask_password


class VerdictBad(ThermoclineError):
    """The demo found a wrong answer.

    The demo runs `thermocline verify` on the data that it wrote, and compares lookups and views with a plain
    replay of the log. All must agree, and everything must have been compared; a difference is a bug in
    Thermocline.

    Run it again with the same --seed and with --keep, and report the difference that it prints.
    """

    code = "verdict-bad"
    http_status = 500
    exit_code = ExitCode.BAD_ANSWER
    _what = "the demo found a wrong answer: {detail}"
    _next = f"{SAME_COMMAND}      (with --keep, to look around), and please report it"

    detail: str


class InternalError(ThermoclineError):
    """A bug in Thermocline.

    Something unexpected happened. Commits are atomic, so the table contains a batch and its seam entirely or
    not at all, and it is safe to repeat the command.

    Repeat it with THERMOCLINE_TRACEBACK=1 in the environment, and please report what it prints.
    """

    code = "internal-error"
    http_status = 500
    exit_code = ExitCode.BUG
    _what = "a bug in Thermocline ended {where}."
    _state = "commits are atomic: the table holds each batch entirely or not at all."
    _cause = "{detail}"
    _next = "repeat with THERMOCLINE_TRACEBACK=1 in the environment, and please report what it prints"

    detail: str
    where: str

    @classmethod
    def of(cls, error: BaseException, where: str) -> Self:
        """From an exception that nobody handled, in ``where``: a command or a request."""
        return cls(detail=mask_password(f"{type(error).__name__}: {error}"), where=where)

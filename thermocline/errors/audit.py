"""Errors of the audit log."""

from __future__ import annotations

from thermocline.errors.request import RequestError
from thermocline.errors.root import ExitCode


class AuditUnavailable(RequestError):
    """The server doesn't answer, since its audit log can't be written.

    With audit.required, nothing is read that the log would not tell of: while its file, stdout or topic takes
    no records, every request for data is refused. Records of what was answered before wait in memory, and are
    written when it takes them again.

    Nothing was read. Ask again in a moment. GET /readyz, GET /status and the server's own log say what is
    wrong: mostly a disk that is full, or a Kafka cluster that is unavailable. The server answers again by
    itself once that is repaired.
    """

    code = "audit-unavailable"
    http_status = 503
    exit_code = ExitCode.UNAVAILABLE
    retryable = True
    _what = "the server does not answer, since its audit log can't be written."
    _state = "nothing was read."
    _next = "ask again in a moment; whoever runs the server finds the reason at its /readyz"

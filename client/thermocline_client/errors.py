"""The errors that clients raise.

ClientError
 ├─ AccessInvalid         the key, the certificate or the CA file can't be used; nothing was sent
 ├─ Unreachable           no Thermocline server answered, even after retries
 │   └─ StreamCut         an extract broke off; what was read of it is incomplete
 ├─ UnsafeName            the server named a file that would lie outside the folder of a download
 ├─ JobFailed             an extract job failed or was cancelled
 └─ Problem               the server reported an error, with a code
     ├─ UnknownTable      the server has no such table
     ├─ BadParameter      a column or a value of the request is wrong
     ├─ RowNotFound       no row has that key; the error has the read point
     ├─ NotReady          the table can't be read yet
     └─ ReadAfterTimeout  the server didn't read the records of ``read_after`` in time
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from .answers import Answer

_PASSWORD: Final = re.compile(r"://[^/]*@")


class ClientError(Exception):
    """Root of the errors that clients raise, except `TypeError` and `ValueError` for wrong arguments."""

    retryable: bool = False
    """Whether the same request may succeed later. The client has already repeated it."""


class Unreachable(ClientError):
    """No Thermocline server answers at the URL. ``detail`` says what happened instead."""

    retryable = True

    def __init__(self, url: str, detail: str) -> None:
        self.url = _PASSWORD.sub("://", url)
        super().__init__(f"no Thermocline server answers at {self.url}: {detail}")
        self.detail = detail


class AccessInvalid(ClientError):
    """What you gave a client for access can't be used. Nothing was sent.

    ``argument`` is its name: ``key``, ``certificate``, ``ca_file`` or ``transport``. The error never quotes a
    key.
    """

    def __init__(self, argument: str, problem: str) -> None:
        super().__init__(f"{argument}: {problem}")
        self.argument = argument
        self.problem = problem


class StreamCut(Unreachable):
    """An extract broke off because the server or the connection failed."""


class UnsafeName(ClientError):
    """The server named a file by something other than a plain file name. Nothing was written."""

    def __init__(self, name: object) -> None:
        self.name = name
        super().__init__(
            f"the server names a file {json.dumps(str(name)[:200])}, which is no plain file name"
        )


class Problem(ClientError):
    """An error that the server reported. ``code`` never changes; `thermocline explain CODE` explains it.

    ``title``, ``detail`` and ``next``, what to do about it, are for people. ``body`` has all members of the
    ``application/problem+json`` answer.
    """

    def __init__(self, body: Mapping[str, Any]) -> None:
        """Reads the members of an ``application/problem+json`` answer."""
        self.code = str(body.get("code", ""))
        self.title = str(body.get("title", ""))
        self.status = int(body.get("status", 0))
        self.detail = str(body.get("detail", ""))
        self.next = str(body.get("next", ""))
        self.retryable = bool(body.get("retryable", False))
        self.body: Final = body
        super().__init__(f"[{self.code}] {self.detail or self.title}")


class UnknownTable(Problem):
    """The server has no table with that name."""


class BadParameter(Problem):
    """A column, a value or a condition in the request is wrong; ``detail`` says which."""


class RowNotFound(Problem):
    """The table has no row with that key. ``answer`` has no rows; its read point says as of when."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        """Reads the members of the answer, which has a read point too."""
        super().__init__(body)
        self.answer = Answer.of({**body, "table": (body.get("facts") or {}).get("table", ""), "rows": []})


class NotReady(Problem):
    """The table can't be read yet, because the server has just started or is catching up."""


class ReadAfterTimeout(Problem):
    """The server didn't read the records of ``read_after`` in time: they don't exist, or it lags behind."""


class TooManyRequests(Problem):
    """You asked for more than you may. ``retry_after_seconds`` says when you may again."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        """Reads the members of the answer."""
        super().__init__(body)
        self.retry_after_seconds = float((body.get("facts") or {}).get("retry_after_seconds", 0.0))


_BY_CODE: Final[Mapping[str, type[Problem]]] = {
    "unknown-table": UnknownTable,
    "bad-parameter": BadParameter,
    "row-not-found": RowNotFound,
    "not-ready": NotReady,
    "read-after-timeout": ReadAfterTimeout,
    "too-many-requests": TooManyRequests,
}


def problem_of(body: Mapping[str, Any]) -> Problem:
    """Returns the error that an ``application/problem+json`` answer reports."""
    return _BY_CODE.get(str(body.get("code")), Problem)(body)

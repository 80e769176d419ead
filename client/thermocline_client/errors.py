"""Errors that a client raises.

ClientError
 ├─ Unreachable           no Thermocline server answered, as often as it was asked
 │   └─ StreamCut         an extract ended before its end; what was read of it is incomplete
 ├─ UnsafeName            the server names a file that would not be in the folder of a download
 ├─ JobFailed             an extract job failed or was cancelled
 └─ Problem               the server's own error, by its code
     ├─ UnknownTable      the server has no such table
     ├─ BadParameter      a column or a value of the request is wrong
     ├─ RowNotFound       no row has that key; says where that was read
     ├─ NotReady          the table can't be read yet
     └─ ReadAfterTimeout  the records of ``read_after`` weren't read in time
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from .answers import Answer

_PASSWORD: Final = re.compile(r"://[^/]*@")


class ClientError(Exception):
    """The root of all that a client raises on purpose, but for `TypeError` and `ValueError`."""

    retryable: bool = False
    """Whether the same request may succeed in a while; a client has tried that already."""


class Unreachable(ClientError):
    """No Thermocline server answers at the URL. ``detail`` says how that came out."""

    retryable = True

    def __init__(self, url: str, detail: str) -> None:
        self.url = _PASSWORD.sub("://", url)
        super().__init__(f"no Thermocline server answers at {self.url}: {detail}")
        self.detail = detail


class StreamCut(Unreachable):
    """An extract ended before its end: the server or the connection failed."""


class UnsafeName(ClientError):
    """The server names a file by what is no plain file name. Nothing was written."""

    def __init__(self, name: object) -> None:
        self.name = name
        super().__init__(
            f"the server names a file {json.dumps(str(name)[:200])}, which is no plain file name"
        )


class Problem(ClientError):
    """An error of the server. ``code`` never changes; `thermocline explain CODE` tells more about it."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        """From the members of an ``application/problem+json`` answer."""
        self.code = str(body.get("code", ""))
        self.title = str(body.get("title", ""))
        self.status = int(body.get("status", 0))
        self.detail = str(body.get("detail", ""))
        self.next = str(body.get("next", ""))
        self.retryable = bool(body.get("retryable", False))
        self.body: Final = body
        super().__init__(f"[{self.code}] {self.detail or self.title}")


class UnknownTable(Problem):
    """The server has no table of that name."""


class BadParameter(Problem):
    """A column, a value or a condition of the request is wrong; ``detail`` says which."""


class RowNotFound(Problem):
    """The table has no row with that key. ``answer`` has no rows, and says as of when that is so."""

    def __init__(self, body: Mapping[str, Any]) -> None:
        """As `Problem`."""
        super().__init__(body)
        self.answer = Answer.of({**body, "table": (body.get("facts") or {}).get("table", ""), "rows": []})


class NotReady(Problem):
    """The table can't be read yet: the server has just started, or is catching up."""


class ReadAfterTimeout(Problem):
    """The records of ``read_after`` weren't read in time: they don't exist, or the server lags."""


_BY_CODE: Final[Mapping[str, type[Problem]]] = {
    "unknown-table": UnknownTable,
    "bad-parameter": BadParameter,
    "row-not-found": RowNotFound,
    "not-ready": NotReady,
    "read-after-timeout": ReadAfterTimeout,
}


def problem_of(body: Mapping[str, Any]) -> Problem:
    """The error that an ``application/problem+json`` answer tells of."""
    return _BY_CODE.get(str(body.get("code")), Problem)(body)

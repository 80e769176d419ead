"""Asks a running server through the Python client, and raises the server's errors as those of commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Self, TypeVar

import httpx

from thermocline import client
from thermocline.cli.server_access import access_errors, server_access
from thermocline.client.blocking import Connection
from thermocline.client.requests import Body, Steps
from thermocline.client.requests import Wanted as Extracted
from thermocline.client.retries import DEFAULT
from thermocline.errors import (
    BadParameter,
    ExtractJobUnusable,
    InternalError,
    ServerUnreachable,
    ThermoclineError,
    all_errors,
)
from thermocline.rules.read_point import ReadPoint, parse_read_after
from thermocline.serving.read.wanted import Wanted

T = TypeVar("T")


class Client:
    """Client for one server that returns its JSON as it is. Close it when done.

    Requests are repeated as the Python client repeats them. All methods raise the server's own errors,
    `ServerUnreachable` if no server answers at the URL or its answer broke off, and `BadParameter` if an
    argument is not valid text. Who asks, and which servers are trusted, the variables of `server_access` say.
    """

    def __init__(
        self,
        url: str,
        transport: httpx.BaseTransport | None = None,
        retries: client.Retries = DEFAULT,
    ) -> None:
        self._url = url.rstrip("/")
        access = server_access()
        if transport is not None:
            access["transport"] = transport
        with server_errors(self._url):
            self._connection = Connection(url, retries=retries, **access)
        self._requests = self._connection.requests

    def lookup(self, table: str, parameters: Mapping[str, str], read_after: str | None = None) -> Body:
        """Returns the answer for one entity or one row."""
        return self._run(self._requests.lookup(table, parameters, _checked(read_after)))

    def explained(self, table: str, parameters: Mapping[str, str], read_after: str | None = None) -> Body:
        """Returns the answer for one entity or one row, with where each row came from."""
        return self._run(self._requests.explained(table, parameters, _checked(read_after)))

    def batch(
        self, table: str, entities: Sequence[Mapping[str, int | str]], read_after: str | None = None
    ) -> Body:
        """Returns the answer for up to 1,000 entities, at least one."""
        (answer,) = self._run(self._requests.lookup_many(table, entities, _checked(read_after)))
        return answer

    def refused(self, table: str, count_max: int) -> Body:
        """Returns the refused records that are not committed yet."""
        return self._run(self._requests.refused(table, count_max))

    def extract(
        self,
        table: str,
        wanted: Wanted | None,
        format_name: str,
        sink: BinaryIO,
        progress: Callable[[int], None],
        coding: str | None = None,
    ) -> ReadPoint:
        """Writes the wanted part of a table, or all of it, to ``sink``, and returns its read point.

        ``progress`` is called with the number of bytes so far. With a coding, text arrives compressed and is
        written so.
        """
        asked = _extracted(wanted or Wanted())
        with server_errors(self._url):
            info = self._connection.download(table, asked, sink, format_name, coding, progress)
        return ReadPoint.parse(info.read_point.to_json())

    def close(self) -> None:
        """Closes the connections."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, steps: Steps[T]) -> T:
        with server_errors(self._url):
            return self._connection.run(steps)


@contextmanager
def server_errors(url: str) -> Iterator[None]:
    """Raises the errors of a client, which asks the server at ``url``, as those of commands."""
    try:
        with access_errors():
            yield
    except client.Problem as problem:
        raise error_of(problem.body) from problem
    except UnicodeEncodeError as error:  # what a shell gave
        raise BadParameter(name="request", problem="a value is not valid UTF-8") from error
    except client.Unreachable as error:
        raise ServerUnreachable(url=url, detail=error.detail) from error
    except client.UnsafeName as error:
        name = str(error.name)[:200]
        detail = f'it names a file "{name}", which is no plain file name; nothing was written'
        raise ServerUnreachable(url=url, detail=detail) from error
    except client.JobFailed as failed:
        job = failed.job
        raise ExtractJobUnusable(
            table=job.table, job=job.id, problem=f"is {job.state}", detail=job.problem or ""
        ) from failed


def _checked(read_after: str | None) -> str | None:
    """Returns what a request must include, None if nothing. Raises `BadParameter`."""
    if not read_after:
        return None
    parse_read_after(read_after)
    return read_after


def _extracted(wanted: Wanted) -> Extracted:
    assert wanted.where is None or isinstance(wanted.where, str), "a server parses it"
    since = None if wanted.since is None else client.ReadPoint.parse(wanted.since.to_header())
    return Extracted(wanted.columns, wanted.where, wanted.limit, None, since)


def error_of(problem: Mapping[str, Any]) -> ThermoclineError:
    """Returns the server's error as the same error here, if its facts came along.

    A cause that the server keeps to itself is in its log.
    """
    code, facts = str(problem.get("code")), problem.get("facts")
    error_class = all_errors().get(code)
    if error_class is not None and isinstance(facts, dict):
        untold = dict.fromkeys(error_class.kept() - facts.keys(), "the server's log tells it")
        try:
            facts |= {name: problem[name] for name in error_class.members}
            return error_class(**untold, **{name: _fact(value) for name, value in facts.items()})
        except (TypeError, KeyError):  # of another release
            pass
    return InternalError(detail=f"{code}: {problem.get('detail')}", where="the server")


def _fact(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value

"""Asks a running server, with the same facts in its errors as the server's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, BinaryIO, Final, Self

import httpx
import msgspec

from thermocline.client.requests import PROBLEM_TYPE, STREAM_TIMEOUT_SECONDS, TIMEOUT_SECONDS
from thermocline.client.streams import END_OF_STREAM, FORMATS, READ_POINT
from thermocline.errors import BadParameter, InternalError, ServerUnreachable, ThermoclineError, all_errors
from thermocline.rules.read_point import HEADER as READ_AFTER
from thermocline.rules.read_point import ReadPoint, parse_read_after
from thermocline.serving.read.wanted import Wanted

STREAM_TIMEOUT: Final = httpx.Timeout(TIMEOUT_SECONDS, read=STREAM_TIMEOUT_SECONDS)
CHUNK_BYTES: Final = 1 << 20


class Client:
    """One server, by its URL. To be closed."""

    def __init__(self, url: str, transport: httpx.BaseTransport | None = None) -> None:
        self._url = url.rstrip("/")
        with self._reached():
            self._http = httpx.Client(base_url=self._url, timeout=TIMEOUT_SECONDS, transport=transport)

    def lookup(
        self, table: str, parameters: Mapping[str, str], read_after: str | None = None
    ) -> dict[str, object]:
        """One entity's or one row's answer, as the server's JSON says it.

        Raises:
            BadParameter: something is not valid text.
            ServerUnreachable: nobody answers there.
            ThermoclineError: the server's own error.
        """
        headers = _headers(read_after)
        with self._reached():
            response = self._http.get(f"/v1/tables/{table}/rows", params=dict(parameters), headers=headers)
        self._check(response)
        answer: dict[str, object] = msgspec.json.decode(response.content)
        return answer

    def batch(
        self, table: str, entities: Sequence[Mapping[str, object]], read_after: str | None = None
    ) -> dict[str, Any]:
        """The answer for several entities, integers as numbers and all else as text, as the server's JSON.

        Raises what ``lookup`` raises; an entity without rows is none of it.
        """
        headers = _headers(read_after)
        with self._reached():
            path = f"/v1/tables/{table}/rows:batch"
            response = self._http.post(path, json={"entities": list(entities)}, headers=headers)
        self._check(response)
        answer: dict[str, Any] = msgspec.json.decode(response.content)
        return answer

    def refused(self, table: str, count_max: int) -> dict[str, Any]:
        """The refused records that are not committed yet, as the server's JSON says it.

        Raises what ``lookup`` raises.
        """
        with self._reached():
            response = self._http.get(f"/v1/tables/{table}/refused", params={"limit": count_max})
        self._check(response)
        answer: dict[str, Any] = msgspec.json.decode(response.content)
        return answer

    def extract(
        self,
        table: str,
        wanted: Wanted | None,
        format_name: str,
        sink: BinaryIO,
        progress: Callable[[int], None],
        coding: str | None = None,
    ) -> ReadPoint:
        """Writes what is wanted of a table to ``sink``, telling the bytes so far; where it was read.

        ``wanted`` is None for all of it. With a coding, text arrives and is written compressed.

        Raises:
            ServerUnreachable: nobody answers there, or the stream broke off.
            ThermoclineError: the server's own error.
        """
        media_type, end_mark = FORMATS[format_name]
        accept = {"Accept": media_type, "Accept-Encoding": coding or "identity"}
        body = _body(wanted or Wanted())
        path = f"/v1/tables/{table}/extract"
        received, tail = 0, b""
        with (
            self._reached(),
            self._http.stream("POST", path, json=body, headers=accept, timeout=STREAM_TIMEOUT) as response,
        ):
            if response.is_error:
                response.read()
            self._check(response, is_ours=READ_POINT in response.headers)
            for chunk in response.iter_raw(CHUNK_BYTES):
                sink.write(chunk)
                received += len(chunk)
                tail = (tail + chunk)[-len(END_OF_STREAM) :]
                progress(received)
        if not tail.endswith(end_mark):  # without a mark, the end of chunks is one
            raise ServerUnreachable(url=self._url, detail=f"the stream broke off after {received} bytes")
        return ReadPoint.parse(response.headers[READ_POINT])

    def close(self) -> None:
        """Ends the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _reached(self) -> Iterator[None]:
        try:
            yield
        except (httpx.TransportError, httpx.InvalidURL) as error:
            detail = str(error) or type(error).__name__
            raise ServerUnreachable(url=self._url, detail=detail) from error
        except UnicodeEncodeError as error:  # what a shell gave
            raise BadParameter(name="request", problem="a value is not valid UTF-8") from error

    def _check(self, response: httpx.Response, is_ours: bool | None = None) -> None:
        """``is_ours``: whether a success is a server's of ours; by default, if it is JSON."""
        content_type = response.headers.get("content-type", "")
        if is_ours is None:
            is_ours = content_type.startswith("application/json")
        if response.is_success and is_ours:
            return
        if content_type.startswith(PROBLEM_TYPE):
            raise error_of(msgspec.json.decode(response.content))
        detail = f"it answered {response.status_code} without a problem of ours; is it a Thermocline server?"
        raise ServerUnreachable(url=self._url, detail=detail)


def _headers(read_after: str | None) -> dict[str, str]:
    if not read_after:
        return {}
    parse_read_after(read_after)
    return {READ_AFTER: read_after}


def _body(wanted: Wanted) -> dict[str, object]:
    since = wanted.since and wanted.since.to_dict()
    fields = {"columns": wanted.columns, "where": wanted.where, "limit": wanted.limit, "since": since}
    return {name: value for name, value in fields.items() if value is not None}


def error_of(problem: Mapping[str, Any]) -> ThermoclineError:
    """The server's error as the same error here, where its facts came along.

    What a server keeps to itself of the cause is in its log.
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

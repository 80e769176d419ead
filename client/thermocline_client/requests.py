"""Builds requests and judges their answers without sending anything, for all clients.

Each request is a generator. It yields the next step, a `Call` to send or a `Wait`, and receives what came of
it: the response, or httpx's error if there was none. The generator returns the answer.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx

from .answers import KeyValue, ReadAfter, ReadPoint, key_json, key_text, read_after_text
from .errors import ClientError, ReadAfterTimeout, Unreachable, problem_of
from .jobs import MANIFEST, ExtractJob
from .retries import Retries, retry_after_seconds
from .streams import READ_POINT

# As many as a server takes at once.
ENTITIES_MAX: Final = 1_000
# An answer may wait for read_after (10 s by default).
TIMEOUT_SECONDS: Final = 60.0
# An extract waits for those before it, for the log to be read, and for a row that matches.
STREAM_TIMEOUT_SECONDS: Final = 900.0
PROBLEM_TYPE: Final = "application/problem+json"
ANSWER_TYPE: Final = "application/json"
READ_AFTER: Final = "Thermocline-Read-After"
# What proxies answer for servers that are starting or busy. All else without a problem is another server's.
BUSY: Final = (429, 502, 503, 504)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call:
    """A request to send. If ``is_streamed``, the body of a successful answer is not read at once."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_streamed: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """A pause before the next step."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which part of a table an extract has; None means no restriction."""

    columns: Sequence[str] | None
    where: str | None
    limit: int | None
    read_after: ReadAfter | None
    since: ReadPoint | None = None


Body = dict[str, Any]
"""The JSON of an answer."""
Reply = httpx.Response | httpx.TransportError | None
Steps = Generator[Call | Wait, Reply, T]


@dataclass(frozen=True, slots=True)
class Requests:
    """Builds the requests of one client. Raises `Unreachable` if the URL is invalid."""

    url: str
    retries: Retries

    def __post_init__(self) -> None:
        try:
            httpx.URL(self.url)
        except httpx.InvalidURL as error:  # it may quote a password
            raise Unreachable(self.url, "it is not a valid URL") from error

    def lookup(self, table: str, entity: Mapping[str, KeyValue], read_after: ReadAfter | None) -> Steps[Body]:
        """Looks up one entity, or one row."""
        return (yield from self._looked_up(_path(table, "rows"), entity, read_after))

    def explained(
        self, table: str, entity: Mapping[str, KeyValue], read_after: ReadAfter | None
    ) -> Steps[Body]:
        """Looks up one entity, or one row, and where each row came from."""
        return (yield from self._looked_up(_path(table, "rows/explained"), entity, read_after))

    def lookup_many(
        self, table: str, entities: Iterable[Mapping[str, KeyValue]], read_after: ReadAfter | None
    ) -> Steps[list[Body]]:
        """Looks up several entities, and returns the answer to each request of up to 1,000 of them."""
        headers = _headers(read_after)
        left = ({name: key_json(value) for name, value in entity.items()} for entity in entities)
        answers: list[Body] = []
        while batch := list(islice(left, ENTITIES_MAX)):
            call = Call("POST", _path(table, "rows:batch"), json={"entities": batch}, headers=headers)
            response = yield from self._answered(call)
            answers.append(_body(response))
        return answers

    def refused(self, table: str, limit: int) -> Steps[Body]:
        """Lists refused records."""
        response = yield from self._answered(Call("GET", _path(table, "refused"), {"limit": str(limit)}))
        return _body(response)

    def extract(
        self, table: str, wanted: Wanted, media_type: str, coding: str | None = None
    ) -> Steps[httpx.Response]:
        """Returns a response to stream, compressed if a coding is named."""
        named: dict[str, Any] = {"columns": wanted.columns and list(wanted.columns), "where": wanted.where}
        since = wanted.since and wanted.since.to_dict()
        named |= {"limit": wanted.limit, "since": since}
        body = {name: value for name, value in named.items() if value is not None}
        accepted = {"Accept": media_type, "Accept-Encoding": coding or "identity"}
        headers = {**accepted, **_headers(wanted.read_after)}
        call = Call("POST", _path(table, "extract"), json=body, headers=headers, is_streamed=True)
        return (yield from self._answered(call))

    def start_extract(self, table: str, body: Mapping[str, Any]) -> Steps[ExtractJob]:
        """Starts a job. Its id is in the body, so that a repeated request doesn't start a second one."""
        named = {name: value for name, value in body.items() if value is not None}
        response = yield from self._answered(Call("POST", _path(table, "extracts"), json=named))
        return ExtractJob.of(response.json())

    def extract_job(self, table: str, job_id: str) -> Steps[ExtractJob]:
        """Returns a job."""
        response = yield from self._answered(Call("GET", _job_path(table, job_id)))
        return ExtractJob.of(response.json())

    def extract_jobs(self, table: str) -> Steps[list[ExtractJob]]:
        """Lists a table's jobs."""
        response = yield from self._answered(Call("GET", _path(table, "extracts")))
        return [ExtractJob.of(one) for one in response.json()["extracts"]]

    def cancel_extract(self, table: str, job_id: str) -> Steps[ExtractJob]:
        """Cancels a job."""
        response = yield from self._answered(Call("DELETE", _job_path(table, job_id)))
        return ExtractJob.of(response.json())

    def extract_manifest(self, job: ExtractJob) -> Steps[bytes]:
        """Returns the manifest of a complete job, byte for byte."""
        path = f"{_job_path(job.table, job.id)}/files/{MANIFEST}"
        response = yield from self._answered(Call("GET", path))
        return response.content

    def _looked_up(
        self, path: str, entity: Mapping[str, KeyValue], read_after: ReadAfter | None
    ) -> Steps[Body]:
        params = {name: key_text(value) for name, value in entity.items()}
        response = yield from self._answered(Call("GET", path, params, headers=_headers(read_after)))
        return _body(response)

    def _answered(self, call: Call) -> Steps[httpx.Response]:
        """Returns the response to a call, which is repeated if that may help."""
        started = time.monotonic()
        for attempts in count(1):
            reply = yield call
            failure = self._failure(call, reply)
            if failure is None:
                assert isinstance(reply, httpx.Response)
                return reply
            header = reply.headers.get("Retry-After") if isinstance(reply, httpx.Response) else None
            elapsed = time.monotonic() - started
            wait = self.retries.wait_seconds(attempts, elapsed, retry_after_seconds(header))
            # The server has waited for read_after already, as long as it may.
            if not failure.retryable or wait is None or isinstance(failure, ReadAfterTimeout):
                raise failure
            yield Wait(wait)
        raise AssertionError

    def _failure(self, call: Call, reply: Reply) -> ClientError | None:
        if not isinstance(reply, httpx.Response):
            failure = Unreachable(self.url, str(reply) or type(reply).__name__)
            failure.__cause__ = reply
            return failure
        if is_answer(call, reply):
            return None
        if reply.is_error and _type_of(reply).startswith(PROBLEM_TYPE):
            return problem_of(reply.json())
        stranger = Unreachable(self.url, f"it answered {reply.status_code}; is it a Thermocline server?")
        stranger.retryable = reply.status_code in BUSY
        return stranger


def is_answer(call: Call, response: httpx.Response) -> bool:
    """Whether a response is the answer to a call. Another server's page isn't, even with status 200."""
    is_ours = (
        READ_POINT in response.headers if call.is_streamed else _type_of(response).startswith(ANSWER_TYPE)
    )
    return response.is_success and is_ours


def timeout_of(call: Call, seconds: float) -> httpx.Timeout:
    """Returns the timeout of a call, given that of the client; a streamed call waits longer for data."""
    read_seconds = max(seconds, STREAM_TIMEOUT_SECONDS) if call.is_streamed else seconds
    return httpx.Timeout(seconds, read=read_seconds)


def _body(response: httpx.Response) -> Body:
    body: Body = response.json()
    return body


def _type_of(response: httpx.Response) -> str:
    return str(response.headers.get("Content-Type", ""))


def _path(table: str, rest: str) -> str:
    return f"/v1/tables/{quote(table, safe='')}/{rest}"


def _job_path(table: str, job_id: str) -> str:
    return f"{_path(table, 'extracts')}/{quote(job_id, safe='')}"


def _headers(read_after: ReadAfter | None) -> dict[str, str]:
    return {} if read_after is None else {READ_AFTER: read_after_text(read_after)}

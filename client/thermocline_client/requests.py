"""The requests and what is made of their answers, without sending any: blocking and async clients share it.

Each request is a generator. It yields what is to be done next, a `Call` to send or a `Wait`, and is sent what
came of it: the response, or httpx's error where there was none. Its value is the answer.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx

from .answers import (
    Answer,
    KeyValue,
    ReadAfter,
    ReadPoint,
    Refused,
    key_json,
    key_text,
    read_after_text,
)
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
    """A request to be sent. ``is_streamed``: the body of a successful answer is not read at once."""

    method: str
    path: str
    params: Mapping[str, str] = field(default_factory=dict)
    json: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    is_streamed: bool = False


@dataclass(frozen=True, slots=True)
class Wait:
    """A pause."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Wanted:
    """What an extract has of a table; None is no restriction."""

    columns: Sequence[str] | None
    where: str | None
    limit: int | None
    read_after: ReadAfter | None
    since: ReadPoint | None = None


Reply = httpx.Response | httpx.TransportError | None
Steps = Generator[Call | Wait, Reply, T]


@dataclass(frozen=True, slots=True)
class Requests:
    """The requests of one client."""

    url: str
    retries: Retries

    def __post_init__(self) -> None:
        """Raises `Unreachable` for what is no URL."""
        try:
            httpx.URL(self.url)
        except httpx.InvalidURL as error:  # which may quote a password
            raise Unreachable(self.url, "it is not a valid URL") from error

    def lookup(
        self, table: str, entity: Mapping[str, KeyValue], read_after: ReadAfter | None
    ) -> Steps[Answer]:
        """One entity, or one row."""
        params = {name: key_text(value) for name, value in entity.items()}
        call = Call("GET", _path(table, "rows"), params, headers=_headers(read_after))
        response = yield from self._answered(call)
        return Answer.of(response.json())

    def lookup_many(
        self, table: str, entities: Iterable[Mapping[str, KeyValue]], read_after: ReadAfter | None
    ) -> Steps[list[Answer]]:
        """Several entities, in requests of as many as a server takes."""
        headers = _headers(read_after)
        left = ({name: key_json(value) for name, value in entity.items()} for entity in entities)
        answers: list[Answer] = []
        while batch := list(islice(left, ENTITIES_MAX)):
            call = Call("POST", _path(table, "rows:batch"), json={"entities": batch}, headers=headers)
            response = yield from self._answered(call)
            answers += Answer.all_of(response.json())
        return answers

    def refused(self, table: str, limit: int) -> Steps[Refused]:
        """Refused records."""
        response = yield from self._answered(Call("GET", _path(table, "refused"), {"limit": str(limit)}))
        return Refused.of(response.json())

    def extract(
        self, table: str, wanted: Wanted, media_type: str, coding: str | None = None
    ) -> Steps[httpx.Response]:
        """The response to be streamed, compressed where a coding is named."""
        named: dict[str, Any] = {"columns": wanted.columns and list(wanted.columns), "where": wanted.where}
        since = wanted.since and wanted.since.to_dict()
        named |= {"limit": wanted.limit, "since": since}
        body = {name: value for name, value in named.items() if value is not None}
        accepted = {"Accept": media_type, "Accept-Encoding": coding or "identity"}
        headers = {**accepted, **_headers(wanted.read_after)}
        call = Call("POST", _path(table, "extract"), json=body, headers=headers, is_streamed=True)
        return (yield from self._answered(call))

    def start_extract(self, table: str, body: Mapping[str, Any]) -> Steps[ExtractJob]:
        """A job, by the id in its body: so a repeated request starts no second one."""
        named = {name: value for name, value in body.items() if value is not None}
        response = yield from self._answered(Call("POST", _path(table, "extracts"), json=named))
        return ExtractJob.of(response.json())

    def extract_job(self, table: str, job_id: str) -> Steps[ExtractJob]:
        """How far a job is."""
        response = yield from self._answered(Call("GET", _job_path(table, job_id)))
        return ExtractJob.of(response.json())

    def extract_jobs(self, table: str) -> Steps[list[ExtractJob]]:
        """A table's jobs."""
        response = yield from self._answered(Call("GET", _path(table, "extracts")))
        return [ExtractJob.of(one) for one in response.json()["extracts"]]

    def cancel_extract(self, table: str, job_id: str) -> Steps[ExtractJob]:
        """The end of a job."""
        response = yield from self._answered(Call("DELETE", _job_path(table, job_id)))
        return ExtractJob.of(response.json())

    def extract_manifest(self, job: ExtractJob) -> Steps[bytes]:
        """The manifest of a complete job, as it is in its folder."""
        path = f"{_job_path(job.table, job.id)}/files/{MANIFEST}"
        response = yield from self._answered(Call("GET", path))
        return response.content

    def _answered(self, call: Call) -> Steps[httpx.Response]:
        """The response to a call, repeated where that may help."""
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
    """Whether it is what the call asks for: a page of some other server is none, also with status 200."""
    is_ours = (
        READ_POINT in response.headers if call.is_streamed else _type_of(response).startswith(ANSWER_TYPE)
    )
    return response.is_success and is_ours


def timeout_of(call: Call, seconds: float) -> httpx.Timeout:
    """What the call's connection may take to do the next step; ``seconds`` are of any call."""
    read_seconds = max(seconds, STREAM_TIMEOUT_SECONDS) if call.is_streamed else seconds
    return httpx.Timeout(seconds, read=read_seconds)


def _type_of(response: httpx.Response) -> str:
    return str(response.headers.get("Content-Type", ""))


def _path(table: str, rest: str) -> str:
    return f"/v1/tables/{quote(table, safe='')}/{rest}"


def _job_path(table: str, job_id: str) -> str:
    return f"{_path(table, 'extracts')}/{quote(job_id, safe='')}"


def _headers(read_after: ReadAfter | None) -> dict[str, str]:
    return {} if read_after is None else {READ_AFTER: read_after_text(read_after)}

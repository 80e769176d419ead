"""Every error over HTTP in one shape, ``application/problem+json``; and what all requests share.

`Requests` is the outermost layer of the app: it names each request, counts it, and turns what nobody foresaw
into a problem that shows nothing of our insides; the log has the traceback under the same request id.
``Requests.known`` is the short way through the same layer, for a lookup that can be answered at once.
"""

from __future__ import annotations

import logging
import math
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import msgspec
from fastapi.exceptions import RequestValidationError
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.routing import Match

from thermocline.errors import (
    BadParameter,
    BadRequest,
    InternalError,
    RequestError,
    StorageFailed,
    ThermoclineError,
    TooManyRequests,
    Unauthenticated,
)
from thermocline.process.logs import fields
from thermocline.process.metrics import REQUEST_SECONDS, REQUESTS
from thermocline.serving.access.audit import Access, rows_in
from thermocline.serving.access.connections import Peer
from thermocline.serving.http.catalog_problems import PREFIX, catalog_problem
from thermocline.serving.http.guard import ALLOWANCE, OPEN, Allowance, Guard
from thermocline.serving.http.noted import NOTED, VERBS, Noted
from thermocline.serving.http.open_connections import UNCONFIGURED, Bounds, OpenConnections
from thermocline.serving.http.pages import guarded
from thermocline.serving.http.requests import BODY_BYTES_MAX, header_of, headers_of
from thermocline.serving.http.site.session import Session, is_open, is_page
from thermocline.serving.http.site.sign_in import CREDENTIALS, SIGNED_IN, sign_in_page
from thermocline.serving.read.caller import Action, Caller, Credentials
from thermocline.serving.read.encode import PROBLEM_TYPE
from thermocline.serving.store.measures import Tally

if TYPE_CHECKING:
    from fastapi import APIRouter, FastAPI
    from starlette.routing import BaseRoute
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from thermocline.serving.access.audit import AuditLog
    from thermocline.serving.http.direct import Direct

# What a caller may call a request: enough for a UUID or a trace id, and nothing that could forge a log line.
REQUEST_ID_FORM: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
# After this, a caller with a retryable problem may try again; a hot tier catches up within seconds.
RETRY_AFTER_SECONDS: Final = 1
SERVER_ERROR: Final = 500
BAD_REQUEST: Final = 400
# Of a Content-Type that an error quotes, in characters.
CONTENT_TYPE_MAX: Final = 200
# What a page of another origin may ask with, and see of an answer beside its body.
_CORS_METHODS: Final = ("GET", "HEAD", "POST", "DELETE")
_CORS_HEADERS: Final = (
    "Authorization",
    "Thermocline-Read-After",
    "X-Request-Id",
    "Content-Type",
    "Range",
    "If-Range",
)
_CORS_EXPOSED: Final = (
    *("Thermocline-Read-Point", "Thermocline-Age-Seconds", "Thermocline-Stale", "Thermocline-Refused"),
    *("Thermocline-Refused-Unlisted", "X-Request-Id", "Retry-After", "ETag", "Content-Range"),
)
CALLER: Final = "thermocline.caller"
"""Where a request's scope has who asks."""
PEER: Final = "thermocline.peer"
"""Where the state of a request's scope has the `Peer` that it comes from."""
IS_HEAD: Final = "thermocline.is-head"
"""A request's scope has it where only the head of the answer is wanted."""
_CHALLENGE: Final = 'Bearer realm="thermocline", Basic realm="thermocline"'
"""A browser asks for a password then, which is the key."""
_PROBES: Final = frozenset({"/livez", "/readyz", "/version"})
_UNAUDITED: Final = frozenset({*_PROBES, "/metrics", "/status", "/docs", "/openapi.json"})
"""By which an operator finds out why the audit log does not take anything."""
_NOBODY: Final = Caller("nobody", {})
ROWS_PATH: Final = "/v1/tables/{table}/rows"

Headers = list[tuple[bytes, bytes]]

_REQUEST_ID: Final = b"x-request-id"

log = logging.getLogger(__name__)

# Finding a metric by its labels costs as much as counting.
_answers_of = cache(REQUESTS.labels)
_seconds_of = cache(REQUEST_SECONDS.labels)


def problem_response(error: ThermoclineError, instance: str) -> Response:
    """An error as an HTTP answer; ``instance`` is the path that was asked for.

    Its typed facts come along, so that a client can rebuild the error; the whole cause, where it concerns the
    caller's request.
    """
    headers: dict[str, str] = {}
    if isinstance(error, BadRequest) and error.allowed:
        headers["Allow"] = ", ".join(error.allowed)
    if isinstance(error, BadRequest) and error.answered == BAD_REQUEST:
        headers["Connection"] = "close"
    if isinstance(error, Unauthenticated):
        headers["WWW-Authenticate"] = _CHALLENGE
    if error.is_retryable:
        headers["Retry-After"] = str(_retry_after_seconds(error))
    return Response(msgspec.json.encode(_problem(error, instance)), error.status, headers, PROBLEM_TYPE)


def _answer_of(error: ThermoclineError, path: str) -> Response:
    if not path.startswith(f"{PREFIX}/"):
        return problem_response(error, path)
    answer = catalog_problem(error)
    if error.is_retryable:
        answer.headers["Retry-After"] = str(_retry_after_seconds(error))
    if isinstance(error, Unauthenticated):
        answer.headers["WWW-Authenticate"] = _CHALLENGE
    return answer


def _retry_after_seconds(error: ThermoclineError) -> int:
    """Whole ones; not fewer than the error says itself."""
    own = error.retry_after_seconds if isinstance(error, TooManyRequests) else RETRY_AFTER_SECONDS
    return max(math.ceil(own), RETRY_AFTER_SECONDS)


def _problem(error: ThermoclineError, instance: str) -> dict[str, Any]:
    problem = error.to_problem(instance)
    problem["facts"] = {n: fact for n, fact in _facts_of(error).items() if n not in error.members}
    return problem


def _facts_of(error: ThermoclineError) -> dict[str, Any]:
    """Those that callers are told."""
    kept = frozenset[str]() if isinstance(error, RequestError) else error.kept()
    return {name: fact for name, fact in error.facts().items() if name not in kept}


class Requests:
    """The app around its endpoints: request ids, metrics, a bound for bodies, and every error as a problem.

    It takes the place of FastAPI's own layers, so those can't be added to. ``known_rows`` gives a caller
    the answer of a table's ``ROWS_PATH`` to a query string, if it is known without waiting.
    """

    def __init__(
        self,
        api: FastAPI,
        known_rows: Callable[[Caller, str, bytes], Direct | None],
        guard: Guard = OPEN,
        cors_origins: Sequence[str] = (),
        tables: Iterable[str] = (),
        session: Session | None = None,
        bounds: Bounds = UNCONFIGURED,
    ) -> None:
        self._session = session
        self.api = api
        self.open_connections = OpenConnections(bounds.connections_max, bounds.connections_per_address_max)
        self.request_seconds_max = bounds.request_seconds_max
        self.connections = guard.connections
        self._audit = guard.audit
        self._known_rows = known_rows
        self._guard = guard
        self._endpoints = AsyncExitStackMiddleware(api.router)
        self._answer: ASGIApp = self._named
        if cors_origins:  # errors are for pages to read, too
            self._answer = CORSMiddleware(
                self._named,
                allow_origins=cors_origins,
                allow_methods=_CORS_METHODS,
                allow_headers=_CORS_HEADERS,
                expose_headers=_CORS_EXPOSED,
            )
        self._tables = frozenset(tables)
        self._known_answers: dict[str, Tally] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes one request on."""
        scope["app"] = self.api
        if scope["type"] != "http":
            await self._endpoints(scope, receive, send)
        elif self._is_for_us(scope):
            await self._answer(scope, receive, guarded(scope, send))
        else:
            await self._named(scope, receive, send)

    async def _named(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "HEAD":
            scope = {**scope, "method": "GET", IS_HEAD: True}  # the HTTP server knows, and sends no body
        request_id = _request_id(header_of(scope, "X-Request-Id"))
        status, sent, is_whole = 0, 0, False
        allowance: Allowance | None = None
        noted = scope[NOTED] = Noted()
        credentials = scope[CREDENTIALS] = self._credentials(scope)
        started = time.perf_counter()

        async def send_named(message: Message) -> None:
            nonlocal status, sent, is_whole
            if message["type"] == "http.response.body":
                sent += len(message.get("body", b""))
                if allowance is not None:
                    allowance.spend(len(message.get("body", b"")))  # safety: limits-spend
                is_whole = not message.get("more_body", False)
            if message["type"] == "http.response.start":
                status = message["status"]
                _seconds_of(_route(scope)).observe(time.perf_counter() - started)
                message["headers"] = [*message["headers"], (_REQUEST_ID, request_id.encode())]
            await send(message)

        try:
            self._check_host(scope)  # safety: host-refused
            allowance = self._judged(scope, credentials)
            await self._endpoints(scope, _bounded(receive), send_named)
        except Exception as error:
            problem = _problem_of(error, scope, request_id)
            noted.outcome = problem.code
            if status:
                raise  # the answer has begun: all that is left is to break it off
            await self._answer_of(problem, scope)(scope, receive, send_named)
        finally:
            _answers_of(self._table(scope), scope["method"], _route(scope), str(status)).inc()
            if self._audit is not None:
                is_broken = status != 0 and not is_whole
                outcome = "broken-off" if is_broken else noted.outcome or "ok"
                seconds = time.perf_counter() - started
                access = Access(noted.verb or "", request_id, status, seconds, outcome, size_bytes=sent)
                self._write(self._audit, access, scope, noted, credentials.address)

    def _answer_of(self, error: ThermoclineError, scope: Scope) -> Response:
        if isinstance(error, Unauthenticated) and is_page(scope["path"]) and self._session is not None:
            query = scope["query_string"].decode("latin-1")
            return sign_in_page(f"{scope['path']}?{query}" if query else scope["path"])
        return _answer_of(error, scope["path"])

    def _write(self, audit: AuditLog, access: Access, scope: Scope, noted: Noted, address: str) -> None:
        """Hands a request to the audit log, where it reads or changes data, or nobody knows who asked."""
        caller: Caller | None = scope.get(CALLER)
        access.verb = noted.verb or VERBS.get(getattr(scope.get("route"), "name", ""), "")
        if not access.verb and caller is not None:
            return
        access.verb = access.verb or "unknown"
        if caller is not None:
            access.client, access.key = caller.name, caller.key
        access.address = address or None
        access.table = noted.table or self._table(scope) or None
        access.definition, access.entities = noted.definition, noted.entities
        access.read_point, access.rows = noted.read_point, noted.rows
        audit.write(access)

    def _judged(self, scope: Scope, credentials: Credentials) -> Allowance | None:
        """Who asks, in the scope; what they may still ask for. Raises the error by which they are refused."""
        scope[CALLER] = caller = self._admitted(scope, credentials)
        scope[ALLOWANCE] = allowance = self._guard.allowance(caller, credentials)
        if allowance is not None and scope["path"] not in _PROBES:
            allowance.take()  # safety: limits-admit
        is_audited = not (scope["path"] in _UNAUDITED or is_page(scope["path"]) or is_open(scope["path"]))
        if self._audit is not None and is_audited:
            self._audit.check()  # safety: audited-or-refused
        return allowance

    def _admitted(self, scope: Scope, credentials: Credentials) -> Caller:
        """Who asks. A probe may be anybody, and is told no more than anybody."""
        try:
            return self._guard.admit(credentials)
        except Unauthenticated:
            if scope["path"] in _PROBES or is_open(scope["path"]):  # safety: probes-tell-nothing
                return _NOBODY
            raise

    def _is_for_us(self, scope: Scope) -> bool:
        return self.connections.is_for_us(headers_of(scope, "Host"))

    def _check_host(self, scope: Scope) -> None:
        if not self._is_for_us(scope):
            raise BadRequest.of_host()

    def _credentials(self, scope: Scope) -> Credentials:
        peer = scope.get("state", {}).get(PEER)
        if peer is None:  # another server's protocol, which tells only the address
            peer = Peer((scope.get("client") or ("",))[0])
        forwarded = headers_of(scope, "X-Forwarded-For")
        said = header_of(scope, "Authorization")
        if said is None and self._session is not None and not peer.certificates:
            cookies = header_of(scope, "Cookie")
            said = self._session.authorization(scope["method"], scope["path"], cookies)
            scope[SIGNED_IN] = said is not None
        return self.connections.credentials(peer, said, forwarded)

    def known(
        self, table: str, query: bytes, given_id: str | None, credentials: Credentials
    ) -> tuple[bytes, bytes] | None:
        """The lines of its own headers and the body of a 200 to a GET of ``ROWS_PATH``, if nothing is read.

        None where the app is to be called: it answers the same, or with a problem. ``given_id`` is what the
        caller calls the request.
        """
        caller = self._guard.recognised(credentials)
        if caller is None or not caller.may(Action.LOOKUP, table):  # safety: direct-admitted
            return None
        if self._audit is not None and self._audit.problem() is not None:
            return None
        started = time.perf_counter()
        answer = self._known_rows(caller, table, query)
        if answer is None:
            return None
        allowance = self._guard.allowance(caller, credentials)
        if allowance is not None:
            if not allowance.try_take():  # safety: direct-limited
                return None
            allowance.spend(len(answer.body))
        body, request_id = answer.body, _request_id(given_id)
        lines = _ROWS_LINES % (len(body), request_id.encode())
        if self._audit is not None:
            seconds = time.perf_counter() - started
            access = Access("lookup", request_id, 200, seconds, client=caller.name, key=caller.key)
            access.table, access.address = table, credentials.address or None
            access.definition, access.entities = answer.look.cold.index.definition, (answer.entity,)
            access.read_point, access.rows = answer.look.read_point_json, rows_in(answer.rows)
            access.size_bytes = len(body)
            self._audit.write(access)  # safety: direct-audited
        tally = self._known_answers.get(table)
        if tally is None:
            tally = Tally(_seconds_of(ROWS_PATH), _answers_of(table, "GET", ROWS_PATH, "200"))
            self._known_answers[table] = tally
        tally.add(time.perf_counter() - started)
        return lines, body

    def count_known(self) -> None:
        """Counts the answers of ``known`` now, rather than in a moment."""
        for tally in self._known_answers.values():
            tally.count()

    def _table(self, scope: Scope) -> str:
        """The table that the path names, if there is one: the number of label values is bounded."""
        name: str = scope.get("path_params", {}).get("table", "")
        return name if name in self._tables else ""

    def refused(self, error: ThermoclineError) -> tuple[int, bytes, bytes]:
        """Status, lines of its own headers and body of the answer to bytes that are no request."""
        _answers_of("", "unknown", "unknown", str(error.status)).inc()
        body = msgspec.json.encode(_problem(error, ""))
        lines = _REFUSED_LINES % (len(body), PROBLEM_TYPE.encode(), _request_id(None).encode())
        if error.is_retryable:
            lines += b"retry-after: %d\r\n" % _retry_after_seconds(error)
        return error.status, lines, body


def rows_headers(body: bytes) -> Headers:
    """Those of an answer of ``ROWS_PATH``."""
    return [(b"content-length", b"%d" % len(body)), (b"content-type", b"application/json")]


# These as lines, and the one that names the request.
_ROWS_LINES: Final = b"content-length: %d\r\ncontent-type: application/json\r\nx-request-id: %b\r\n"
_REFUSED_LINES: Final = b"content-length: %d\r\ncontent-type: %b\r\nconnection: close\r\nx-request-id: %b\r\n"


def _problem_of(error: Exception, scope: Scope, request_id: str) -> ThermoclineError:
    """The error as one of ours; logged here if it is the server's and not only for the moment."""
    if isinstance(error, HTTPException):
        if not isinstance(error.__cause__, ThermoclineError):
            return _of_framework(scope, error)
        error = error.__cause__  # raised while FastAPI read the body
    if isinstance(error, RequestValidationError):
        return _of_validation(scope, error)
    where = f"{scope['method']} {scope['path']}"
    if isinstance(error, ThermoclineError):
        if _is_logged(error):
            cause = error.cause or str(error.__cause__ or "") or None
            extra = fields(code=error.code, path=where, detail=error.what, cause=cause)
            log.error("request failed", extra=extra)
        return error
    log.error(
        "request failed",
        exc_info=error,
        extra=fields(code=InternalError.code, path=where, request_id=request_id),
    )
    unforeseen = InternalError(detail=f"request {request_id} failed", where=where)
    unforeseen.__cause__ = error
    return unforeseen


def _is_logged(error: ThermoclineError) -> bool:
    """Whether the server is to blame: not only for the moment, or for what the answer leaves out."""
    is_kept = _facts_of(error) != error.facts()
    return error.status >= SERVER_ERROR and (
        is_kept or not error.retryable or isinstance(error, StorageFailed)
    )


def _of_framework(scope: Scope, error: HTTPException) -> ThermoclineError:
    """The router's own: no such route, no such method."""
    path = scope["path"]
    if error.status_code == 404:
        return BadRequest.no_route(path)
    if error.status_code == 405:
        return BadRequest.of_method(scope["method"], path, _methods_of(scope))
    return BadParameter(name="request", problem=str(error.detail))


def _methods_of(scope: Scope) -> tuple[str, ...]:
    """What can be done with the path: the router names the methods of one of its routes alone."""
    methods = {
        method
        for route in _routes(scope["app"].router)
        if route.matches({**scope, "root_path": ""})[0] is not Match.NONE
        for method in getattr(route, "methods", None) or ()
    }
    return tuple(sorted(methods | ({"HEAD"} if "GET" in methods else set())))


def _routes(router: APIRouter) -> Iterator[BaseRoute]:
    """Those of the router, and of the routers that it includes."""
    for route in router.routes:
        included = getattr(route, "original_router", None)
        if included is None:
            yield route
        else:
            yield from _routes(included)


def _of_validation(scope: Scope, error: RequestValidationError) -> ThermoclineError:
    """What FastAPI finds wrong first with a parameter or a body."""
    first = error.errors()[0]
    place, *inside = (str(part) for part in first["loc"])
    name = ".".join(inside) if inside and not inside[0].isdigit() else place
    if isinstance(first["input"], bytes):
        return BadRequest.of_media_type((header_of(scope, "Content-Type") or "")[:CONTENT_TYPE_MAX])
    return BadParameter(name=name, problem=str(first["msg"]))


def _bounded(receive: Receive) -> Receive:
    """The same body, refused once it is too long."""
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > BODY_BYTES_MAX:
            raise BadRequest.body_too_large(BODY_BYTES_MAX)
        return message

    return bounded


def _request_id(given: str | None) -> str:
    return given if given is not None and REQUEST_ID_FORM.fullmatch(given) else os.urandom(16).hex()


def _route(scope: Mapping[str, Any]) -> str:
    """The route's pattern, so that the number of label values is bounded whatever callers ask for."""
    if "endpoint" not in scope:
        return "unknown"
    # The page's files are mounted: of them, the root path is known and what follows is the caller's.
    path: str = getattr(scope.get("route"), "path", scope.get("root_path") or scope["path"])
    return path

"""HTTP connections of an API worker, on which the commonest request is answered without the framework.

A whole, plain GET of the rows of one entity, of which all is in memory, is answered as its bytes arrive, at a
fraction of what parser, task and routing cost. Every other byte goes the ordinary way, through uvicorn's
parser to the app, and so does the same request where anything about it is out of the ordinary; its answer is
the same to the byte. What is plain, and whether the connection is free for it, is decided here; what the
answer is, by `Requests.known`.

Requests are answered in their order whichever way they go. So bytes that are no request, and a head that is
too long, get their error after the answers to what came before them on the connection.

This rests on uvicorn's insides, so its version is fixed, and `tests/serving/http/test_protocol.py` fails
when they change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from thermocline.errors import BadRequest
from thermocline.serving.access.connections import Peer
from thermocline.serving.http.problems import PEER, Requests
from thermocline.serving.read.caller import Credentials

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, TimerHandle, Transport

    from uvicorn.config import Config
    from uvicorn.protocols.http.httptools_impl import RequestResponseCycle
    from uvicorn.server import ServerState

    from thermocline.errors import ThermoclineError

HEAD_END: Final = b"\r\n\r\n"
# A longer head goes the ordinary way; clients send some hundred bytes.
HEAD_BYTES_MAX: Final = 8_192
# The parser has no bound of its own; proxies and servers allow 8 to 64 kB.
LONGEST_HEAD_BYTES: Final = 65_536
HEADERS_KEPT_MAX: Final = 256
# Some two hundred requests, if they are the shortest that there are: parsed within some milliseconds.
FED_BYTES_MAX: Final = 4_096

# By these headers a request may want something else than its rows as they are known now: it has a body, wants
# the connection to be closed or to become another one, comes from a web page, or waits for records.
_NOT_PLAIN: Final = (  # safety: direct-plain
    rb"(?i:content-length|transfer-encoding|connection(?!: keep-alive\r)|proxy-connection|upgrade|expect"
    rb"|origin|thermocline-read-after):"
)
# Less than HTTP allows, so that all it takes, uvicorn's parser takes, too, and in the same sense.
_PLAIN_LINE: Final = re.compile(
    rb"GET /v1/tables/([A-Za-z0-9_-]+)/rows\?([A-Za-z0-9_.~%&=+:@/,*!-]*) HTTP/1\.1\r\n"
)
_PLAIN_HEADERS: Final = re.compile(
    rb"(?:(?!" + _NOT_PLAIN + rb")[A-Za-z0-9-]+: [!-~](?:[ -~]*[!-~])?\r\n)*\r\n"
)
_REQUEST_ID: Final = re.compile(rb"^x-request-id: ([^\r]*)", re.IGNORECASE | re.MULTILINE)
_AUTHORIZATION: Final = re.compile(rb"^authorization: ([^\r]*)", re.IGNORECASE | re.MULTILINE)
_HOST: Final = re.compile(rb"^host: ([^\r]*)", re.IGNORECASE | re.MULTILINE)
_FORWARDED: Final = re.compile(rb"^x-forwarded-for: ([^\r]*)", re.IGNORECASE | re.MULTILINE)


class LookupProtocol(HttpToolsProtocol):
    """One connection. Its app is a `Requests`."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        self._state = {**app_state}  # that of each request of the connection is a copy of it
        super().__init__(config, server_state, self._state, _loop)
        assert isinstance(config.app, Requests)
        self._requests = config.app
        self._is_within_request = False
        self._is_within_head = False
        self._head_bytes = 0
        self._unfed = b""
        self._answering: RequestResponseCycle | None = None
        self._awaited: TimerHandle | None = None
        self.answered_at = 0.0
        self._default_headers: tuple[object, bytes] = None, b""
        self._peer = Peer()
        self._said: _PlainHeaders | None = None
        self._asking: Credentials | None = None
        self._last_answer: ThermoclineError | None = None  # after which the connection ends

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Somebody came, and is to ask for something soon."""
        super().connection_made(transport)
        self._peer = self._state[PEER] = self._requests.connections.peer(transport)
        refusal = self._requests.open_connections.take(self, self._peer, self.loop.time())
        if refusal is None:
            self._await_request()
        else:
            self._refuse(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        """They left."""
        self._await_no_more()
        self._requests.open_connections.forget(self)
        self.pipeline.clear()
        if self._answering is not None and not self._answering.response_complete:
            self._answering.disconnected = True  # safety: answered-cycle-told
            self._answering.message_event.set()
        super().connection_lost(exc)  # which tells the newest request alone

    def data_received(self, data: bytes) -> None:
        """Answers what it can at once, as many requests as came; leaves the rest to uvicorn."""
        if self._last_answer is not None:
            return
        if self._unfed:
            self._unfed += data  # uvicorn reads on after each answer
            self.flow.pause_reading()
            return
        while data and self._is_free():
            length = data.find(HEAD_END, 0, HEAD_BYTES_MAX) + len(HEAD_END)  # of a part, too few to be plain
            answer = self._known_answer(data[:length])
            if answer is None:
                break
            self.transport.write(answer)
            self._note_answered()
            data = data[length:]
        if data:
            self._feed(data)
            if self.timeout_keep_alive_task is None and self._awaited is None and self._is_at_rest():
                self._look_again_after(self.timeout_keep_alive)  # a blank line, which ended uvicorn's timer

    def _feed(self, data: bytes) -> None:
        """Hands what came to uvicorn's parser, and keeps what comes after requests that have to wait.

        All that a read brings could be thousands of requests, and nobody else is answered while it is parsed.
        """
        fed = 0
        while fed < len(data) and not self.pipeline and self._last_answer is None:  # safety: fed-in-parts
            part = data[fed : fed + FED_BYTES_MAX]
            fed += len(part)
            if self._has_room_for(part):
                super().data_received(part)
        self._unfed = data[fed:]
        if self._unfed:
            self.flow.pause_reading()

    def _feed_again(self) -> None:
        if self._unfed and not self.transport.is_closing():
            data, self._unfed = self._unfed, b""
            self.data_received(data)

    def on_message_begin(self) -> None:
        """A request's first byte."""
        self._is_within_request = self._is_within_head = True
        self._head_bytes = 0
        self._await_request()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """The last one of its head."""
        super().on_headers_complete()
        self._is_within_head = False  # not where it is refused there

    def on_message_complete(self) -> None:
        """Its last one."""
        self._is_within_request = False
        self._await_no_more()
        super().on_message_complete()
        if not _is_pending(self.cycle):  # it was answered before its body came, which ended uvicorn's timer
            self._await_request()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        """An answer's last byte; if the connection is to end, and no other answer is due, it ends."""
        is_last = not self.pipeline
        self.answered_at = self.loop.time()
        super().on_response_complete()
        if is_last and self._last_answer is not None:
            self._end_with(self._last_answer)
        elif is_last and self._unfed:
            self.loop.call_soon(self._feed_again)

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  # uvicorn's words, as plain text
        """The parser can't read on: the error comes after the answers that are due."""
        self._refuse(BadRequest.malformed())

    def timeout_keep_alive_handler(self) -> None:
        """Closes a connection that was idle for long enough; one that was not, when it will have been."""
        left = self.answered_at + self.timeout_keep_alive - self.loop.time()
        if left > 0:
            self._look_again_after(left)
        else:
            super().timeout_keep_alive_handler()

    def _note_answered(self) -> None:
        """As `on_response_complete`, but a timer that is set stays: another one each time costs more."""
        self.server_state.total_requests += 1
        if self._awaited is not None:
            self._await_no_more()
        self.answered_at = self.loop.time()
        if self.timeout_keep_alive_task is None and not self.transport.is_closing():
            self._look_again_after(self.timeout_keep_alive)

    def _has_room_for(self, data: bytes) -> bool:
        """Whether what came may still be a request's head; else the connection ends."""
        self._head_bytes += len(data) if self._is_within_head else 0
        if self._head_bytes <= LONGEST_HEAD_BYTES:
            return True
        self._refuse(BadRequest.head_too_large(LONGEST_HEAD_BYTES))
        return False

    def _refuse(self, error: ThermoclineError) -> None:
        """Reads no more, and ends the connection with an error once the answers that are due are given."""
        self._last_answer = error  # safety: refused-in-order
        self._await_no_more()
        is_due = _is_pending(self.cycle)
        if self._is_within_request and not self._is_within_head:  # its body is wrong: it gets this answer
            is_due = bool(self.pipeline)
            self._drop_newest()
        if not is_due:
            self._end_with(error)

    def _drop_newest(self) -> None:
        """Gives up the request whose body is being read."""
        if self.pipeline:
            self.pipeline.popleft()
            return
        assert self.cycle is not None
        self.cycle.disconnected = True
        self.cycle.message_event.set()
        if self.cycle.response_started and not self.cycle.response_complete:
            self.transport.close()  # nothing can follow half an answer

    def _end_with(self, error: ThermoclineError) -> None:
        if self.transport.is_closing():
            return
        status, own, body = self._requests.refused(error)
        self.transport.write(b"".join([STATUS_LINE[status], self._default_lines(), own, b"\r\n", body]))
        self.transport.close()

    def _await_request(self) -> None:
        self._await_no_more()
        self._awaited = self.loop.call_later(self._requests.request_seconds_max, self.transport.close)

    def _await_no_more(self) -> None:
        if self._awaited is not None:
            self._awaited.cancel()
            self._awaited = None

    def _look_again_after(self, seconds: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(seconds, self.timeout_keep_alive_handler)

    def _is_free(self) -> bool:
        """Whether a request that comes now is the only one, and its answer can be written now."""
        return not (
            self._is_within_request  # safety: direct-within-request
            or _is_pending(self.cycle)  # safety: direct-in-order
            or self.flow.write_paused  # safety: direct-back-pressure
            or self.transport.is_closing()
            or self.access_log
            or self.root_path
            or self._is_at_limit()  # safety: direct-limit
        )

    def close_idle(self) -> None:
        """Ends the connection, on which nothing is being answered; what of a request came is dropped."""
        self._await_no_more()
        self.transport.close()

    def is_idle(self) -> bool:
        """Whether nothing is being answered."""
        return not _is_pending(self.cycle) or (self._is_within_request and not self.pipeline)

    def _is_at_rest(self) -> bool:
        return not (self._is_within_request or _is_pending(self.cycle) or self.transport.is_closing())

    def _is_at_limit(self) -> bool:
        limit = self.limit_concurrency
        return limit is not None and (len(self.connections) >= limit or len(self.tasks) >= limit)

    def _known_answer(self, head: bytes) -> bytes | None:
        line = _PLAIN_LINE.match(head)
        headers = None if line is None else _plain_headers(head[line.end() :])
        if line is None or headers is None:
            return None
        if headers is not self._said:  # a client says the same each time
            self._said, self._asking = headers, self._credentials(headers)
        if self._asking is None:
            return None
        table, query = line.groups()
        known = self._requests.known(table.decode(), query, headers.request_id, self._asking)
        if known is None:
            return None
        own, body = known
        return b"".join([STATUS_LINE[200], self._default_lines(), own, b"\r\n", body])

    def _credentials(self, headers: _PlainHeaders) -> Credentials | None:
        """Who asks; None where the request is for another host, which the app says."""
        connections = self._requests.connections
        if not connections.is_for_us(headers.hosts):  # safety: direct-host
            return None
        return connections.credentials(self._peer, headers.authorization, headers.forwarded)

    def _default_lines(self) -> bytes:
        """Those of all answers; uvicorn makes a new list of them each second."""
        known, lines = self._default_headers
        if known is not self.server_state.default_headers:
            lines = _lines(self.server_state.default_headers)
            self._default_headers = self.server_state.default_headers, lines
        return lines


@dataclass(frozen=True, slots=True)
class _PlainHeaders:
    """``request_id`` is what the caller calls the request; the others are headers as they came."""

    request_id: str | None
    authorization: str | None
    hosts: tuple[str, ...]
    forwarded: tuple[str, ...]


@lru_cache(HEADERS_KEPT_MAX)  # a client sends the same ones each time
def _plain_headers(block: bytes) -> _PlainHeaders | None:
    """What a request's headers ask for, up to the empty line; None: something out of the ordinary."""
    if _PLAIN_HEADERS.fullmatch(block) is None:
        return None
    given, said = _REQUEST_ID.search(block), _AUTHORIZATION.search(block)
    hosts, forwarded = (
        tuple(value.decode() for value in header.findall(block)) for header in (_HOST, _FORWARDED)
    )
    authorization = said[1].decode() if said else None
    return _PlainHeaders(given[1].decode() if given else None, authorization, hosts, forwarded)


def _lines(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    return b"".join([b"%b: %b\r\n" % field for field in headers])


def _is_pending(cycle: RequestResponseCycle | None) -> bool:
    """Whether the last request that went the ordinary way, and with it each one before, has no answer yet."""
    return cycle is not None and not cycle.response_complete

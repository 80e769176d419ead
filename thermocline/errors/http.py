"""A request that breaks the rules of HTTP, or asks for a path, method or form that the server lacks."""

from __future__ import annotations

from typing import Self

from thermocline.errors.request import RequestError
from thermocline.errors.root import ExitCode


class BadRequest(RequestError):
    """The request is not one that the server takes.

    The HTTP status says which rule it breaks: 400, it is not valid HTTP (something between caller and server
    may have changed it), or it names another host than those in serving.hosts; 404, there is no such path;
    405, the path doesn't support the method; 406, none of the formats in its Accept header is supported; 413,
    its body is too long; 415, its body isn't declared as JSON (without the header Content-Type:
    application/json, a web page could send it unasked); 431, its request line and headers are too long.

    Nothing was read or written. Change the request as the message says. /docs and /openapi.json list all
    paths, with working requests. After 400 and 431, the server closes the connection, as it may not tell
    where the request ends; requests sent before it are answered first.
    """

    code = "bad-request"
    http_status = 400
    _what = "{problem}."
    _next = "{correction}"

    answered: int
    """The HTTP status of this request's answer."""
    problem: str
    correction: str
    allowed: tuple[str, ...] = ()
    """With 405, the methods that the path supports."""

    @property
    def status(self) -> int:
        """The HTTP status."""
        return self.answered

    @classmethod
    def malformed(cls) -> Self:
        """Bytes that are no request."""
        return cls(
            answered=400,
            problem="the request is not valid HTTP/1.1",
            correction="check the request line and the headers; /docs shows working requests",
        )

    @classmethod
    def of_host(cls) -> Self:
        """A Host header that is not among those that the server answers to."""
        return cls(
            answered=400,
            problem="the server does not answer to the host that the request names",
            correction="use a name of the server in the URL; whoever runs it lists them in serving.hosts",
        )

    @classmethod
    def head_too_large(cls, bytes_max: int) -> Self:
        """A request line and headers beyond a bound."""
        return cls(
            answered=431,
            problem=f"the request line and headers are longer than {bytes_max:,} bytes",
            correction="send fewer or shorter headers, or the keys in the body of POST rows:batch",
        )

    @classmethod
    def body_too_large(cls, bytes_max: int) -> Self:
        """A body beyond a bound."""
        return cls(
            answered=413,
            problem=f"the body is longer than {bytes_max:,} bytes",
            correction="send fewer entities per request",
        )

    @classmethod
    def of_media_type(cls, content_type: str) -> Self:
        """A body that isn't declared as JSON."""
        return cls(
            answered=415,
            problem=f'the server doesn\'t read bodies of type "{content_type}"'
            if content_type
            else "the body has no Content-Type",
            correction="send it as JSON, with the header Content-Type: application/json",
        )

    @classmethod
    def no_route(cls, path: str) -> Self:
        """A path that there is not."""
        problem = f"the server has no path {path}"
        return cls(answered=404, problem=problem, correction="the paths are listed at /docs")

    @classmethod
    def of_method(cls, method: str, path: str, allowed: tuple[str, ...]) -> Self:
        """A method that the path doesn't support."""
        return cls(
            answered=405,
            problem=f"{path} doesn't support {method}",
            correction=f"use one of: {', '.join(allowed) or 'none'}",
            allowed=allowed,
        )

    @classmethod
    def not_acceptable(cls, accept: str, offered: tuple[str, ...]) -> Self:
        """Formats of which none is supported."""
        return cls(
            answered=406,
            problem=f'none of the formats in "{accept}" is supported',
            correction=f"ask for one of: {', '.join(offered)}",
        )


class TooManyConnections(RequestError):
    """The API process has as many connections as it may have, and answers requests on all of them.

    Otherwise, the connection that has asked for nothing for longest would have been closed, without a word:
    the Python client, and any that keeps connections, then makes another one. A request has to come whole
    within a minute, so connections don't stay without asking for anything.

    Nothing was read. Ask again in a moment. If it keeps happening, raise serving.connections_max or
    serving.workers, and see who has so many connections (`ss -tn`).
    """

    code = "too-many-connections"
    http_status = 503
    exit_code = ExitCode.UNAVAILABLE
    retryable = True
    _what = "the server answers requests on {connections_max} connections already, as many as it may have."
    _state = "nothing was read."
    _next = "ask again in a moment; if it keeps happening, raise serving.connections_max"

    connections_max: int

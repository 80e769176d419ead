"""A request that breaks the rules of HTTP, or asks for a path, method or form that the server lacks."""

from __future__ import annotations

from thermocline.errors.request import RequestError


class MalformedRequest(RequestError):
    """The request is not valid HTTP.

    The server can't tell where it ends, so it closes the connection. Requests sent before it on the same
    connection are answered first.

    Nothing was read or written. Something between caller and server may have changed the request.
    """

    code = "malformed-request"
    http_status = 400
    _what = "the request is not valid HTTP/1.1."
    _next = "check the request line and the headers; /docs shows working requests"


class RequestHeadTooLarge(RequestError):
    """The request line and headers are too long.

    Their length is bounded, since the server keeps them in memory until they are complete. It closes the
    connection.

    Nothing was read or written. Send fewer or shorter headers. Many entities fit into POST rows:batch.
    """

    code = "request-head-too-large"
    http_status = 431
    _what = "the request line and headers are longer than {bytes_max:,} bytes."
    _next = "send fewer or shorter headers, or the keys in the body of POST rows:batch"

    bytes_max: int


class BodyTooLarge(RequestError):
    """The request's body is too long.

    Nothing was read or written. Send fewer entities per request.
    """

    code = "body-too-large"
    http_status = 413
    _what = "the body is longer than {bytes_max:,} bytes."
    _next = "send fewer entities per request"

    bytes_max: int


class UnsupportedMediaType(RequestError):
    """The request's body is of a type that the server doesn't read, or doesn't say its type.

    Bodies are JSON, so the request needs the header Content-Type: application/json. (Without it, a web page
    could send such requests unasked.)

    Nothing was read or written.
    """

    code = "unsupported-media-type"
    http_status = 415
    _what = "{_sent}."
    _next = "send it as JSON, with the header Content-Type: application/json"

    content_type: str

    @property
    def _sent(self) -> str:
        if not self.content_type:
            return "the body has no Content-Type"
        return f'the server doesn\'t read bodies of type "{self.content_type}"'


class RouteNotFound(RequestError):
    """The server has no such path.

    All paths are listed at /docs and in /openapi.json.
    """

    code = "route-not-found"
    http_status = 404
    _what = "the server has no path {path}."
    _next = "the paths are listed at /docs"

    path: str


class MethodNotAllowed(RequestError):
    """The path doesn't support this method.

    The Allow header of the answer and /docs list the supported methods.
    """

    code = "method-not-allowed"
    http_status = 405
    _what = "{path} doesn't support {method}."
    _next = "use one of: {allowed}"

    method: str
    path: str
    allowed: tuple[str, ...]


class NotAcceptable(RequestError):
    """The server supports none of the formats in the Accept header.

    Leave the header out to get the default format.
    """

    code = "not-acceptable"
    http_status = 406
    _what = 'none of the formats in "{accept}" is supported.'
    _next = "ask for one of: {offered}"

    accept: str
    offered: tuple[str, ...]

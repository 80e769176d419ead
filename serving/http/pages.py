"""Headers of the pages for people, which keep a browser from doing with them what they are not for."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from starlette.types import Message, Scope, Send

__all__ = ["guarded"]

# The page of `/docs`, and the one to which a login would lead back.
PAGES_KEPT_MAX: Final = 4
# A browser that came by TLS once comes by TLS for so long, whatever a link says.
TLS_SECONDS: Final = 31_536_000

_HTML: Final = b"text/html"
_OF_PAGES: Final = (_HTML, b"text/css", b"text/javascript", b"application/javascript", b"image/")
_INLINE: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)
# What the page loads is ours; what it asks for, too. Its styles are set by its script, element by element.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'{scripts}; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ALWAYS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
)
_POLICY_HEADER: Final = b"content-security-policy"
_TLS_ONLY: Final = (b"strict-transport-security", b"max-age=%d" % TLS_SECONDS)


def guarded(scope: Scope, send: Send) -> Send:
    """The same, with those headers where what is sent is a page, or a part of one.

    The scripts within a page are allowed by what they are: nothing in such a page is a caller's. A page that
    has a policy of its own keeps it.
    """
    begun: Message | None = None

    async def send_guarded(message: Message) -> None:
        nonlocal begun
        if message["type"] == "http.response.start" and _is_of_page(message):
            begun = message  # what is in it is to be known first
            return
        if begun is not None:
            start, begun = begun, None
            own = list(_ALWAYS)
            if not any(name == _POLICY_HEADER for name, _ in start["headers"]):
                own.append((_POLICY_HEADER, _policy(_content_of(start, message))))
            if scope.get("scheme") == "https":
                own.append(_TLS_ONLY)
            await send({**start, "headers": [*start["headers"], *own]})
        await send(message)

    return send_guarded


def _is_of_page(message: Message) -> bool:
    return _type_of(message).startswith(_OF_PAGES)


def _type_of(message: Message) -> bytes:
    found: bytes = next((value for name, value in message["headers"] if name == b"content-type"), b"")
    return found


def _content_of(start: Message, message: Message) -> bytes:
    """The text of a page, which is sent at once; nothing of its parts, which have no scripts within."""
    body: bytes = message.get("body", b"") if _type_of(start).startswith(_HTML) else b""
    return body


@lru_cache(PAGES_KEPT_MAX)
def _policy(page: bytes) -> bytes:
    digests = (base64.b64encode(hashlib.sha256(script).digest()).decode() for script in _INLINE.findall(page))
    return _POLICY.format(scripts="".join(f" 'sha256-{digest}'" for digest in digests)).encode()

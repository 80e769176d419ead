"""Signing in: a cookie that holds a key of a client, sealed, for the pages alone.

The cookie is sealed (AES-GCM) by a key in ``<state_dir>``, which all workers share, so no process keeps who
signed in, and what a browser keeps is no API key. A sealed key is judged at each request as if it had been
sent, so one that is revoked lets nobody in any more. The cookie counts for GETs of pages; no endpoint of the
API takes it, so another site can do nothing with it.
"""

from __future__ import annotations

import base64
import json
import os
from contextlib import suppress
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from thermocline.process.clock import Clock

__all__ = ["COOKIE", "SIGN_IN", "SIGN_OUT", "Session", "is_from_here", "is_open", "is_page"]

COOKIE: Final = "__Host-thermocline"
SESSION_SECONDS: Final = 43_200
"""A working day; the browser forgets it earlier when it ends."""
SIGN_IN, SIGN_OUT = "/sign-in", "/sign-out"
ASSETS: Final = "/assets/"
_KEY_FILE: Final = "pages.key"
_KEY_BYTES: Final = 32
_NONCE_BYTES: Final = 12
_PURPOSE: Final = b"thermocline pages 1"
CREDENTIAL_MAX: Final = 3_000
"""Characters: sealed, it is to fit into a cookie, of which browsers take 4 kB."""


def is_page(path: str) -> bool:
    """Whether a path is that of a page for those who signed in."""
    return path == "/" or path.startswith("/tables/")


def is_open(path: str) -> bool:
    """Whether a path is for everybody: signing in, and what the pages look like."""
    return path in (SIGN_IN, SIGN_OUT) or path.startswith(ASSETS)


def is_from_here(headers: Mapping[str, str]) -> bool:
    """Whether a form was sent by a page of this server, as the browser says."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site == "same-origin"
    origin = headers.get("origin")
    return origin is None or urlsplit(origin).netloc == headers.get("host")


class Session:
    """Seals and opens cookies."""

    def __init__(self, state_dir: Path, clock: Clock) -> None:
        self._state_dir = state_dir
        self._clock = clock
        self._cipher: AESGCM | None = None

    def cookie(self, credential: str) -> str:
        """The Set-Cookie header that keeps a key or token. Raises `OSError` where none can be sealed."""
        until_ms = self._clock.now_ms() + 1000 * SESSION_SECONDS
        nonce = os.urandom(_NONCE_BYTES)
        text = json.dumps([credential, until_ms]).encode()
        sealed = nonce + self._opened_cipher().encrypt(nonce, text, _PURPOSE)
        return _cookie(base64.urlsafe_b64encode(sealed).decode(), SESSION_SECONDS)

    def cleared(self) -> str:
        """The Set-Cookie header that ends a session."""
        return _cookie("", 0)

    def authorization(self, method: str, path: str, cookies: str | None) -> str | None:
        """What a request for a page brings as its Authorization header; None where it brings no session."""
        if cookies is None or method != "GET" or not is_page(path):  # safety: session-for-pages
            return None
        with suppress(CookieError):
            found = SimpleCookie(cookies).get(COOKIE)
            credential = self._opened(found.value) if found is not None else None
            return f"Bearer {credential}" if credential is not None else None
        return None

    def _opened(self, value: str) -> str | None:
        try:
            sealed = base64.urlsafe_b64decode(value)
            nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
            said: Any = json.loads(self._opened_cipher().decrypt(nonce, rest, _PURPOSE))
        except (ValueError, InvalidTag, OSError):
            return None
        credential, until_ms = said
        return str(credential) if self._clock.now_ms() < until_ms else None  # safety: session-ends

    def _opened_cipher(self) -> AESGCM:
        if self._cipher is None:
            self._cipher = AESGCM(_shared_key(self._state_dir))
        return self._cipher


def _cookie(value: str, seconds: int) -> str:
    return f"{COOKIE}={value}; Path=/; Max-Age={seconds}; Secure; HttpOnly; SameSite=Strict"


def _shared_key(state_dir: Path) -> bytes:
    """The key of all workers: who comes first makes it."""
    path = state_dir / _KEY_FILE
    with suppress(FileNotFoundError):
        return path.read_bytes()
    unfinished = path.with_name(f"{_KEY_FILE}.{os.getpid()}")
    with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(os.urandom(_KEY_BYTES))
    with suppress(FileExistsError):
        path.hardlink_to(unfinished)
    unfinished.unlink()
    return path.read_bytes()

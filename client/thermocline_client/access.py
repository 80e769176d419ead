"""Says who asks a server, and which servers are trusted."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Generator
from ipaddress import ip_address
from os import PathLike
from typing import Final

import httpx

from .errors import AccessInvalid

Key = str | Callable[[], str]
"""An API key or a token; or a function that returns it, called for each request."""
FilePath = str | PathLike[str]

_KEY: Final = re.compile(r"[A-Za-z0-9._~+/=-]+")
"""Source: RFC 6750, section 2.1. Anything else would be quoted by the error of a library."""


class Bearer(httpx.Auth):
    """Sends a key with each request. Its printed form doesn't show it."""

    def __init__(self, key: Key) -> None:
        self._key = key

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Adds the header. Raises `AccessInvalid`."""
        key = self._key if isinstance(self._key, str) else self._key()
        request.headers["Authorization"] = f"Bearer {_checked(key)}"
        yield request


def bearer_of(key: Key | None, url: httpx.URL, *, may_go_unencrypted: bool) -> Bearer | None:
    """Returns what sends a key to that URL; None if there is no key.

    Raises:
        AccessInvalid: it is no key, or somebody on the way could read it.
    """
    if key is None:
        return None
    if url.scheme != "https" and not may_go_unencrypted and not _is_loopback(url.host):  # safety: key-by-tls
        problem = f"it would be sent to {url.host} unencrypted; use https"
        raise AccessInvalid("key", problem)
    if isinstance(key, str):
        _checked(key)
    return Bearer(key)


def context_of(
    ca_file: FilePath | None, certificate: tuple[FilePath, FilePath] | None
) -> ssl.SSLContext | None:
    """Returns the context that trusts the CAs of a file, and shows a certificate; None if neither is given.

    Without a file, the usual CAs are trusted.

    Raises:
        AccessInvalid: a file can't be read, or has something else in it.
    """
    if ca_file is None and certificate is None:
        return None
    try:
        context = (
            httpx.create_ssl_context() if ca_file is None else ssl.create_default_context(cafile=ca_file)
        )
    except (OSError, ValueError) as error:
        raise AccessInvalid("ca_file", f"{ca_file}: {_reason(error)}") from error
    if certificate is not None:
        try:
            context.load_cert_chain(*certificate, password=_no_password)
        except (OSError, ValueError) as error:
            files = " and ".join(str(one) for one in certificate)
            raise AccessInvalid("certificate", f"{files}: {_reason(error)}") from error
    return context


def _checked(key: str) -> str:
    if _KEY.fullmatch(key) is None:
        raise AccessInvalid("key", "it has characters that no key has, such as a space or the end of a line")
    return key


def _no_password() -> str:
    """Called by OpenSSL, which would otherwise ask on the terminal."""
    raise ValueError("the key is encrypted; give it without a password")


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or "it is not PEM").replace("_", " ").lower()
    return getattr(error, "strerror", None) or str(error)

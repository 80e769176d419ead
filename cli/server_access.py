"""Says to servers who asks, and which servers are trusted: by variables, the same for all commands."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

import httpx

from thermocline.client.access import context_of
from thermocline.client.errors import AccessInvalid
from thermocline.errors import BadParameter, ServerUnreachable
from thermocline.process.tls import TLS_ERRORS, pinned_context, reason_of

if TYPE_CHECKING:
    import ssl

    from thermocline.settings import ServingSettings

__all__ = ["ServerAccess", "access_errors", "server_access"]

KEY: Final = "THERMOCLINE_KEY"
KEY_FILE: Final = "THERMOCLINE_KEY_FILE"
KEY_OVER_HTTP: Final = "THERMOCLINE_KEY_OVER_HTTP"
CA_FILE: Final = "THERMOCLINE_CA_FILE"
CERTIFICATE: Final = "THERMOCLINE_CERTIFICATE"
CERTIFICATE_KEY: Final = "THERMOCLINE_CERTIFICATE_KEY"

_BY_ARGUMENT: Final = {"key": KEY, "ca_file": CA_FILE, "certificate": f"{CERTIFICATE}, {CERTIFICATE_KEY}"}


class ServerAccess(TypedDict, total=False):
    """What every client of ours takes, under its names."""

    key: str
    key_over_http: bool
    ca_file: Path
    certificate: tuple[Path, Path]
    transport: httpx.BaseTransport


def server_access(own: ServingSettings | None = None) -> ServerAccess:
    """The access that the variables give.

    Args:
        own: The settings of the server that is asked, where it is this machine's. It is known by the
            certificate that it was given: the address by which it is asked here need not be in that.

    Raises:
        BadParameter: two variables contradict each other, or a file can't be read.
        ServerUnreachable: the server's own certificate is here, and no certificate.
    """
    access = ServerAccess()
    key = _key()
    if key is not None:
        access["key"] = key
        access["key_over_http"] = os.environ.get(KEY_OVER_HTTP, "") == "1"
    certificate = _certificate()
    pinned = None if own is None else _pinned(own)
    if pinned is not None:
        if certificate is not None:
            pinned.load_cert_chain(*certificate)
        return {**access, "transport": httpx.HTTPTransport(verify=pinned)}
    if ca_file := os.environ.get(CA_FILE):
        access["ca_file"] = Path(ca_file)
    if certificate is not None:
        access["certificate"] = certificate
    return access


@contextmanager
def access_errors() -> Iterator[None]:
    """Raises what a client says of its access as what it is of a command: of its variables."""
    try:
        yield
    except AccessInvalid as error:
        name = _BY_ARGUMENT.get(error.argument, error.argument)
        correction = f"use https, or set {KEY_OVER_HTTP}=1" if "unencrypted" in error.problem else ""
        raise BadParameter(name=name, problem=error.problem, correction=correction) from error


def _key() -> str | None:
    key, file = os.environ.get(KEY), os.environ.get(KEY_FILE)
    if key and file:
        raise BadParameter(name=KEY, problem=f"{KEY_FILE} is set as well; set one of them")
    if not file:
        return key or None
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BadParameter(name=KEY_FILE, problem=f"{file}: {reason_of(error)}") from error


def _certificate() -> tuple[Path, Path] | None:
    certificate, key = os.environ.get(CERTIFICATE), os.environ.get(CERTIFICATE_KEY)
    if not certificate:
        if key:
            raise BadParameter(name=CERTIFICATE_KEY, problem=f"it needs {CERTIFICATE}")
        return None
    pair = Path(certificate), Path(key or certificate)  # one file may hold both
    with access_errors():
        context_of(None, pair)
    return pair


def _pinned(own: ServingSettings) -> ssl.SSLContext | None:
    """What knows the server by the certificate that this machine has of it; None where it has none."""
    if own.tls_certificate is None or not own.tls_certificate.exists():
        return None
    try:
        return pinned_context(own.tls_certificate)
    except TLS_ERRORS as error:
        detail = f"its certificate, {own.tls_certificate}, can't be used: {reason_of(error)}"
        raise ServerUnreachable(url=own.url, detail=detail) from error

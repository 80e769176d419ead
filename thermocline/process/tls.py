"""Contexts of TLS connections: those that a server answers, and those to a server on this machine."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

__all__ = ["TLS_ERRORS", "pinned_context", "reason_of", "server_context"]

TLS_ERRORS: Final = (OSError, ValueError)
"""What a file gives that can't be read (`ssl.SSLError` is an `OSError`), or that holds something else."""

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"


def server_context(certificate: Path, key: Path, client_ca: Path | None = None) -> ssl.SSLContext:
    """A context of a server with that certificate.

    Args:
        certificate: PEM, the server's own first, then those between it and a CA.
        client_ca: PEM of the CAs whose certificates clients may show; without it, they are asked for none.

    Raises:
        OSError, ValueError: a file can't be read, or certificate and key don't belong together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.set_alpn_protocols(["http/1.1"])
    # Without one, OpenSSL would ask for the password on the terminal, and wait.
    context.load_cert_chain(certificate, key, password=_no_password)
    if client_ca is not None:
        context.load_verify_locations(client_ca)
        # Others come with a key; one that is shown has to be good.
        context.verify_mode = ssl.CERT_OPTIONAL  # safety: tls-client-verified
    return context


def pinned_context(certificate: Path) -> ssl.SSLContext:
    """A context of a client that takes a server with that very certificate for the right one, and no other.

    So a process of the same machine knows the server by whatever address it is reached, and whoever issued
    the certificate. Raises as `server_context`.
    """
    text = certificate.read_text(encoding="ascii")
    begin, end = text.find(_BEGIN), text.find(_END)
    if begin < 0 or end < begin:
        raise ValueError("it holds no certificate")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = False  # it is known by more than its name
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    # The first alone: with those after it, all that these CAs ever issued would do.
    context.load_verify_locations(cadata=text[begin : end + len(_END)])  # safety: tls-pinned-alone
    return context


def reason_of(error: Exception) -> str:
    """Why a context can't be made, without anything of a key."""
    if isinstance(error, ssl.SSLError):
        if error.reason == "KEY_VALUES_MISMATCH":
            return "the key is not that of the certificate"
        if error.reason is None:
            return "it is not PEM, or of something else"
        return f"OpenSSL says: {error.reason.replace('_', ' ').lower()}"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    return str(error)


def _no_password() -> str:
    raise ValueError("the key is encrypted, and there is no password for it")

"""Writes the certificate authorities that this machine trusts in the form that Java reads.

A company's proxy that looks into TLS is known to the machine, thus to pip, but not to a Java from a wheel.
"""

from __future__ import annotations

import hashlib
import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path

_MAGIC = 0xFEEDFEED
_VERSION = 2
_TRUSTED_CERTIFICATE = 2
_PASSWORD = "changeit"  # noqa: S105  what Java's own store has: it guards nothing, reading needs none
_WHITENER = b"Mighty Aphrodite"

_PEM_BEGIN, _PEM_END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def write_trust_store(path: Path) -> bool:
    """Writes a JKS file with the machine's certificate authorities; False, and no file, where it has none.

    Which they are is OpenSSL's default for Python: `SSL_CERT_FILE`, `SSL_CERT_DIR`, else the system's.

    Source: the format as described in OpenJDK's `sun.security.provider.JavaKeyStore`.
    """
    authorities = list(dict.fromkeys(_machine_authorities()))
    if not authorities:
        return False
    created_ms = int(time.time() * 1000)
    content = struct.pack(">III", _MAGIC, _VERSION, len(authorities)) + b"".join(
        struct.pack(">I", _TRUSTED_CERTIFICATE)
        + _text(f"authority-{index}")
        + struct.pack(">Q", created_ms)
        + _text("X.509")
        + struct.pack(">I", len(der))
        + der
        for index, der in enumerate(authorities)
    )
    path.write_bytes(content + hashlib.sha1(_PASSWORD.encode("utf-16-be") + _WHITENER + content).digest())  # noqa: S324
    return True


def _text(value: str) -> bytes:
    encoded = value.encode("ascii")
    return struct.pack(">H", len(encoded)) + encoded


def _machine_authorities() -> Iterator[bytes]:
    """Each in DER form; one may come several times, as a bundle and a folder usually hold the same."""
    places = ssl.get_default_verify_paths()
    sources = [Path(places.cafile)] if places.cafile else []
    if places.capath:
        # The names that OpenSSL looks for: a hash and a number.
        sources += sorted(Path(places.capath).glob("*.[0-9]"))
    for source in sources:
        try:
            text = source.read_text(errors="replace")
        except OSError:
            continue
        for part in text.split(_PEM_BEGIN)[1:]:
            body, end, _ = part.partition(_PEM_END)
            if end:
                yield ssl.PEM_cert_to_DER_cert(f"{_PEM_BEGIN}{body}{_PEM_END}")

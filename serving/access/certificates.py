"""The server's certificate, read again whenever its files change; and certificates of clients, refused."""

from __future__ import annotations

import asyncio
import logging
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from thermocline.process.logs import fields
from thermocline.process.tls import TLS_ERRORS, reason_of, server_context
from thermocline.serving.store.measures import CLIENT_CERTIFICATES_REFUSED

if TYPE_CHECKING:
    from thermocline.settings import ServingSettings

__all__ = [
    "HANDSHAKE_SECONDS_MAX",
    "LOOK_SECONDS",
    "SHUTDOWN_SECONDS_MAX",
    "Certificates",
    "RefusedCertificates",
]

# From a connection to the end of its handshake, which takes milliseconds and two turns over the network. What
# sends something else, or nothing, is closed then or before.
HANDSHAKE_SECONDS_MAX: Final = 10.0
# A peer that is told that the connection ends may say the same; for longer, nobody waits for it.
SHUTDOWN_SECONDS_MAX: Final = 5.0
# A look at the files is three stat calls. New ones come hours before those before them expire.
LOOK_SECONDS: Final = 1.0
# An address is named again after that, if its clients' certificates are still refused.
SAID_SECONDS: Final = 3_600.0
ADDRESSES_MAX: Final = 256
"""That are named within that time; whoever has more addresses could fill the log."""

log = logging.getLogger(__name__)

_Seen = tuple[tuple[int, ...], ...]


class _Newest(ssl.SSLContext):
    """The context that an event loop keeps for a port; each connection begins with the ``newest`` one.

    To load files into a context that is in use would leave it with half of a pair that is broken, with the
    certificate of another kind of key, and with CAs that are no longer trusted. A new one has none of it, nor
    the sessions that clients would resume without being verified again.
    """

    newest: ssl.SSLContext

    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """Begins a handshake. Event loops call this for each connection."""
        return self.newest.wrap_bio(*args, **options)  # safety: tls-newest-context


class Certificates:
    """A certificate, its key and the CAs of clients, as they were when they last could be used together.

    ``context`` is for `asyncio.loop.create_server`. ``problem`` says why the files as they are now can't be
    used, and is None where they are. ``has_own_ca``: no CA that clients trust by themselves issued the
    certificate, so they have to be told of the one that did.
    """

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        """Raises `OSError` or `ValueError` where the files can't be used."""
        self._files = certificate, key, client_ca
        self.problem: str | None = None
        self._seen = self._look()
        self.context = _Newest(ssl.PROTOCOL_TLS_SERVER)
        self.context.newest = server_context(*self._files)
        self.has_own_ca = not is_of_known_ca(certificate)

    @classmethod
    def of(cls, serving: ServingSettings) -> Certificates | None:
        """As the settings say; None where they name none. Raises as the class."""
        if serving.tls_certificate is None or serving.tls_key is None:
            return None
        return cls(serving.tls_certificate, serving.tls_key, serving.tls_client_ca)

    async def follow(self) -> None:
        """Takes up new files until it is cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await asyncio.to_thread(self.refresh)

    def told(self) -> str | None:
        """What is wrong with the files, as a sentence for operators."""
        return self.problem and f"the certificate can't be used, and the one before is: {self.problem}"

    def refresh(self) -> None:
        """Takes up the files if they are others than before; where they can't be used, those before stay."""
        try:
            seen = self._look()
            if seen == self._seen and self.problem is None:
                return
            newest = server_context(*self._files)
            has_own_ca = not is_of_known_ca(self._files[0])
            if self._look() != seen:  # safety: tls-files-of-one-moment
                return  # they are being replaced: next time
        except TLS_ERRORS as error:
            self._note(error)
            return
        self.context.newest, self._seen, self.problem = newest, seen, None
        self.has_own_ca = has_own_ca
        log.info("certificate taken up", extra=fields(path=str(self._files[0])))

    def _note(self, error: Exception) -> None:
        named = error.filename if isinstance(error, OSError) and error.filename else None
        path = named or " and ".join(str(path) for path in self._files if path is not None)
        problem = f"{path}: {reason_of(error)}"
        if problem != self.problem:
            self.problem = problem
            log.error("certificate not taken up; the one before is still used", extra=fields(detail=problem))

    def _look(self) -> _Seen:
        """Tells files from others, also where a folder of them was replaced by way of a link."""
        stats = [path.stat() for path in self._files if path is not None]
        return tuple((one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_ctime_ns) for one in stats)


def is_of_known_ca(certificate: Path) -> bool:
    """Whether a CA that clients trust by themselves issued it, or one of those behind it in the file.

    True also of what only OpenSSL can read: nobody is told of a CA in vain. Raises `OSError`.
    """
    import httpx  # noqa: PLC0415  # slow, and not every server speaks TLS
    from cryptography import x509  # noqa: PLC0415

    try:
        chain = x509.load_pem_x509_certificates(certificate.read_bytes())
    except ValueError:
        return True
    known = httpx.create_ssl_context().get_ca_certs(binary_form=True)
    # A CA's own certificate has its name as those that it issued have it.
    return any(one.issuer.public_bytes() in ca for one in chain for ca in known)


class RefusedCertificates:
    """Clients' certificates that could not be verified: counted, and named in the log once an address.

    Such a client gets no answer, and its library seldom says why. For one event loop.
    """

    def __init__(self) -> None:
        self._said: dict[str, float] = {}  # by address, when; the longest ago in front

    def note(self, address: str, error: ssl.SSLCertVerificationError, now: float) -> None:
        """A handshake failed."""
        CLIENT_CERTIFICATES_REFUSED.inc()
        for one, at in list(self._said.items()):
            if now - at < SAID_SECONDS:
                break
            del self._said[one]
        if address in self._said or len(self._said) >= ADDRESSES_MAX:  # safety: refused-certificates-bounded
            return
        self._said[address] = now
        extra = fields(address=address, detail=error.verify_message)
        log.warning("client certificate refused; serving.tls_client_ca says which are taken", extra=extra)

"""Connections of Trino: frames in, frames out, each connection in a thread of its own."""

from __future__ import annotations

import socket
import socketserver
import ssl
import threading
from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from thermocline.errors import ConfigInvalid

if TYPE_CHECKING:
    from thermocline.settings.model import TrinoEndpointSettings

__all__ = ["Listener", "tls_of"]

CONNECTIONS_MAX: Final = 256
"""Trino keeps some open for each of its threads that read; beyond it new ones are closed at once."""
FRAME_BYTES_MAX: Final = 4 << 20
"""Of a call: a condition with thousands of values."""
IDLE_SECONDS: Final = 300.0
"""Without a call; Trino opens a connection again."""
HANDSHAKE_SECONDS: Final = 10.0
"""Of TLS, before which nobody knows who it is."""
_LENGTH: Final = Struct(">I")


def tls_of(settings: TrinoEndpointSettings) -> ssl.SSLContext | None:
    """TLS as the settings have it: for clients whose certificate the authority signed. None without.

    Raises:
        ConfigInvalid: a file is missing, or not what it is said to be.
    """
    if settings.certificate_file is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.certificate_file, settings.key_file)
        context.load_verify_locations(settings.client_ca_file)
    except OSError as error:
        problem = f"certificate_file, key_file and client_ca_file can't be loaded: {error}"
        raise ConfigInvalid(of="[serving.trino]", problems=(problem,)) from error
    context.verify_mode = ssl.CERT_REQUIRED  # safety: trino-client-certificate
    return context


class Listener(socketserver.ThreadingTCPServer):
    """Takes connections at a socket that is bound; ``reply`` answers what a frame holds."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(
        self, bound: socket.socket, reply: Callable[[bytes], bytes], tls: ssl.SSLContext | None = None
    ) -> None:
        super().__init__(bound.getsockname()[:2], _Connection, bind_and_activate=False)
        self.socket.close()
        self.socket = bound
        self.reply = reply
        self.tls = tls
        self.slots = threading.BoundedSemaphore(CONNECTIONS_MAX)
        self.server_activate()


class _Connection(socketserver.BaseRequestHandler):
    server: Listener

    def handle(self) -> None:
        """Answers calls until the connection ends."""
        if not self.server.slots.acquire(blocking=False):
            return
        try:
            self.request.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.request.settimeout(HANDSHAKE_SECONDS)
            if self.server.tls is not None:  # here, so that a client that is slow to begin holds up no other
                self.request = self.server.tls.wrap_socket(self.request, server_side=True)
            self.request.settimeout(IDLE_SECONDS)
            while (message := self._frame()) is not None:
                reply = self.server.reply(message)
                self.request.sendall(_LENGTH.pack(len(reply)) + reply)
        except OSError:  # Trino closed it, no call came, or TLS failed
            return
        finally:
            self.request.close()  # of TLS it is none of the base class's
            self.server.slots.release()

    def _frame(self) -> bytes | None:
        """What the next frame holds; None at the connection's end, or where it is no frame of a call."""
        head = self._bytes(_LENGTH.size)
        if head is None:
            return None
        (length,) = _LENGTH.unpack(head)
        return self._bytes(length) if length <= FRAME_BYTES_MAX else None  # safety: trino-frame-bytes

    def _bytes(self, count: int) -> bytes | None:
        found = bytearray()
        while len(found) < count:
            more = self.request.recv(count - len(found))
            if not more:
                return None
            found += more
        return bytes(found)

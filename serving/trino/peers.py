"""Several servers that answer Trino together: each query has one of them, which answers all of its calls.

Trino asks any server that it knows, and another one for the next call, but all scans of a query must see one
state. So the query's token says which server it belongs to, and the others pass its calls on, byte for byte.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
import threading
from collections import defaultdict
from struct import Struct
from typing import TYPE_CHECKING, Final

from thermocline.errors import ConfigInvalid
from thermocline.rules.hot_columns import group_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thermocline.settings.model import TrinoEndpointSettings

__all__ = ["Peers", "peers_of"]

CONNECT_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 25.0
"""Less than Trino waits for its own call, so that it hears why there is no answer."""
REPLY_BYTES_MAX: Final = 32 << 20
"""A page is half of it at most."""
_LENGTH: Final = Struct(">I")


class Peers:
    """This server among those that answer Trino. For any threads."""

    def __init__(self, own: str, servers: Sequence[str] = (), tls: ssl.SSLContext | None = None) -> None:
        """``servers`` are the addresses of all, ``own`` among them.

        Without other ones it is any name that no other server has, the same after a start.
        """
        self.group = group_of(servers or [own])
        self.own = own
        self._servers = tuple(servers)
        self._tls = tls
        self._lock = threading.Lock()
        self._idle: dict[str, list[socket.socket]] = defaultdict(list)

    def owner_of(self, token: int) -> str | None:
        """The other server whose query that is; None where it is this one's."""
        if not self._servers:
            return None
        owner = max(self._servers, key=lambda one: hashlib.sha256(f"{one} {token}".encode()).digest())
        return None if owner == self.own else owner

    @property
    def has_others(self) -> bool:
        """Whether there are several servers."""
        return len(self._servers) > 1

    def ask(self, server: str, message: bytes) -> bytes:
        """What another server replies to a call. Raises `OSError`."""
        frame = _LENGTH.pack(len(message)) + message
        with self._lock:
            kept = self._idle[server].pop() if self._idle[server] else None
        if kept is not None:
            try:
                return self._answered(server, kept, frame)
            except ConnectionError:  # closed meanwhile, as idle ones are, or it was started again
                pass
        return self._answered(server, self._connected(server), frame)

    def close(self) -> None:
        """Closes the connections that are kept."""
        with self._lock:
            for connection in [one for kept in self._idle.values() for one in kept]:
                connection.close()
            self._idle.clear()

    def _connected(self, server: str) -> socket.socket:
        host, _, port = server.rpartition(":")
        plain = socket.create_connection((host, int(port)), CONNECT_SECONDS)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            return plain
        try:
            return self._tls.wrap_socket(plain, server_hostname=host)
        except OSError:
            plain.close()
            raise

    def _answered(self, server: str, connection: socket.socket, frame: bytes) -> bytes:
        try:
            connection.settimeout(ANSWER_SECONDS)
            connection.sendall(frame)
            reply = _reply(connection)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            self._idle[server].append(connection)
        return reply


def peers_of(settings: TrinoEndpointSettings, alone: str) -> Peers:
    """As the settings have them; ``alone`` is this server's name where it does not have an address there.

    Raises:
        ConfigInvalid: which of the servers this is is not said, or a file of TLS is not what it should be.
    """
    if settings.servers and settings.address is None:
        problem = "servers takes address, too: which of them this server is"
        raise ConfigInvalid(of="[serving.trino]", problems=(problem,))
    own = settings.address or alone
    if not settings.servers or settings.certificate_file is None:
        return Peers(own, settings.servers)
    try:
        tls = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=settings.client_ca_file)
        tls.load_cert_chain(settings.certificate_file, settings.key_file)
    except OSError as error:
        problem = f"certificate_file, key_file and client_ca_file can't be loaded: {error}"
        raise ConfigInvalid(of="[serving.trino]", problems=(problem,)) from error
    return Peers(own, settings.servers, tls)


def _reply(connection: socket.socket) -> bytes:
    (length,) = _LENGTH.unpack(_received(connection, _LENGTH.size))
    if length > REPLY_BYTES_MAX:
        raise OSError(f"a reply of {length} bytes")
    return _received(connection, length)


def _received(connection: socket.socket, count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        more = connection.recv(min(count - len(found), 1 << 20))
        if not more:
            raise ConnectionResetError("it closed the connection")
        found += more
    return bytes(found)

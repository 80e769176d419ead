"""An API process as it listens: a server of uvicorn's, over TLS where it has a certificate."""

from __future__ import annotations

import asyncio
import logging
import ssl as tls
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import uvicorn
import uvloop
from uvloop.loop import SSLProtocol  # type: ignore[attr-defined]  # its types leave it out

from thermocline.serving.access.addresses import identity_of_address
from thermocline.serving.access.certificates import (
    HANDSHAKE_SECONDS_MAX,
    SHUTDOWN_SECONDS_MAX,
    RefusedCertificates,
)
from thermocline.serving.http.protocol import LookupProtocol
from thermocline.serving.process.children import DRAIN_SECONDS

if TYPE_CHECKING:
    import socket

    from thermocline.serving.access.certificates import Certificates
    from thermocline.serving.http.problems import Requests

__all__ = ["EventLoop", "WorkerServer", "config_of"]

# Connections that wait to be accepted; a burst of clients, not a queue of requests.
BACKLOG: Final = 2_048
_OF_CLIENTS: Final = (
    "Invalid HTTP request received.",
    "Unsupported upgrade request.",
    "No supported WebSocket library detected.",
)


def config_of(app: Requests, certificates: Certificates | None) -> uvicorn.Config:
    """What uvicorn is told."""
    return uvicorn.Config(
        app,
        loop=f"{__name__}:EventLoop",
        http=LookupProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        # What proxies say is believed as the settings say.
        proxy_headers=False,  # safety: no-proxy-headers
        ssl_context_factory=None if certificates is None else lambda *_: certificates.context,
        backlog=BACKLOG,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )


def _is_ours_to_know(record: logging.LogRecord) -> bool:
    """Whether a line is no client's mistake: whoever reaches the port could fill the log with these.

    The metric of requests counts them.
    """
    return not record.msg.startswith(_OF_CLIENTS)


class WorkerServer(uvicorn.Server):
    """Calls ``on_listening`` once it listens, and takes up new certificates from then on."""

    def __init__(
        self, app: Requests, certificates: Certificates | None, on_listening: Callable[[], object]
    ) -> None:
        super().__init__(config_of(app, certificates))
        logging.getLogger("uvicorn.error").addFilter(_is_ours_to_know)
        self._certificates = certificates
        self._on_listening = on_listening
        self._following: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Starts the app, then listens."""
        if self._certificates is not None:
            self._following = asyncio.create_task(self._certificates.follow())
        await super().startup(sockets)
        self._on_listening()


class Handshake(SSLProtocol):  # type: ignore[misc]  # as the import
    """TLS on one connection, as uvloop does it, which tells nobody why a handshake failed."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        protocol: asyncio.BaseProtocol,
        context: tls.SSLContext,
        refused: RefusedCertificates,
    ) -> None:
        self._address, self._refused = "", refused
        done: asyncio.Future[None] = loop.create_future()
        done.add_done_callback(self._note)
        super().__init__(
            loop,
            protocol,
            context,
            done,
            server_side=True,
            ssl_handshake_timeout=HANDSHAKE_SECONDS_MAX,  # safety: tls-handshake-bound
            ssl_shutdown_timeout=SHUTDOWN_SECONDS_MAX,
        )

    def connection_made(self, transport: asyncio.Transport) -> None:
        """Somebody came; once the connection is lost, it does not say who."""
        name = transport.get_extra_info("peername")
        self._address = str(name[0]) if isinstance(name, tuple | list) else ""
        super().connection_made(transport)

    def _note(self, done: asyncio.Future[None]) -> None:
        error = None if done.cancelled() else done.exception()
        if isinstance(error, tls.SSLCertVerificationError):
            now = asyncio.get_running_loop().time()
            self._refused.note(identity_of_address(self._address), error, now)


class EventLoop(uvloop.Loop):
    """uvloop's, whose servers wait for nobody within a handshake: uvicorn says nothing of that."""

    async def create_server(  # type: ignore[override]  # as uvloop's, whatever it takes
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *args: Any,
        ssl: tls.SSLContext | None = None,
        **options: Any,
    ) -> asyncio.AbstractServer:
        """Listens. Without TLS there are no such bounds to give."""
        if ssl is None:
            return await super().create_server(protocol_factory, *args, **options)
        refused = RefusedCertificates()

        def begin() -> Handshake:
            return Handshake(self, protocol_factory(), ssl, refused)

        return await super().create_server(begin, *args, **options)

"""An app over a table without a server, and connections to it, by whichever protocol."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final

import httpx
import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from thermocline.serving.access.certificates import Certificates
from thermocline.serving.http.app import create_app
from thermocline.serving.http.guard import Admit, Guard, admit_everyone
from thermocline.serving.http.problems import Requests
from thermocline.serving.process.listening import WorkerServer
from thermocline.serving.read.tables import ServedTable, Tables
from thermocline.settings import ServingSettings

PLAIN: Final = "GET /v1/tables/profiles/rows?app_id=7&user_id=u1 HTTP/1.1\r\nHost: x\r\n\r\n"
USERS: Final = 6
UP_SECONDS_MAX: Final = 60.0


class Wire(asyncio.Transport):
    """A connection's other side: what was written, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.is_closed = False
        self.closed = asyncio.Event()

    def write(self, data: Any) -> None:
        if not self.is_closed:
            self.sent += bytes(data)

    def close(self) -> None:
        self.is_closed = True
        self.closed.set()

    def is_closing(self) -> bool:
        return self.is_closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...


class Connection:
    """One connection of an app, by either protocol."""

    def __init__(self, kind: type[HttpToolsProtocol], app: Requests, **options: Any) -> None:
        config = uvicorn.Config(
            app, http=kind, ws="none", log_config=None, access_log=False, server_header=False, **options
        )
        self.state = ServerState()
        self.state.default_headers = [(b"date", b"Thu, 01 Jan 2026 00:00:00 GMT")]
        self.protocol = kind(config, self.state, {}, asyncio.get_running_loop())
        self.wire = Wire()
        self.protocol.connection_made(self.wire)

    async def send(self, content: bytes) -> bytes:
        """What is answered to that, once nothing more comes."""
        before = len(self.wire.sent)
        if not self.wire.is_closed:  # a real transport would not hand it over
            self.protocol.data_received(content)
        while self.state.tasks:
            await asyncio.wait(self.state.tasks)
            await asyncio.sleep(0)
        return self.wire.sent[before:]

    def end(self) -> None:
        self.protocol._unset_keepalive_if_required()


def served_app(
    world: Any,
    monkeypatch: pytest.MonkeyPatch,
    admit: Admit = admit_everyone,
    cors_origins: tuple[str, ...] = (),
) -> Iterator[SimpleNamespace]:
    """An app over a table, without a server; ``direct`` counts what was answered the short way."""
    for number in range(USERS):
        for key in "abcd":
            world.produce(key_of(f"u{number}", key), value_of("cold"), partition=number % 3)
    world.commit()
    world.publish()
    world.tail()
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true}')
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    settings = ServingSettings(state_dir=world.folder, read_after_seconds_max=0.02, cors_origins=cors_origins)
    app = create_app(Tables([table]), settings, guard=Guard(admit))
    table.refresh()
    direct: Counter[bool] = Counter()
    known = Requests.known

    def counted(*arguments: Any) -> Any:
        found = known(*arguments)
        direct[found is not None] += 1
        return found

    monkeypatch.setattr(Requests, "known", counted)
    # Requests without a name get the same one.
    monkeypatch.setattr("thermocline.serving.http.problems.os", SimpleNamespace(urandom=bytes))
    yield SimpleNamespace(world=world, table=table, app=app, direct=direct)
    app.api.state.worker.close()


@contextmanager
def listening_at(app: Any, certificates: Certificates | None) -> Iterator[int]:
    """A worker's server of the app, in a thread; its port."""
    bound = socket.create_server(("127.0.0.1", 0))
    is_up = threading.Event()
    server = WorkerServer(app, certificates, is_up.set)
    server.config.lifespan = "off"
    running = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
    running.start()
    try:
        assert is_up.wait(UP_SECONDS_MAX)
        yield bound.getsockname()[1]
    finally:
        server.should_exit = True
        running.join()


class AppTransport(httpx.BaseTransport):
    """Sends a client's requests to an app in this process."""

    def __init__(self, app: httpx.Client) -> None:
        self._app = app

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._app.send(request, stream=True)


def key_of(user: str, key: str) -> dict[str, Any]:
    return {"app_id": 7, "user_id": user, "key": key}


def value_of(text: str) -> dict[str, Any]:
    return {"value": text, "updated_at": "2026-01-02T03:04:05Z"}

"""The way from an API worker to the one process that makes snapshots: a socket in a folder of the server's.

A message is the number of its bytes (8, big-endian) and these: first the table's name in UTF-8, then what
comes back, pickled, since both ends are processes of one server, and nobody else can open the socket.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import socketserver
from struct import Struct
from typing import TYPE_CHECKING, Final, cast

from thermocline.errors import InternalError, NotReady, ThermoclineError
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from thermocline.serving.live.maker import Made

log = logging.getLogger(__name__)

__all__ = ["Listening", "LiveChannel"]

_LENGTH: Final = Struct(">Q")
_NAME_BYTES_MAX: Final = 1_024


class LiveChannel:
    """Asks for snapshots. For one event loop."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def current(self, table: str) -> Made:
        """A table as of now. Raises what `SnapshotMaker.current` raises; `NotReady` where nobody answers."""
        try:
            reader, writer = await asyncio.open_unix_connection(self._path)
            try:
                name = table.encode()
                writer.write(_LENGTH.pack(len(name)) + name)
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                content = await reader.readexactly(length)
            finally:
                writer.close()
        except (OSError, asyncio.IncompleteReadError) as error:
            detail = "the process that makes its snapshots is being started again"
            raise NotReady(table=table, detail=detail) from error
        answer = pickle.loads(content)  # noqa: S301  # of a process of this server
        if isinstance(answer, ThermoclineError):
            raise answer
        return cast("Made", answer)


class Listening(socketserver.ThreadingUnixStreamServer):
    """Answers channels, each call in a thread of its own."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: Path, current: Callable[[str], Made]) -> None:
        """``current`` gives a table's snapshot, or raises."""
        path.unlink(missing_ok=True)  # of a process that died
        super().__init__(str(path), _Call)
        self.current = current


class _Call(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        header = self.rfile.read(_LENGTH.size)
        if len(header) < _LENGTH.size:
            return
        (length,) = _LENGTH.unpack(header)
        name = self.rfile.read(min(length, _NAME_BYTES_MAX)).decode()
        answer: Made | ThermoclineError
        try:
            answer = cast("Listening", self.server).current(name)
        except ThermoclineError as error:
            answer = error
        except Exception as error:  # whatever it is, the caller is told, and the next one served
            log.exception("snapshot not made", extra=fields(table=name))
            answer = InternalError.of(error, f"making a snapshot of {name}")
        content = pickle.dumps(answer)
        self.wfile.write(_LENGTH.pack(len(content)) + content)

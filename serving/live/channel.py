"""The way from an API worker to the one process that makes snapshots: a socket in a folder of the server's.

A message is the number of its bytes (8, big-endian) and these, pickled, since both ends are processes of one
server, and nobody else can open the socket: first what is asked for, then what comes back.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
import socketserver
from collections import Counter
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

from thermocline.errors import InternalError, LoadTimeout, NotReady, ServerBusy, ThermoclineError
from thermocline.process.logs import fields

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from thermocline.serving.live.maker import Loaded

log = logging.getLogger(__name__)

__all__ = ["Asked", "Listening", "LiveChannel"]

WAITING_MAX: Final = 100
"""Loads of one table in one API worker: each takes a connection and, where snapshots are made, a thread."""
_LENGTH: Final = Struct(">Q")


class Asked(NamedTuple):
    """A table as of now, with the records ``wanted`` as `SnapshotMaker` has them; or an earlier ``load``."""

    table: str
    wanted: Mapping[tuple[str, int], int]
    load: str = ""


class LiveChannel:
    """Asks for snapshots. For one event loop."""

    def __init__(self, path: Path, seconds_max: float) -> None:
        """``seconds_max`` is how long an answer is waited for."""
        self._path = path
        self._seconds_max = seconds_max
        self._waiting: Counter[str] = Counter()

    async def ask(self, asked: Asked) -> Loaded:
        """What a load is told.

        Raises what `SnapshotMaker` raises; `NotReady` where nobody is there to answer, `LoadTimeout` where no
        answer comes in time, as when the table's store stands still, and `ServerBusy` where too many wait.
        """
        if self._waiting[asked.table] >= WAITING_MAX:  # safety: live-loads-bounded
            raise ServerBusy.of_loads(asked.table, WAITING_MAX)
        self._waiting[asked.table] += 1
        answer = asyncio.ensure_future(self._ask(asked))
        # Also where nobody waits for it any more, it takes a connection and a thread until it comes.
        answer.add_done_callback(partial(self._note_answer, asked.table))
        try:
            async with asyncio.timeout(self._seconds_max):  # safety: live-load-bounded
                return await asyncio.shield(answer)
        except TimeoutError:
            raise LoadTimeout(table=asked.table, seconds=self._seconds_max) from None

    def _note_answer(self, table: str, answer: asyncio.Future[Loaded]) -> None:
        self._waiting[table] -= 1
        if not answer.cancelled():
            answer.exception()  # of one that nobody waits for, asyncio would say that it was never looked at

    async def _ask(self, asked: Asked) -> Loaded:
        try:
            reader, writer = await asyncio.open_unix_connection(self._path)
            try:
                writer.write(_framed(asked))
                (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
                content = await reader.readexactly(length)
            finally:
                writer.close()
        except (OSError, asyncio.IncompleteReadError) as error:
            detail = "the process that makes its snapshots is being started again"
            raise NotReady(table=asked.table, detail=detail) from error
        answer = pickle.loads(content)  # noqa: S301  # of a process of this server
        if isinstance(answer, ThermoclineError):
            raise answer
        return cast("Loaded", answer)


class Listening(socketserver.ThreadingUnixStreamServer):
    """Answers channels, each call in a thread of its own."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, path: Path, answer: Callable[[Asked], Loaded]) -> None:
        """``answer`` gives what a load is told, or raises."""
        path.unlink(missing_ok=True)  # of a process that died
        super().__init__(str(path), _Call)
        self.answer = answer


class _Call(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        header = self.rfile.read(_LENGTH.size)
        if len(header) < _LENGTH.size:
            return
        (length,) = _LENGTH.unpack(header)
        asked: Asked = pickle.loads(self.rfile.read(length))  # noqa: S301  # of a process of this server
        answer: Loaded | ThermoclineError
        try:
            answer = cast("Listening", self.server).answer(asked)
        except ThermoclineError as error:
            answer = error
        except Exception as error:  # whatever it is, the caller is told, and the next one served
            log.exception("snapshot not made", extra=fields(table=asked.table))
            answer = InternalError.of(error, f"making a snapshot of {asked.table}")
        self.wfile.write(_framed(answer))


def _framed(message: Any) -> bytes:
    content = pickle.dumps(message)
    return _LENGTH.pack(len(content)) + content

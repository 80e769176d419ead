"""The server's processes as their parent has them: started, started again, replaced, stopped."""

from __future__ import annotations

import http.client
import json
import logging
import math
import os
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from thermocline.process.clock import SystemClock
from thermocline.process.logs import fields
from thermocline.process.tls import TLS_ERRORS, pinned_context
from thermocline.serving.process.forked import Forked
from thermocline.serving.store.back_off import BackOff

if TYPE_CHECKING:
    from pathlib import Path

    from thermocline.process.clock import Clock

# How often the parent looks at its children; a died one is replaced within this and its back-off.
WATCH_SECONDS: Final = 0.2
# For so long the processes in the background leave the machine to tables that get ready. One that does not
# may need somebody, and the others need not wait for that.
READY_SECONDS_MAX: Final = 60.0
# Requests that run when the server is told to stop may take this long; extracts are broken off then.
DRAIN_SECONDS: Final = 10
STOP_SECONDS: Final = DRAIN_SECONDS + 10.0
# An API process loads its tables for 8 s at most, and then listens; on a busy machine after twice that.
LISTEN_SECONDS_MAX: Final = 20.0

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Child:
    """A process that is to run as long as the server does, or until the configuration is read again.

    ``serves`` is what it was made for: one that was made for the same goes on. In the background, it runs
    from when the server is ready, or has tried to be for `READY_SECONDS_MAX`. One that ``listens`` is
    replaced only once its successor does: ``is_listening`` says so of a process id.
    """

    name: str
    target: Callable[..., None]
    arguments: tuple[Any, ...]
    is_in_background: bool = False
    serves: object = None
    is_listening: Callable[[int], bool] | None = None
    process: Forked | None = None
    started_at: float = 0.0
    start_at: float = 0.0
    back_off: BackOff = field(default_factory=BackOff)

    def tend(self, now: float) -> None:
        """Starts the process if it is due; notices when it has died."""
        if self.process is not None and self.process.has_ended():
            self._note_death(self.process, now)
        if self.process is None and now >= self.start_at:
            self.started_at = now
            try:
                self.process = Forked(self.name, self.target, self.arguments)
            except (OSError, EOFError) as error:  # no memory, or no more processes: the others go on
                self.start_at = now + self.back_off.after(0.0)
                log.warning("process did not start", extra=fields(process=self.name, detail=str(error)))

    def listens(self) -> bool:
        """Whether it takes connections by now."""
        is_listening, process = self.is_listening, self.process
        return is_listening is not None and process is not None and is_listening(process.pid)

    def is_among(self, others: Iterable[Child]) -> bool:
        """Whether it does what one of the others is to do."""
        return any((self.name, self.serves) == (one.name, one.serves) for one in others)

    def _note_death(self, process: Forked, now: float) -> None:
        pause_seconds = self.back_off.after(now - self.started_at)
        log.warning(
            "process died and is started again",
            extra=fields(process=self.name, exit_code=process.close(), seconds=pause_seconds),
        )
        self.start_at = now + pause_seconds
        self.process = None


Reload = Callable[[], Sequence[Child] | None]
"""What is to run by the configuration as it is now; None where that can't be used, or says the same."""


class Children:
    """All processes of a server. ``signals`` are what it is told: to stop, and to read its configuration."""

    def __init__(self, children: Sequence[Child], clock: Clock) -> None:
        self._clock = clock
        self._children = list(children)
        self._leaving: list[tuple[Forked, float]] = []  # with when each is killed

    def watch(
        self,
        url: str,
        reload: Reload = lambda: None,
        certificate: Path | None = None,
        look: Reload = lambda: None,
    ) -> None:
        """Keeps the children running until the process is told to stop; SIGHUP calls ``reload``.

        At ``url`` they are asked whether they are ready, by ``https`` with that certificate. ``look`` is
        called all the time.
        """
        stop, is_reload_due = threading.Event(), threading.Event()
        has_terminal = _has_terminal()
        with _handled({signal.SIGTERM: stop, signal.SIGINT: stop, signal.SIGHUP: is_reload_due}):
            is_announced, overdue_at = False, self._clock.monotonic() + READY_SECONDS_MAX
            while not stop.is_set():
                self._tend(is_background_due=math.isinf(overdue_at))
                if is_reload_due.is_set():
                    is_reload_due.clear()
                    if has_terminal and not _has_terminal():  # it was closed, and nobody asked for anything
                        return
                    self._replace(reload(), stop)
                self._replace(look(), stop)
                if not is_announced and is_ready(url, certificate):
                    log.info("server ready", extra=fields(url=url, docs=f"{url}/docs"))
                    is_announced, overdue_at = True, math.inf
                if self._clock.monotonic() > overdue_at:
                    problems = _unready(url, certificate) or ["no API process answers"]
                    log.warning("the server is not ready", extra=fields(problems="; ".join(problems)))
                    overdue_at = math.inf
                stop.wait(WATCH_SECONDS)

    def stop(self) -> None:
        """Ends all of them; kills what does not end in time."""
        processes = [*_processes(self._children), *(process for process, _ in self._leaving)]
        _stop(processes)
        self._children, self._leaving = [], []

    def _tend(self, is_background_due: bool) -> None:
        now = self._clock.monotonic()
        for child in self._children:
            if is_background_due or not child.is_in_background:
                child.tend(now)
        self._leaving = [one for one in self._leaving if not _has_left(*one, now)]

    def _replace(self, wanted: Sequence[Child] | None, stop: threading.Event) -> None:
        """Has the wanted children run, and no others; None: those that do.

        What is the same goes on. Tailers and the like end before others begin, since these may have the same
        table; those that listen only end once the others do, so that requests are answered all the time.
        """
        if wanted is None:
            return
        kept = [child for child in self._children if child.is_among(wanted)]
        going = [child for child in self._children if child not in kept]
        new = [child for child in wanted if not child.is_among(kept)]
        old = _that_listen(going)
        _stop(_processes(child for child in going if child not in old))
        self._children = [*kept, *new]
        self._await_listening(_that_listen(new), stop)
        kill_at = self._clock.monotonic() + STOP_SECONDS
        for process in _processes(old):
            process.send(signal.SIGTERM)
            self._leaving.append((process, kill_at))

    def _await_listening(self, new: Sequence[Child], stop: threading.Event) -> None:
        deadline = self._clock.monotonic() + LISTEN_SECONDS_MAX
        while not (stop.is_set() or all(child.listens() for child in new)):
            now = self._clock.monotonic()
            if now > deadline:
                names = [child.name for child in new if not child.listens()]
                log.warning("processes do not listen yet; those before end", extra=fields(processes=names))
                return
            for child in self._children:
                if not child.is_in_background:
                    child.tend(now)
            stop.wait(WATCH_SECONDS)


def listening_file(folder: Path, pid: int) -> Path:
    """What an API process leaves in a folder once it listens."""
    return folder / f"listening.{pid}"


def routed_file(folder: Path) -> Path:
    """What the process that looks for tables of routes leaves in a folder when it found some."""
    return folder / "routed"


@contextmanager
def _handled(events: dict[signal.Signals, threading.Event]) -> Iterator[None]:
    """Signals set events meanwhile."""

    def setting(event: threading.Event) -> Callable[..., None]:
        return lambda *_: event.set()

    before = {number: signal.signal(number, setting(event)) for number, event in events.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _has_terminal() -> bool:
    """Whether the process has a terminal that controls it; the one that is closed sends SIGHUP, too."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def _that_listen(children: Iterable[Child]) -> list[Child]:
    return [child for child in children if child.is_listening is not None]


def _processes(children: Iterable[Child]) -> list[Forked]:
    return [child.process for child in children if child.process is not None]


def _stop(processes: Sequence[Forked]) -> None:
    clock = SystemClock()
    for process in processes:
        process.send(signal.SIGTERM)
    deadline = clock.monotonic() + STOP_SECONDS
    for process in processes:
        if not process.has_ended(within_seconds=max(0.0, deadline - clock.monotonic())):
            _kill(process)
        process.close()


def _has_left(process: Forked, kill_at: float, now: float) -> bool:
    """Whether a process that was told to end has; killed where it is time for that."""
    if not process.has_ended():
        if now < kill_at:
            return False
        _kill(process)
    process.close()
    return True


def _kill(process: Forked) -> None:
    log.warning("process did not stop in time and is killed", extra=fields(process=process.name))
    process.send(signal.SIGKILL)


def is_ready(url: str, certificate: Path | None = None) -> bool:
    """Whether a worker of the server says that it is."""
    return _asked(url, certificate, "/readyz") is not None


def _unready(url: str, certificate: Path | None) -> list[str]:
    """Which tables are not ready, and why; empty where no worker says so."""
    try:
        tables = json.loads(_asked(url, certificate, "/status") or b"{}").get("tables", {})
    except ValueError:
        return []
    return [str(one.get("problem", name)) for name, one in tables.items() if not one.get("ready")]


def _asked(url: str, certificate: Path | None, path: str) -> bytes | None:
    """What a worker of the server answers; None where it is not well, or none does."""
    try:
        connection = _connection(urlsplit(url).netloc, certificate)
    except TLS_ERRORS:  # they are being replaced
        return None
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.read() if response.status == http.client.OK else None
    except (OSError, http.client.HTTPException):  # nobody answers yet, or not in HTTP
        return None
    finally:
        connection.close()


def _connection(address: str, certificate: Path | None) -> http.client.HTTPConnection:
    if certificate is None:
        return http.client.HTTPConnection(address, timeout=1)
    return http.client.HTTPSConnection(address, timeout=1, context=pinned_context(certificate))

"""The server: tailer processes, each for one table or several small ones, and API processes on one port.

The parent only starts them, starts again what dies, and stops them all. Nothing passes through it. They are
forks of a process that has imported all that they run (`serving.preload`), so one that died is back soon.
"""

from __future__ import annotations

import gc
import http.client
import json
import logging
import multiprocessing
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from shutil import rmtree
from typing import TYPE_CHECKING, Any, Final

from serving.back_off import BackOff
from serving.forked import Forked
from serving.hot.disk import try_lock
from serving.layout import LOCK, SPILL
from serving.measures import MULTIPROCESS_FOLDER
from serving.tailer_status import forget_status
from serving.trino.listener import tls_of
from serving.trino.peers import peers_of
from thermocline.errors import ConfigInvalid, PortTaken, StateDirUnusable, ThermoclineError
from thermocline.iceberg.catalog import definition_of, load_table, open_catalog
from thermocline.process import logs
from thermocline.process.clock import SystemClock
from thermocline.process.logs import fields
from thermocline.process.title import entitle
from thermocline.settings import problems_of_exposure

if TYPE_CHECKING:
    from pathlib import Path

    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings

# Connections that wait to be accepted; a burst of clients, not a queue of requests.
BACKLOG: Final = 2_048
# How often the parent looks at its children; a died one is replaced within this and its back-off.
WATCH_SECONDS: Final = 0.2
# For so long the processes in the background leave the machine to tables that get ready. One that does not
# may need somebody, and the others need not wait for that.
READY_SECONDS_MAX: Final = 60.0
# Requests that run when the server is told to stop may take this long; extracts are broken off then.
DRAIN_SECONDS: Final = 10
STOP_SECONDS: Final = DRAIN_SECONDS + 10.0
# A peer that takes nothing of an answer for so long is cut off, with what is kept for it.
UNTAKEN_SECONDS_MAX: Final = 120.0
LOWEST_PRIORITY: Final = 19
"""Of a process; as a number of `os.nice`."""

log = logging.getLogger(__name__)


def serve(settings: Settings, log_level: logs.Level = "info", log_json: bool = False) -> int:
    """Serves all configured tables until SIGTERM or SIGINT; the exit code.

    Raises:
        ConfigInvalid: other machines could reach it, and the configuration doesn't allow that.
        PortTaken: it can't listen there.
        StateDirUnusable: the state folder can't be written, or another server holds it.
        ThermoclineError: the catalog can't be reached, or a table is not there or not ours.
    """
    serving = settings.serving
    if problems := tuple(problems_of_exposure(serving)):
        raise ConfigInvalid(of="[serving]", problems=problems)
    with ExitStack() as held:
        port = held.enter_context(_reserved(serving.host, serving.port))
        trino_host, trino_port = serving.trino.host or serving.host, serving.trino.port
        trino = held.enter_context(_reserved(trino_host, trino_port)) if trino_port else None
        # These raise here, and not in a process that is started again and again.
        tls_of(serving.trino)
        peers_of(serving.trino, "")
        held.enter_context(_held(serving.state_dir, settings.tables))
        entitle("serve")
        _raise_open_files_max()
        definitions = load_definitions(settings)
        for name in definitions:
            forget_status(serving.state_dir / name)
            rmtree(serving.state_dir / name / SPILL, ignore_errors=True)  # of extracts that were killed
        held.enter_context(_counted_together())
        endpoint = [] if trino is None else [trino.getsockname()]
        children = [
            *(
                _Child(_tailer_title(names), _run_tailers, (settings, names, log_level, log_json))
                for names in dealt(tuple(definitions), serving.tailers)
            ),
            *(
                _Child(
                    f"api {number}",
                    _run_worker,
                    (settings, definitions, port.getsockname(), log_level, log_json),
                )
                for number in range(settings.serving.workers)
            ),
            *(
                _Child("trino", _run_trino, (settings, definitions, address, log_level, log_json))
                for address in endpoint
            ),
        ]
        if settings.serving.rows_ahead:
            arguments = settings, tuple(definitions), log_level, log_json
            children.append(_Child("rows", _run_rows, arguments, is_in_background=True))
        if settings.serving.extract_jobs_dir is not None:
            children.append(_Child("jobs", _run_jobs, (settings, definitions, log_level, log_json)))
        try:
            _watch(children, serving.url, SystemClock())
        finally:
            _stop(children)
    log.info("server stopped")
    return 0


def load_definitions(settings: Settings) -> dict[str, LiveTable]:
    """The definition that each configured table carries; a file that says otherwise gets a warning."""
    catalog = open_catalog(settings.catalog)
    definitions: dict[str, LiveTable] = {}
    for name, table_settings in settings.tables.items():
        definition = definition_of(load_table(catalog, name, table_settings.identifier), name)
        differences = table_settings.definition(name).differences(definition)
        if differences:
            log.warning(
                "the file's definition differs from the one in use: `thermocline table show NAME`",
                extra=fields(table=name, differences="; ".join(differences)),
            )
        definitions[name] = definition
    return definitions


@contextmanager
def _counted_together() -> Iterator[None]:
    """A folder for the metrics of all processes that are started meanwhile."""
    with tempfile.TemporaryDirectory(prefix="thermocline-metrics-") as folder:
        os.environ[MULTIPROCESS_FOLDER] = folder
        try:
            yield
        finally:
            del os.environ[MULTIPROCESS_FOLDER]


@dataclass(slots=True)
class _Child:
    """A process that is to run as long as the server does.

    In the background, it runs from when the server is ready, or has tried to be for `READY_SECONDS_MAX`.
    """

    name: str
    target: Callable[..., None]
    arguments: tuple[Any, ...]
    is_in_background: bool = False
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

    def _note_death(self, process: Forked, now: float) -> None:
        pause_seconds = self.back_off.after(now - self.started_at)
        log.warning(
            "process died and is started again",
            extra=fields(process=self.name, exit_code=process.close(), seconds=pause_seconds),
        )
        self.start_at = now + pause_seconds
        self.process = None


def _watch(children: list[_Child], url: str, clock: Clock) -> None:
    """Keeps the children running until the process is told to stop."""
    stop = threading.Event()
    before = {
        number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGTERM, signal.SIGINT)
    }
    try:
        is_announced = is_overdue = False
        began_at = clock.monotonic()
        while not stop.is_set():
            for child in children:
                if is_announced or is_overdue or not child.is_in_background:
                    child.tend(clock.monotonic())
            if not is_announced and _is_ready(url):
                log.info("server ready", extra=fields(url=url, docs=f"{url}/docs"))
                is_announced = True
            if not (is_announced or is_overdue) and clock.monotonic() - began_at > READY_SECONDS_MAX:
                problems = _unready(url) or ["no API process answers"]
                log.warning("the server is not ready", extra=fields(problems="; ".join(problems)))
                is_overdue = True
            stop.wait(WATCH_SECONDS)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _stop(children: list[_Child]) -> None:
    processes = [child.process for child in children if child.process is not None]
    for process in processes:
        process.send(signal.SIGTERM)
    deadline = SystemClock().monotonic() + STOP_SECONDS
    for process in processes:
        if not process.has_ended(within_seconds=max(0.0, deadline - SystemClock().monotonic())):
            log.warning("process did not stop in time and is killed", extra=fields(process=process.name))
            process.send(signal.SIGKILL)
        process.close()


def dealt(names: Sequence[str], processes: int) -> list[tuple[str, ...]]:
    """The tables by process: one each while there are enough, else in turn."""
    return [tuple(names[number::processes]) for number in range(min(processes, len(names)))]


def _tailer_title(names: Sequence[str]) -> str:
    return f"tailer {names[0]}" if len(names) == 1 else f"tailer {names[0]} and {len(names) - 1} more"


def _run_tailers(settings: Settings, names: tuple[str, ...], log_level: logs.Level, log_json: bool) -> None:
    """A tailer process."""
    from serving.tailers import run_tailers  # noqa: PLC0415  # the parent needs none of it

    stop = threading.Event()
    _become_child(log_level, log_json, stop.set)
    try:
        run_tailers(settings, names, stop)
    except ThermoclineError as error:
        log.error(  # noqa: TRY400  # it says itself what happened
            "tailer failed",
            extra=fields(tables=list(names), code=error.code, detail=error.what, next=error.next),
        )
        sys.exit(error.exit_code)


def _run_worker(
    settings: Settings,
    definitions: Mapping[str, LiveTable],
    address: tuple[Any, ...],
    log_level: logs.Level,
    log_json: bool,
) -> None:
    """An API process."""
    import uvicorn  # noqa: PLC0415  # the parent needs none of these

    from serving.app import create_app  # noqa: PLC0415
    from serving.jobs.files import store_io  # noqa: PLC0415
    from serving.protocol import LookupProtocol  # noqa: PLC0415
    from serving.tables import open_tables  # noqa: PLC0415

    _become_child(log_level, log_json, lambda: sys.exit(0))
    app = create_app(open_tables(settings, definitions), settings.serving, store_io(settings.catalog))
    # What lives as long as the process: to look through it stops all for a tenth of a second, each time.
    gc.collect()
    gc.freeze()
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=LookupProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    # A socket of its own: the kernel spreads connections over those of a port that listen, and passes over a
    # dead worker's. Of a socket that all share, the first worker to wake would accept a whole burst. uvicorn
    # listens once the app has started up, so no connection waits for a worker that can't answer yet.
    sockets = [_bound(address, socket.SO_REUSEPORT, socket.SO_REUSEADDR)]
    uvicorn.Server(config).run(sockets=sockets)


def _run_trino(
    settings: Settings,
    definitions: Mapping[str, LiveTable],
    address: tuple[Any, ...],
    log_level: logs.Level,
    log_json: bool,
) -> None:
    """The endpoint for Trino: one process, so that all scans of a query find the same state."""
    from serving.trino.process import run_endpoint  # noqa: PLC0415  # the parent needs none of it

    stop = threading.Event()
    _become_child(log_level, log_json, stop.set)
    run_endpoint(settings, definitions, _bound(address, socket.SO_REUSEPORT, socket.SO_REUSEADDR), stop)


def _run_rows(settings: Settings, names: tuple[str, ...], log_level: logs.Level, log_json: bool) -> None:
    """The process that makes rows ready to send."""
    os.nice(LOWEST_PRIORITY)
    from serving.cold.ahead import run_ahead  # noqa: PLC0415  # the parent reads no rows

    stop = threading.Event()
    _become_child(log_level, log_json, stop.set)
    run_ahead(settings, names, stop)


def _run_jobs(
    settings: Settings, definitions: Mapping[str, LiveTable], log_level: logs.Level, log_json: bool
) -> None:
    """The process that runs extract jobs."""
    from serving.jobs.files import store_io  # noqa: PLC0415
    from serving.jobs.runner import run_jobs  # noqa: PLC0415  # the parent needs no DuckDB
    from serving.tables import open_tables  # noqa: PLC0415

    stop = threading.Event()
    _become_child(log_level, log_json, stop.set)
    try:
        run_jobs(open_tables(settings, definitions), settings.serving, store_io(settings.catalog), stop)
    except ThermoclineError as error:
        extra = fields(code=error.code, detail=error.what, next=error.next)
        log.error("extract jobs failed", extra=extra)  # noqa: TRY400  # it says itself what happened
        sys.exit(error.exit_code)


def _become_child(log_level: logs.Level, log_json: bool, stop: Callable[[], object]) -> None:
    """Sets up title, logs and signals, and sees to it that nothing outlives the parent."""
    entitle(multiprocessing.current_process().name)
    logs.configure(log_level, log_json)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent passes on its own
    signal.signal(signal.SIGTERM, lambda *_: stop())
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, name="follow parent", daemon=True).start()


def _raise_open_files_max() -> None:
    """As far as the system allows: a process keeps each data file of its tables' snapshots open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextmanager
def _held(state_dir: Path, tables: Iterable[str]) -> Iterator[None]:
    """The state folder, for this server alone, with a folder in it for each table; all can be written."""
    try:
        for folder in (state_dir, *(state_dir / table for table in tables)):
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=folder):
                pass
        lock = try_lock(state_dir / LOCK)
    except OSError as error:
        raise StateDirUnusable(path=str(state_dir), detail=str(error)) from error
    if lock is None:  # safety: state-dir-held
        raise StateDirUnusable(path=str(state_dir), detail="another server is using it")
    with lock:
        yield


def _reserved(host: str, port: int) -> socket.socket:
    """The port, for this server's workers alone: bound, but nobody listens here."""
    try:
        with socket.create_server((host, port), family=_family(host)) as alone:
            address = alone.getsockname()
        return _bound(address, socket.SO_REUSEPORT)
    except OSError as error:
        raise PortTaken.of(host, port, error) from error


def _bound(address: tuple[Any, ...], *options: int) -> socket.socket:
    """A socket at the server's address that does not listen (yet).

    ``SO_REUSEPORT`` lets the server's sockets share the address. With ``SO_REUSEADDR`` its closed connections
    don't keep the address from the next server, nor would the socket itself: so the reserved one is without.
    """
    bound = socket.socket(_family(address[0]))
    # A connection that is accepted there has it from there.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * UNTAKEN_SECONDS_MAX))
    for option in options:
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
    bound.bind(address)
    return bound


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _is_ready(url: str) -> bool:
    return _asked(url, "/readyz") is not None


def _unready(url: str) -> list[str]:
    """Which tables are not ready, and why; empty where no worker says so."""
    try:
        tables = json.loads(_asked(url, "/status") or b"{}").get("tables", {})
    except ValueError:
        return []
    return [str(one.get("problem", name)) for name, one in tables.items() if not one.get("ready")]


def _asked(url: str, path: str) -> bytes | None:
    """What a worker of the server answers; None where it is not well, or none does."""
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=1)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.read() if response.status == http.client.OK else None
    except (OSError, http.client.HTTPException):  # nobody answers yet, or not in HTTP
        return None
    finally:
        connection.close()

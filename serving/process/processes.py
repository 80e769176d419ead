"""The work of each process of the server, from the moment that it was forked."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from thermocline.errors import ConfigInvalid, PortTaken, ThermoclineError
from thermocline.iceberg.routed_tables import with_routed_tables
from thermocline.process import logs
from thermocline.process.clock import SystemClock
from thermocline.process.logs import fields
from thermocline.process.masking import remember
from thermocline.process.title import set_title
from thermocline.process.tls import TLS_ERRORS
from thermocline.process.usage import MULTIPROCESS_FOLDER, note_process
from thermocline.serving.process.children import listening_file, routed_file
from thermocline.serving.store.layout import LIVE_SOCKET
from thermocline.settings import problems_of_tls

if TYPE_CHECKING:
    from collections.abc import Mapping

    from thermocline.rules.definition import LiveTable
    from thermocline.serving.access.certificates import Certificates
    from thermocline.serving.http.guard import Guard
    from thermocline.settings import Settings

# A peer that takes nothing of an answer for so long is cut off, with what is kept for it.
UNTAKEN_SECONDS_MAX: Final = 120.0
LOWEST_PRIORITY: Final = 19
"""Of a process; as a number of `os.nice`."""

ROUTES_SECONDS: Final = 5.0
"""Between looks for tables that routes made: a request to the catalog for each route."""
ROUTES_SECONDS_MAX: Final = 60.0
"""The same while the server can't take up what was found: each time, it reads the new tables' definitions."""

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Served:
    """What the processes of a server are told: its settings, its tables, and how to log.

    ``definitions`` are those of all its tables, as the table carries it or, where it can't be read, as the
    file has it. ``since`` says from when on these are its tables.
    """

    settings: Settings
    definitions: Mapping[str, LiveTable]
    since: str
    log_level: logs.Level = "info"
    log_json: bool = False


def run_tailers(served: Served, names: tuple[str, ...]) -> None:
    """A tailer process."""
    from thermocline.serving.tail.tailers import run_tailers as run  # noqa: PLC0415  # the parent needs none of it

    stop = threading.Event()
    _become_child(served, stop.set)
    try:
        run(served.settings, names, stop)
    except ThermoclineError as error:
        log.error(  # noqa: TRY400  # it says itself what happened
            "tailer failed",
            extra=fields(tables=list(names), code=error.code, detail=error.what, next=error.next),
        )
        sys.exit(error.exit_code)


def run_worker(served: Served, address: tuple[Any, ...]) -> None:
    """An API process."""
    from thermocline.serving.http.app import create_app  # noqa: PLC0415
    from thermocline.serving.jobs.files import store_io  # noqa: PLC0415
    from thermocline.serving.live.channel import LiveChannel  # noqa: PLC0415
    from thermocline.serving.process.listening import WorkerServer  # noqa: PLC0415
    from thermocline.serving.read.tables import open_tables  # noqa: PLC0415

    _become_child(served, lambda: sys.exit(0))
    settings = served.settings
    tables = open_tables(settings, served.definitions, served.since)
    catalog = settings.serving.catalog
    live = LiveChannel(_live_socket(), catalog.load_seconds_max) if catalog.enabled else None
    certificates = _certificates(settings)
    app = create_app(
        tables, settings.serving, store_io(settings.catalog), _guard(settings, certificates), live
    )

    def note_listening() -> None:
        listening_file(Path(os.environ[MULTIPROCESS_FOLDER]), os.getpid()).touch()

    # What lives as long as the process: to look through it stops all for a tenth of a second, each time.
    gc.collect()
    gc.freeze()
    # A socket of its own: the kernel spreads connections over those of a port that listen, and passes over a
    # dead worker's. Of a socket that all share, the first worker to wake would accept a whole burst. uvicorn
    # listens once the app has started up, so no connection waits for a worker that can't answer yet.
    sockets = [bound(address, socket.SO_REUSEPORT, socket.SO_REUSEADDR)]
    WorkerServer(app, certificates, note_listening).run(sockets=sockets)


def _certificates(settings: Settings) -> Certificates | None:
    """What it speaks TLS with. Ends the process where that can't be used."""
    from thermocline.serving.access.certificates import Certificates  # noqa: PLC0415

    try:
        return Certificates.of(settings.serving)
    except TLS_ERRORS:  # the files were replaced since the server started
        problems = list(problems_of_tls(settings.serving))
        log.error("no API process: its certificate can't be used", extra=fields(problems=problems))  # noqa: TRY400
        sys.exit(ConfigInvalid.exit_code)


def _guard(settings: Settings, certificates: Certificates | None) -> Guard:
    """What stands before the endpoints by these settings."""
    from thermocline.serving.access.admission import Admission  # noqa: PLC0415
    from thermocline.serving.access.audit import open_audit_log  # noqa: PLC0415
    from thermocline.serving.access.clients_file import ClientsFile  # noqa: PLC0415
    from thermocline.serving.access.connections import Connections  # noqa: PLC0415
    from thermocline.serving.access.limits import Limits, RateLimits  # noqa: PLC0415
    from thermocline.serving.http.guard import Guard  # noqa: PLC0415

    audit, path = open_audit_log(settings), settings.serving.clients_file
    connections = Connections.of(settings.serving)
    problems = [] if audit is None else [audit.problem]
    if certificates is not None:
        problems.append(certificates.told)
    serving, rates = settings.serving, None
    if path is not None or serving.limits != Limits():
        rates = RateLimits(Path(os.environ[MULTIPROCESS_FOLDER]), serving.workers, SystemClock())
    guard = Guard(audit=audit, problems=problems, connections=connections, rates=rates, limits=serving.limits)
    if certificates is not None:
        guard = replace(guard, has_own_ca=lambda: certificates.has_own_ca)
    if path is None:
        return guard
    file = ClientsFile(path)
    admission = Admission(file, SystemClock(), rates)
    return replace(
        guard,
        admit=admission,
        recognise=admission.recognised,
        tended=[admission.tend_forever],
        problems=[*problems, admission.told],
    )


def run_live(served: Served) -> None:
    """The process that makes snapshots as of now."""
    from thermocline.serving.live.process import run_live as run  # noqa: PLC0415  # the parent needs none of it

    stop = threading.Event()
    _become_child(served, stop.set)
    run(served.settings, served.definitions, _live_socket(), stop)


def _live_socket() -> Path:
    return Path(os.environ[MULTIPROCESS_FOLDER]) / LIVE_SOCKET


def run_rows(served: Served) -> None:
    """The process that makes rows ready to send."""
    os.nice(LOWEST_PRIORITY)
    from thermocline.serving.cold.ahead import run_ahead  # noqa: PLC0415  # the parent reads no rows

    stop = threading.Event()
    _become_child(served, stop.set)
    run_ahead(served.settings, tuple(served.definitions), stop)


def run_routes(served: Served) -> None:
    """The process that looks for tables that routes make, and tells the server of them."""
    stop = threading.Event()
    _become_child(served, stop.set)
    look_for_routed(served.settings, routed_file(Path(os.environ[MULTIPROCESS_FOLDER])).touch, stop.wait)


def look_for_routed(settings: Settings, tell: Callable[[], object], wait: Callable[[float], bool]) -> None:
    """Tells whenever routes have made tables that these settings lack, until ``wait`` says that it is over.

    Whoever takes them up ends this process. Where nobody could, it tells again, more and more rarely.
    """
    problem, seconds = "", ROUTES_SECONDS
    while not wait(seconds):
        try:
            found = with_routed_tables(settings).tables.keys() - settings.tables.keys()
        except ThermoclineError as error:
            if error.code != problem:
                extra = fields(code=error.code, detail=error.what)
                log.warning("can't look for new tables of routes; will try again", extra=extra)
            problem = error.code
            continue
        problem = ""
        if found:
            log.info("routes made tables; serving them, too", extra=fields(tables=sorted(found)))
            tell()  # safety: routed-told-again
        seconds = min(2 * seconds, ROUTES_SECONDS_MAX) if found else ROUTES_SECONDS


def run_jobs(served: Served) -> None:
    """The process that runs extract jobs."""
    from thermocline.serving.jobs.files import store_io  # noqa: PLC0415
    from thermocline.serving.jobs.runner import run_jobs as run  # noqa: PLC0415  # the parent needs no DuckDB
    from thermocline.serving.read.tables import open_tables  # noqa: PLC0415

    stop = threading.Event()
    _become_child(served, stop.set)
    settings = served.settings
    try:
        run(open_tables(settings, served.definitions), settings.serving, store_io(settings.catalog), stop)
    except ThermoclineError as error:
        extra = fields(code=error.code, detail=error.what, next=error.next)
        log.error("extract jobs failed", extra=extra)  # noqa: TRY400  # it says itself what happened
        sys.exit(error.exit_code)


def _become_child(served: Served, stop: Callable[[], object]) -> None:
    """Sets up title, logs and signals, and sees to it that nothing outlives the parent."""
    set_title(multiprocessing.current_process().name)
    note_process()
    logs.configure(served.log_level, served.log_json)
    remember(served.settings.secrets())
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent passes on its own
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the parent's alone
    signal.signal(signal.SIGTERM, lambda *_: stop())
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, name="follow parent", daemon=True).start()


def bound(address: tuple[Any, ...], *options: int) -> socket.socket:
    """A socket at the server's address that does not listen (yet).

    ``SO_REUSEPORT`` lets the server's sockets share the address. With ``SO_REUSEADDR`` its closed connections
    don't keep the address from the next server, nor would the socket itself: so the reserved one is without.
    """
    bound = socket.socket(family(address[0]))
    # A connection that is accepted there has it from there.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(1000 * UNTAKEN_SECONDS_MAX))
    for option in options:
        bound.setsockopt(socket.SOL_SOCKET, option, 1)
    bound.bind(address)
    return bound


def family(host: str) -> socket.AddressFamily:
    """The host's, by its form."""
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def reserved(host: str, port: int) -> socket.socket:
    """The port, for this server's workers alone: bound, but nobody listens here. Raises `PortTaken`."""
    try:
        with socket.create_server((host, port), family=family(host)) as alone:
            address = alone.getsockname()
        return bound(address, socket.SO_REUSEPORT)
    except OSError as error:
        raise PortTaken.of(host, port, error) from error

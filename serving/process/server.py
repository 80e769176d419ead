"""The server: tailer processes, each for one table or several small ones, and API processes on one port.

The parent only starts them, starts again what dies, and stops them all. Nothing passes through it. They are
forks of a process that has imported all that they run (`serving.process.preload`), so one that died is back
soon.
"""

from __future__ import annotations

import logging
import math
import os
import resource
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING, Any

from thermocline.errors import ConfigInvalid, ThermoclineError
from thermocline.iceberg.catalog import definition_of, load_table, open_catalog
from thermocline.iceberg.routed_tables import with_routed_tables
from thermocline.process.clock import SystemClock
from thermocline.process.logs import fields
from thermocline.process.private_folder import temporary_folder
from thermocline.process.title import set_title
from thermocline.process.usage import MULTIPROCESS_FOLDER, note_process
from thermocline.rules.contract.in_file import with_evolved
from thermocline.serving.access.clients import read_clients
from thermocline.serving.access.entity_hash import hash_key
from thermocline.serving.hot.disk_room import log_disk_room
from thermocline.serving.process.children import Child, Children, listening_file, routed_file
from thermocline.serving.process.processes import (
    Served,
    reserved,
    run_jobs,
    run_live,
    run_routes,
    run_rows,
    run_tailers,
    run_worker,
)
from thermocline.serving.process.state_dir import held_state_dir, make_state_folders
from thermocline.serving.store.layout import SPILL
from thermocline.serving.tail.follower import problem_of
from thermocline.serving.tail.tailer_status import forget_status
from thermocline.settings import problems_of_exposure, problems_of_tls

if TYPE_CHECKING:
    from thermocline.process import logs
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings

log = logging.getLogger(__name__)


def serve(
    settings: Settings,
    log_level: logs.Level = "info",
    log_json: bool = False,
    read_again: Callable[[], Settings] | None = None,
) -> int:
    """Serves all configured tables until SIGTERM or SIGINT; the exit code.

    A table that is missing or broken is named in the log, and served as soon as it can be. On SIGHUP the
    configuration is read again (``read_again``), and its tables are served from then on. Tables that routes
    make are, as they come.

    Raises:
        ConfigInvalid: other machines could reach it, and nobody says who may ask; or the clients file or the
            certificate is wrong.
        PortTaken: it can't listen there.
        StateDirUnusable: the state folder can't be written, or another server holds it.
        ThermoclineError: the catalog can't be reached, or none of the tables can be served.
    """
    settings, serving = settings.without_directories(), settings.serving
    if problems := (*problems_of_exposure(serving), *problems_of_tls(serving)):
        raise ConfigInvalid(of="[serving]", problems=problems)
    if serving.clients_file is not None:
        read_clients(serving.clients_file)
    if settings.audit.sink != "off":
        hash_key(settings.audit.hash_key_file)
    with ExitStack() as held:
        port = held.enter_context(reserved(serving.host, serving.port))
        held.enter_context(held_state_dir(serving.state_dir, settings.tables))
        set_title("serve")
        _raise_open_files_max()
        clock = SystemClock()
        served = Served(settings, load_definitions(settings), _since("its start", clock), log_level, log_json)
        _forget_earlier(serving.state_dir, settings.tables)
        log_disk_room(serving, len(settings.tables))
        folder = held.enter_context(_counted_together())
        places = _Places(port.getsockname(), folder)
        children = Children(_children(served, places), clock)

        def taken_up(again: Served | None) -> list[Child] | None:
            nonlocal served
            served = again or served
            return None if again is None else _children(again, places)

        def reload() -> list[Child] | None:
            return None if read_again is None else taken_up(reloaded(served, read_again, clock))

        def look() -> list[Child] | None:
            told = routed_file(folder)
            if not told.exists():
                return None
            told.unlink()  # before the look: what comes meanwhile is told of again
            return taken_up(with_routed(served, clock))

        try:
            children.watch(serving.url, reload, serving.tls_certificate, look)
        finally:
            children.stop()
    log.info("server stopped")
    return 0


def load_definitions(settings: Settings) -> dict[str, LiveTable]:
    """The definition that each configured table carries; a file that says otherwise gets a warning.

    Of a table that can't be read, it is the one that the file asks for, and the log says what is wrong.

    Raises:
        ThermoclineError: none of them can be read, for the reason of the first.
    """
    catalog = open_catalog(settings.catalog)
    definitions: dict[str, LiveTable] = {}
    problems: dict[str, ThermoclineError] = {}
    for name, table_settings in settings.tables.items():

        def look(name: str = name, identifier: str = table_settings.identifier) -> None:
            definitions[name] = definition_of(load_table(catalog, name, identifier), name)

        problem = problem_of(name, look)
        if problem is not None:
            definitions[name] = table_settings.definition(name)
            problems[name] = problem
            continue
        there = definitions[name]
        wanted = with_evolved(table_settings.definition(name, there), there)
        if differences := wanted.differences(there):
            log.warning(
                "the file's definition differs from the one in use: `thermocline table show NAME`",
                extra=fields(table=name, differences="; ".join(differences)),
            )
    if problems and problems.keys() == definitions.keys():
        raise next(iter(problems.values()))
    for name, problem in problems.items():
        extra = fields(table=name, code=problem.code, detail=problem.what, next=problem.next)
        log.error("table can't be served yet; the others are, and it is once it can be", extra=extra)
    return definitions


@dataclass(frozen=True, slots=True)
class _Places:
    """Where the server listens, and the folder of its processes' metrics."""

    api: tuple[Any, ...]
    metrics: Path


def _children(served: Served, places: _Places) -> list[Child]:
    """All that is to run."""
    settings, serving = served.settings, served.settings.serving
    everything = settings.tables

    def is_listening(pid: int) -> bool:
        return listening_file(places.metrics, pid).exists()

    children = [
        Child(_tailer_title(names), run_tailers, (served, names), serves=[(n, everything[n]) for n in names])
        for names in dealt({name: table.topics for name, table in everything.items()}, serving.tailers)
    ]
    children += [
        Child(f"api {number}", run_worker, (served, places.api), serves=everything, is_listening=is_listening)
        for number in range(serving.workers)
    ]
    if serving.catalog.enabled:
        children.append(Child("live", run_live, (served,), serves=everything))
    if serving.rows_ahead:
        children.append(Child("rows", run_rows, (served,), is_in_background=True, serves=everything))
    if settings.routes:
        watched = (everything, settings.routes)
        children.append(Child("routes", run_routes, (served,), is_in_background=True, serves=watched))
    if serving.extract_jobs_dir is not None:
        children.append(Child("jobs", run_jobs, (served,), serves=everything))
    return children


def reloaded(served: Served, read: Callable[[], Settings], clock: Clock) -> Served | None:
    """What is to be served by the configuration as it is now; None where it is the same, or can't be used.

    Only its tables and routes are taken: all else is as it was at the start.
    """
    before = served.settings
    try:
        found = read()
        found = found.without_directories()
        settings = before.model_copy(update={"tables": found.tables, "routes": found.routes})
        if found != settings:
            log.warning("settings other than tables changed: they count from the next start on")
        if settings == before:
            log.info("configuration read again; its tables are the same")
            return None
        changed = [name for name, table in settings.tables.items() if table != before.tables.get(name)]
        make_state_folders(before.serving.state_dir, changed)
        definitions = load_definitions(settings)
    except ThermoclineError as error:
        extra = fields(code=error.code, detail=error.what, next=error.next)
        log.error("configuration not taken up; the one before holds", extra=extra)  # noqa: TRY400
        return None
    removed = [name for name in before.tables if name not in settings.tables]
    log.info("configuration read again", extra=fields(tables=list(settings.tables), removed=removed))
    for name in removed:
        left = f"rm -r {shlex.quote(str(before.serving.state_dir / name))}"
        log.info("table is no longer served; its state may be deleted", extra=fields(table=name, next=left))
    _forget_earlier(before.serving.state_dir, changed)
    return replace(served, settings=settings, definitions=definitions, since=_since("its reload", clock))


def with_routed(served: Served, clock: Clock) -> Served | None:
    """The same with the tables that its routes made since; None where there is none that can be served yet.

    The configuration is not read: what else was edited in it is taken up when somebody asks for that.
    """
    before = served.settings
    try:
        found = with_routed_tables(before).tables
        new = {name: table for name, table in found.items() if name not in before.tables}
        if not new:
            return None
        make_state_folders(before.serving.state_dir, new)
        definitions = load_definitions(before.model_copy(update={"tables": new}))
    except ThermoclineError as error:
        extra = fields(code=error.code, detail=error.what)
        log.error("tables of routes can't be served yet; will try again", extra=extra)  # noqa: TRY400
        return None
    _forget_earlier(before.serving.state_dir, new)
    log.info("tables of routes are served, too", extra=fields(tables=list(new)))
    return replace(
        served,
        settings=before.model_copy(update={"tables": {**before.tables, **new}}),
        definitions={**served.definitions, **definitions},
        since=_since("it took up tables of routes", clock),
    )


def _since(event: str, clock: Clock) -> str:
    """From when on the tables are served, for whoever asks for another one."""
    return f"{event} at {datetime.fromtimestamp(clock.now_ms() / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"


def _forget_earlier(state_dir: Path, tables: Iterable[str]) -> None:
    """What an earlier server, or process, left that is not true of the next one."""
    for name in tables:
        forget_status(state_dir / name)
        rmtree(state_dir / name / SPILL, ignore_errors=True)  # of extracts that were killed


@contextmanager
def _counted_together() -> Iterator[Path]:
    """A folder for the metrics of all processes that are started meanwhile."""
    with temporary_folder("thermocline-metrics-") as folder:
        os.environ[MULTIPROCESS_FOLDER] = str(folder)
        note_process()
        try:
            yield folder
        finally:
            del os.environ[MULTIPROCESS_FOLDER]


def dealt(topics: Mapping[str, Sequence[str]], processes: int) -> list[tuple[str, ...]]:
    """The tables by process, from the topics of each: one each while there are enough.

    Otherwise those of the same topics go together, for a process fetches a topic once. Topics with more
    tables than a process's fair share are read by several. None has more than twice that share.
    """
    together: dict[tuple[str, ...], list[str]] = {}
    for name, of in topics.items():
        together.setdefault(tuple(sorted(of)), []).append(name)
    found: list[list[str]] = [[] for _ in range(min(processes, len(topics)))]
    for names in together.values():
        parts = min(math.ceil(processes * len(names) / len(topics)), len(names))
        for number in range(parts):
            min(found, key=len).extend(names[number::parts])
    return [tuple(names) for names in found if names]


def _tailer_title(names: Sequence[str]) -> str:
    return f"tailer {names[0]}" if len(names) == 1 else f"tailer {names[0]} and {len(names) - 1} more"


def _raise_open_files_max() -> None:
    """As far as the system allows: a process keeps each data file of its tables' snapshots open."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

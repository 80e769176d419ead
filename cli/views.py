"""``thermocline views``: the live view in Trino."""

from __future__ import annotations

import threading
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Group
from rich.text import Text

from thermocline.cli.metrics_port import MetricsPort, metrics_served
from thermocline.cli.output import show, table
from thermocline.cli.read_points import FORMS, read_point_of
from thermocline.cli.session import AsJson, TableName, session_of
from thermocline.cli.stopping import stop_event
from thermocline.errors import ExitCode, TrinoUnreachable, ViewsLate
from thermocline.text.typed import as_typed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thermocline.views.check import ViewCheck
    from thermocline.views.plan import PlannedView
    from thermocline.views.publish import PublishRound

# A word for every view that reads the table's newest snapshot.
ViewMode = StrEnum("ViewMode", ["live", "live_by_key", "cold"])

app = typer.Typer(help="Manage a table's views in Trino.", no_args_is_help=True)


@app.command("config")
def config(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Created if missing.")],
    publisher: Annotated[
        str | None,
        typer.Option(metavar="USER", help="Trino user that publishes views. Default: views.user."),
    ] = None,
    admin: Annotated[str | None, typer.Option(metavar="USER", help="Trino user with all rights.")] = None,
    as_json: AsJson = False,
) -> None:
    """Write the configuration files that Trino needs.

    The files define catalogs, topics as tables, access rules and limits. Contacts no server.

    Copy the files into Trino's etc folder; DIR/README.md describes each. They contain no secrets: Trino reads
    those from environment variables, which are listed at the end.
    """
    from thermocline.views.access import Names
    from thermocline.views.config import trino_files, write_files

    settings = session_of(context).settings()
    views = settings.views
    names = Names(lake=views.lake, kafka=views.kafka, publisher=publisher or views.user, admin=admin)
    trino = trino_files(settings, names)
    write_files(trino, folder)
    document = {
        "folder": str(folder.absolute()),
        "files": sorted(trino.files),
        "variables": sorted(trino.secrets),
        "left_out": dict(sorted(trino.left_out.items())),
    }
    lines = [f"{len(trino.files)} files in {folder.absolute()}; README.md says what each does"]
    lines += [f"set for Trino: {name}" for name in sorted(trino.secrets)]
    lines += [f"not translated: {name} ({reason})" for name, reason in sorted(trino.left_out.items())]
    show(document, Text("\n".join(lines)), as_json)


@app.command()
def render(
    context: typer.Context,
    name: TableName,
    mode: Annotated[ViewMode | None, typer.Option(help="Only this view.")] = None,
    as_json: AsJson = False,
) -> None:
    """Print the SQL that would create the views now."""
    settings = session_of(context).settings()
    settings.table(name)
    from thermocline.iceberg.catalog import open_table
    from thermocline.kafka.log import Log
    from thermocline.process.clock import SystemClock
    from thermocline.views.facts import look
    from thermocline.views.plan import cold_view, live_views
    from thermocline.views.render import Mode

    facts = look(open_table(settings, name), name, Log(settings.kafka), SystemClock())
    planned = live_views(settings, facts)
    if Mode.COLD in settings.table(name).views:
        planned[Mode.COLD] = cold_view(settings, facts.definition, facts.state.snapshot_id)
    chosen = [_renderable(one) for kind, one in planned.items() if mode is None or kind == mode.value]
    if not chosen:
        wanted = "any view" if mode is None else f"the view {mode}"
        raise typer.BadParameter(f"{name} does not have {wanted}: its settings or its key leave it out")
    statements = {_named(one): one.statement for one in chosen}
    show({"table": name, "statements": statements}, Text(";\n\n".join(statements.values()) + ";"), as_json)


def _renderable(one: PlannedView | ViewsLate) -> PlannedView:
    if isinstance(one, ViewsLate):
        raise one
    return one


@app.command()
def publish(
    context: typer.Context,
    name: TableName,
    watch: Annotated[
        bool, typer.Option("--watch", help="Publish after each commit until SIGTERM or Ctrl-C.")
    ] = False,
    metrics_port: MetricsPort = None,
    as_json: AsJson = False,
) -> int:
    """Publish the views of the current snapshot in Trino.

    With views.enabled, `ingest run` does this after each commit.
    """
    session = session_of(context)
    settings = session.settings()
    interval_seconds = settings.table(name).commit_interval_seconds
    session.configure_logs("info" if watch else "warning")
    from thermocline.process.clock import SystemClock
    from thermocline.views.publication import Publication
    from thermocline.views.watch import WATCH_SECONDS, PublishWatch

    clock = SystemClock()
    publication = Publication(settings, name, clock)
    if watch:
        with stop_event() as stop, metrics_served(metrics_port):
            # Nobody tells this process of a commit, so it looks more often.
            pause = min(interval_seconds, WATCH_SECONDS)
            return PublishWatch(name, publication, pause, clock).follow(threading.Event(), stop)
    done = publication()
    if done.stop is not None:
        raise done.stop
    code = ExitCode.DONE if done.replaced else ExitCode.NOTHING_TO_DO
    show(_document(name, done, code), Text("\n".join(_lines(name, done))), as_json)
    return code


@app.command()
def pin(
    context: typer.Context,
    name: TableName,
    at: Annotated[
        str,
        typer.Option(metavar=FORMS, help="Read point, as printed by `extract`, or a file or time."),
    ],
    called: Annotated[
        str,
        typer.Option(
            "--name",
            metavar="NAME",
            help="Name the view TABLE_at_NAME. Default: the snapshot id and a short hash. "
            "Lower-case letters, digits and _.",
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Create a view fixed at one read point.

    It has the same rows as an extract at that read point.
    """
    settings = session_of(context).settings()
    settings.table(name)
    from thermocline.iceberg.catalog import open_table
    from thermocline.kafka.log import Log
    from thermocline.process.clock import SystemClock, iso_time
    from thermocline.views.pin import pin_view
    from thermocline.views.trino_client import Trino

    point = read_point_of("--at", at, lambda: settings, name, has_server=False)
    loaded, log, trino = open_table(settings, name), Log(settings.kafka), Trino(settings.views, table=name)
    pinned = pin_view(settings, name, loaded, point, log, trino, SystemClock(), called)
    ends_at = None if pinned.until_ms is None else iso_time(pinned.until_ms)
    document = {
        "table": name,
        "view": f"{settings.views.lake}.{_named(pinned)}",
        "read_point": point.to_dict(),
        "ends_at": ends_at,
        "because": pinned.because,
    }
    words = f"ends at {ends_at}: {pinned.because}" if ends_at else "does not end while its snapshot is there"
    show(document, Text(f"{document['view']}\n  {words}"), as_json)


@app.command()
def check(context: typer.Context, name: TableName, as_json: AsJson = False) -> int:
    """Check topics, Trino and views; print a fix for each problem."""
    session = session_of(context)
    settings = session.settings()
    settings.table(name)
    from thermocline.iceberg.catalog import open_table
    from thermocline.kafka.log import Log
    from thermocline.process.clock import SystemClock
    from thermocline.views.check import ViewCheck, check_table
    from thermocline.views.trino_client import Trino

    findings, code = [], ExitCode.DONE
    log, trino = Log(settings.kafka), Trino(settings.views, table=name)
    try:
        for finding in check_table(settings, name, open_table(settings, name), log, trino, SystemClock()):
            findings.append(finding)  # noqa: PERF402  those before an error count
    except TrinoUnreachable as error:
        code = ExitCode.UNAVAILABLE
        findings.append(ViewCheck("Trino", f"[{error.code}] {error.what} {error.cause}", error.next))
    if code is ExitCode.DONE and not all(one.is_good for one in findings):
        code = ExitCode.BAD_ANSWER
    document = {
        "table": name,
        "findings": [
            {"subject": one.subject, "found": one.found, "fix": as_typed(one.fix) or None} for one in findings
        ],
        "exit_code": code,
    }
    show(document, _listed(findings), as_json)
    return code


def _listed(findings: Sequence[ViewCheck]) -> Group:
    rows = [(one.subject, one.found, "ok" if one.is_good else "fix") for one in findings]
    fixes = (f"{one.subject}:\n  {as_typed(one.fix)}" for one in findings if one.fix)
    return Group(table(("", "found", ""), rows), Text("\n".join(fixes)))


@app.command()
def drop(
    context: typer.Context,
    name: TableName,
    pinned: Annotated[
        str | None, typer.Option("--pinned", metavar="NAME", help="Only this pinned view, TABLE_at_NAME.")
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Drop the table's views, including pinned ones.

    With views.enabled, ingest creates them again, except for pinned views.
    """
    settings = session_of(context).settings()
    settings.table(name)
    from thermocline.iceberg.catalog import open_catalog
    from thermocline.views.drop import drop_views
    from thermocline.views.trino_client import Trino

    dropped = drop_views(
        settings, name, open_catalog(settings.catalog), Trino(settings.views, table=name), pinned
    )
    code = ExitCode.DONE if dropped else ExitCode.NOTHING_TO_DO
    words = f"dropped {', '.join(dropped)}" if dropped else f"{name}: nothing to do, there is no such view"
    show({"table": name, "dropped": dropped, "exit_code": code}, Text(words), as_json)
    return code


def _named(view: PlannedView) -> str:
    return ".".join(view.schema_and_name)


def _document(name: str, done: PublishRound, code: ExitCode) -> dict[str, object]:
    return {
        "table": name,
        "snapshot_id": str(done.snapshot_id),
        "replaced": list(done.replaced),
        "kept": list(done.kept),
        "newer": list(done.newer),
        "exit_code": code,
    }


def _lines(name: str, done: PublishRound) -> list[str]:
    if not done.replaced:
        return [f"{name}: nothing to do, the views are those of snapshot {done.snapshot_id}"]
    lines = [f"published as of snapshot {done.snapshot_id}"]
    lines += [f"  {view}" for view in done.replaced]
    return lines + [f"  {view} was so already" for view in done.kept]

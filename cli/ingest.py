"""``thermocline ingest``: run it, and see what it would do and how far it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Group
from rich.text import Text

from thermocline.cli.ingest_progress import shown_progress
from thermocline.cli.metrics_port import MetricsPort, metrics_served
from thermocline.cli.output import counted, say, show, table
from thermocline.cli.publishing import published
from thermocline.cli.session import AsJson, TableName, session_of
from thermocline.cli.stopping import stop_event
from thermocline.errors import ConfigInvalid, ExitCode, TransactionOpen
from thermocline.text.typed import command

if TYPE_CHECKING:
    from rich.console import RenderableType

    from thermocline.cli.session import Session
    from thermocline.ingest.run import Ended
    from thermocline.ingest.table.accepted import Accepted
    from thermocline.settings import Settings

_FACT = typer.Option(metavar="FACT", help="A fact, as printed by the error. Repeat for each fact.")
SomeTables = Annotated[
    list[str] | None, typer.Argument(metavar="TABLE", help="Table names, as in [tables.NAME].")
]
Facts = Annotated[list[str], _FACT]
OptionalFacts = Annotated[list[str] | None, _FACT]

app = typer.Typer(help="Write records from Kafka to a table, and inspect progress.", no_args_is_help=True)


@app.command()
def run(
    context: typer.Context,
    names: SomeTables = None,
    once: Annotated[
        bool, typer.Option("--once", help="Exit after committing everything that Kafka holds now.")
    ] = False,
    standby: Annotated[
        bool,
        typer.Option(
            "--standby", help="Wait while another process owns a table, and take over when its lease ends."
        ),
    ] = False,
    metrics_port: MetricsPort = None,
    as_json: AsJson = False,
) -> int:
    """Take ownership of tables, and commit their topics' records.

    Without TABLE, takes all configured tables. With the name of a route, takes its directory and all of its
    tables, also those that are made while it runs. Runs until SIGTERM or Ctrl-C. Only one process owns a
    table; it also maintains it. If a table stops with an error, the others keep running. At the end, the
    error is printed, and the exit code is that of the error (of several, the highest).
    """
    if once and standby:
        raise typer.BadParameter("give either --once or --standby")
    session = session_of(context)
    settings = session.settings()
    tables = _chosen(settings, names or ())
    from thermocline.ingest.run import Hooks
    from thermocline.ingest.run import run as run_ingest
    from thermocline.maintenance.upkeep import TableUpkeep
    from thermocline.process.clock import SystemClock
    from thermocline.process.priority import lower_priority
    from thermocline.process.title import set_title

    lower_priority(settings.ingest.nice)
    set_title(f"ingest {tables[0]}" if len(tables) == 1 else f"ingest {len(tables)} tables")
    upkeep = partial(TableUpkeep, settings.maintenance, SystemClock())
    progress = shown_progress(not (as_json or session.log_json), lambda: session.configure_logs("info"))
    with progress, stop_event() as stop, metrics_served(metrics_port), ExitStack() as publishing:
        published_by = {name: publishing.enter_context(published(settings, name)) for name in tables}

        def on_commit(name: str) -> Callable[[], None]:
            if name not in published_by:  # of a route, and made since
                published_by[name] = publishing.enter_context(published(session.settings(), name))
            return published_by[name]

        hooks = Hooks(on_commit, upkeep if settings.maintenance.enabled else None)
        ended = run_ingest(settings, tables, once, stop, hooks=hooks, standby=standby)
    return _concluded(session, ended, once, as_json)


def _concluded(session: Session, ended: Sequence[Ended], once: bool, as_json: bool) -> int:
    """Prints how the tables ended; gives the exit code. Raises the error of an only table."""
    errors = [one.error for one in ended if one.error is not None]
    if len(ended) == 1 and errors:
        raise errors[0]
    if once:
        _show_ended(ended, as_json)
    for error in errors:
        session.show_error(error, as_json)
    return _exit_code([one.exit_code for one in ended])


def _chosen(settings: Settings, names: Sequence[str]) -> tuple[str, ...]:
    """The tables in the order of the configuration; with a route, all of its tables.

    Raises `UnknownTable` and `ConfigInvalid`.
    """
    for name in names:
        settings.table(name)
    if not settings.tables:
        raise ConfigInvalid(of="[tables]", problems=("no table is configured",))
    routes = tuple(f"{name}_" for name in names if name in settings.routes)
    return tuple(name for name in settings.tables if not names or name in names or name.startswith(routes))


def _exit_code(codes: Sequence[int]) -> int:
    """Of several tables: that of the gravest end; nothing was to do only where that is so for each."""
    if all(code == ExitCode.NOTHING_TO_DO for code in codes):
        return ExitCode.NOTHING_TO_DO
    return max(code if code != ExitCode.NOTHING_TO_DO else ExitCode.DONE for code in codes)


def _show_ended(ended: Sequence[Ended], as_json: bool) -> None:
    documents = [
        {"table": one.table, "outcome": _outcome(one), "exit_code": int(one.exit_code)} for one in ended
    ]
    text = Text("\n".join(f"{one['table']}: {one['outcome']}" for one in documents))
    code = _exit_code([one.exit_code for one in ended])
    show(documents[0] if len(ended) == 1 else {"tables": documents, "exit_code": code}, text, as_json)


def _outcome(ended: Ended) -> str:
    if ended.error is not None:
        return f"stopped [{ended.error.code}]"
    known = {ExitCode.NOTHING_TO_DO: "nothing to do", ExitCode.PARTLY_DONE: "partly done"}
    return known.get(ExitCode(ended.exit_code), "done")


@app.command()
def reconcile(context: typer.Context, name: TableName, as_json: AsJson = False) -> int:
    """Resolve commits with unknown outcome. Safe to repeat.

    Exit codes: 0 done; 10 nothing to do; 4 the note of such a commit can't be read: the output says which
    file that is, and what to do.
    """
    session = session_of(context)
    settings = session.settings()
    settings.table(name)
    session.configure_logs("warning")
    from thermocline.ingest.claim.ownership import own_table
    from thermocline.process.clock import SystemClock

    with own_table(settings, name, SystemClock(), say=say) as owned:
        settled = owned.settled
    rows = [(one.batch_id, one.ranges, one.verdict.value, one.files_deleted) for one in settled]
    listed = table(("batch", "offsets", "verdict", "files deleted"), rows)
    unreadable = [one for one in settled if one.note]
    advice = [
        Text(
            f"{one.note} can't be read. If batch {one.batch_id} landed, its rows are in the table; if not, "
            "they are read from the log again, and its files, which are kept, are orphans: "
            f"{command(f'maintain orphans {name}')}. Nothing else is lost: delete the note."
        )
        for one in unreadable
    ]
    text = Group(listed, *advice) if rows else Text(f"{name}: nothing to do")
    code = ExitCode.DONE if settled else ExitCode.NOTHING_TO_DO
    code = ExitCode.COMMIT_UNKNOWN if unreadable else code
    show({"table": name, "settled": [asdict(one) for one in settled], "exit_code": code}, text, as_json)
    return code


@app.command()
def plan(context: typer.Context, name: TableName, as_json: AsJson = False) -> None:
    """Show the offsets that the next batch would read. Changes nothing."""
    settings = session_of(context).settings()
    from thermocline.ingest.table.progress import next_batch

    ranges = next_batch(settings, name).ranges
    rows = [(planned.topic, planned.partition, planned.first, planned.end) for planned in ranges]
    count = sum(planned.end - planned.first for planned in ranges)
    listed = table(("topic", "partition", "first", "end"), rows)
    summary = Text(
        f"{counted(count, 'offset')} to read" if ranges else "nothing to do: the table is at the log's end"
    )
    document = {"table": name, "offsets": count, "ranges": [asdict(planned) for planned in ranges]}
    show(document, Group(listed, summary) if ranges else summary, as_json)


@app.command()
def offsets(context: typer.Context, name: TableName, as_json: AsJson = False) -> None:
    """Show offsets, seam and lag per partition.

    Also names open transactions that hold back records.
    """
    settings = session_of(context).settings()
    from thermocline.ingest.table.progress import offsets as offsets_of

    found = [asdict(partition) for partition in offsets_of(settings, name)]
    names = ("topic", "partition", "log_start", "seam", "log_end", "lag", "held_back")
    rows = [[partition[column] for column in names] for partition in found]
    headings = [column.replace("_", " ") for column in names]
    held = [partition for partition in found if partition["held_back"]]
    document = {
        "table": name,
        "partitions": found,
        "open_transactions": [_open_transaction(one) for one in held],
    }
    parts: list[RenderableType] = [
        table(headings, rows),
        *(_described_transaction(name, one) for one in held),
    ]
    show(document, Group(*parts), as_json)


@app.command("accept-gap")
def accept_gap(context: typer.Context, name: TableName, fact: Facts, as_json: AsJson = False) -> int:
    """Resume past lost records or tombstones. Needs the facts that the error printed."""
    settings = _resuming(context, name)
    from thermocline.ingest.table import resume
    from thermocline.process.clock import SystemClock

    done = resume.accept_gap(settings, name, fact, SystemClock(), say)
    return _show_accepted(name, done, as_json)


@app.command()
def rebase(
    context: typer.Context,
    name: TableName,
    fact: OptionalFacts = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="WHERE", help="Resume reading at: earliest, latest, or an ISO 8601 time with time zone."
        ),
    ] = None,
    onto: Annotated[
        int | None,
        typer.Option(
            metavar="SNAPSHOT",
            help="Resume from this snapshot, discarding what other writers committed after it.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> int:
    """Resume on a replaced log or table.

    For use after a topic or cluster was replaced, the log was truncated, or others rolled back or changed the
    table. Needs the facts that the error printed.
    """
    settings = _resuming(context, name)
    from thermocline.ingest.table import resume
    from thermocline.process.clock import SystemClock

    match (onto, to):
        case (int(), None):
            done = resume.rebase_onto(settings, name, onto, fact or (), SystemClock(), say)
        case (None, str()):
            done = resume.rebase(settings, name, fact or (), _place_in_time(to), SystemClock(), say)
        case _:
            raise typer.BadParameter("give either --onto or --to, with the facts")
    return _show_accepted(name, done, as_json)


def _resuming(context: typer.Context, name: str) -> Settings:
    session = session_of(context)
    settings = session.settings()
    settings.table(name)
    session.configure_logs("warning")
    return settings


def _place_in_time(text: str) -> str:
    try:
        is_known = text in ("earliest", "latest") or datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        is_known = False
    if not is_known:
        raise typer.BadParameter(f'"{text}" is not earliest, latest or an ISO 8601 time with a zone')
    return text


def _show_accepted(name: str, done: Accepted | None, as_json: bool) -> int:
    if done is None:
        text = Text(f"{name}: nothing to do, ingest can go on as it is")
        show({"table": name, "accepted": None, "exit_code": ExitCode.NOTHING_TO_DO}, text, as_json)
        return ExitCode.NOTHING_TO_DO
    lines = [f"{name}: accepted {', '.join(done.facts)} ({done.code})"]
    for word, seam in (("was", done.seam_before), ("is", done.seam_after)):
        lines += [
            f"  the seam {word} {topic}/{partition}@{offset:,}"
            for topic, partitions in seam.items()
            for partition, offset in partitions.items()
        ]
    lines += [f"  given up: snapshot {snapshot_id}" for snapshot_id in done.given_up]
    lines.append(f"next: {command(f'ingest run {name}')}")
    show(
        {"table": name, "accepted": done.to_dict(), "exit_code": ExitCode.DONE},
        Text("\n".join(lines)),
        as_json,
    )
    return ExitCode.DONE


def _open_transaction(partition: dict[str, Any]) -> dict[str, Any]:
    names = {"topic": "topic", "partition": "partition", "log_end": "begins_at", "held_back": "held_back"}
    return {shown: partition[of] for of, shown in names.items()}


def _described_transaction(name: str, partition: dict[str, Any]) -> Text:
    place = f"{partition['topic']}/{partition['partition']}"
    held = f"{place}@{partition['log_end']}-{partition['log_end'] + partition['held_back']}"
    error = TransactionOpen(table=name, held=(held,))
    return Text(f"[{error.code}] {error.what}  next: {command(f'explain {error.code}')}")

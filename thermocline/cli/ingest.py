"""``thermocline ingest``: run it, and see what it would do and how far it is."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Group
from rich.text import Text

from thermocline.cli.output import counted, show, table
from thermocline.cli.session import AsJson, TableName, session_of
from thermocline.cli.stopping import stop_event
from thermocline.errors import ExitCode

app = typer.Typer(help="Ingest a table's topics.", no_args_is_help=True)


@app.command()
def run(
    context: typer.Context,
    name: TableName,
    once: Annotated[
        bool, typer.Option("--once", help="End when what the log holds now is committed.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Own the table and commit its topics' records to it, until SIGTERM or Ctrl-C."""
    session = session_of(context)
    settings = session.settings()
    settings.table(name)
    session.configure_logs("info")
    from ingest import owner

    with stop_event() as stop:
        code = owner.run(settings, name, once, stop)
    if once:
        words = "nothing to do" if code == ExitCode.NOTHING_TO_DO else "done"
        show({"table": name, "outcome": words, "exit_code": code}, Text(f"{name}: {words}"), as_json)
    return code


@app.command()
def plan(context: typer.Context, name: TableName, as_json: AsJson = False) -> None:
    """Show the offsets that the next batch would read. Writes nothing."""
    settings = session_of(context).settings()
    from ingest.plan import next_batch

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
    """Show for each partition where the log begins, the table's seam, where the log ends, and the lag."""
    settings = session_of(context).settings()
    from ingest.plan import offsets as offsets_of

    found = [asdict(partition) for partition in offsets_of(settings, name)]
    names = ("topic", "partition", "log_start", "seam", "log_end", "lag")
    rows = [[partition[column] for column in names] for partition in found]
    headings = [column.replace("_", " ") for column in names]
    show({"table": name, "partitions": found}, table(headings, rows), as_json)

"""``thermocline sql``: SQL over live tables, read in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.console import Group
from rich.text import Text

from thermocline.cli.file_format import coding_of, format_of
from thermocline.cli.output import counted, records, say, shortened, show, show_error
from thermocline.cli.read import file_or_stdout, size_of
from thermocline.cli.session import AsJson, session_of
from thermocline.cli.sql_formats import ENCODERS, json_document, rows_of, text_of
from thermocline.cli.stopping import orderly_end
from thermocline.errors import BadParameter, SqlRefused, ThermoclineError

if TYPE_CHECKING:
    import pyarrow as pa

    from thermocline.serving.read.sql import Answer
    from thermocline.settings import Settings

# More scroll out of sight; --csv, --json and -o have them all.
ROWS_SHOWN_MAX: Final = 100


def sql(
    context: typer.Context,
    statement: Annotated[
        str | None, typer.Argument(metavar="STATEMENT", help="A statement. Default: a prompt, or stdin.")
    ] = None,
    command: Annotated[
        str | None,
        typer.Option("-c", "--command", metavar="STATEMENT", help="The statement, given as an option."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="PATH",
            help="Write to PATH, in the format of its extension (.csv.gz). It appears only when complete.",
        ),
    ] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")] = False,
    vertical: Annotated[
        bool, typer.Option("-x", "--vertical", help="Print a line for each column, also in the prompt (\\x).")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Query tables as of now with SQL.

    DuckDB runs the statements in this process, which reads tables and Kafka directly. All tables of a
    statement are read as of the same moment; their read points are printed on stderr. Statements only read.

    Example: `thermocline sql "select app_id, count(*) from profiles group by app_id"`
    """
    if statement is not None and command is not None:
        raise BadParameter(name="-c", problem="a statement is given already")
    if as_csv and (as_json or output):
        raise BadParameter(name="--csv", problem="choose one of --csv, --json and -o")
    coding_of(output, format_of(output))  # refuses what it can't be, before anything is read
    settings = session_of(context).settings()
    given = statement if statement is not None else command
    if given is None and not sys.stdin.isatty():
        try:
            given = sys.stdin.read()
        except UnicodeDecodeError as error:
            raise SqlRefused(problem="the statement is not valid UTF-8") from error
    how = _How(output, as_csv, as_json, vertical)
    if given is not None:
        _run(settings, given, how)
        return
    from thermocline.cli.sql_prompt import prompt

    def run(is_vertical: bool, text: str) -> None:
        try:
            _run(settings, text, replace(how, is_vertical=is_vertical))
        except ThermoclineError as error:
            show_error(error, as_json)

    prompt(sorted(settings.tables), run, vertical)


@dataclass(frozen=True, slots=True)
class _How:
    """How a result is given: into a file, as CSV or JSON, or as a table."""

    output: Path | None
    as_csv: bool
    as_json: bool
    is_vertical: bool


def _run(settings: Settings, text: str, how: _How) -> None:
    from thermocline.serving.read.sql import answered

    with orderly_end(), answered(settings, text) as answer:
        for name, point in answer.read_points.items():
            say(f"read point of {name}: {point.to_header()}")
        if how.output is not None:
            _write(answer, how.output, how.as_json)
        elif how.as_csv:
            with file_or_stdout(None) as sink:
                for chunk in ENCODERS["csv"](answer.schema, answer.batches()):
                    sink.write(chunk)
        elif how.as_json:
            sys.stdout.writelines(json_document(answer))
        else:
            _show(answer, how.is_vertical)


def _write(answer: Answer, output: Path, as_json: bool) -> None:
    from thermocline.serving.read.encode import compressed

    chosen = format_of(output)
    coding, rows = coding_of(output, chosen), 0

    def counting() -> Iterator[pa.RecordBatch]:
        nonlocal rows
        for batch in answer.batches():
            rows += batch.num_rows
            yield batch

    with file_or_stdout(output) as sink:
        for chunk in compressed(ENCODERS[chosen](answer.schema, counting()), coding):
            sink.write(chunk)
    size, words = size_of(output)
    points = {name: point.to_dict() for name, point in answer.read_points.items()}
    document = {"path": str(output), "rows": rows, "bytes": size, "read_points": points}
    show(document, Text(f"{counted(rows, 'row')} in {output}{words}"), as_json)


def _show(answer: Answer, is_vertical: bool) -> None:
    shown: list[list[Text]] = []
    rows = 0
    for batch in answer.batches():
        rows += batch.num_rows
        wanted = ROWS_SHOWN_MAX - len(shown)
        shown += [[_cell(value) for value in row] for row in rows_of(batch.slice(0, wanted))]
    words = counted(rows, "row")
    if rows > len(shown):
        words += f", the first {len(shown)} shown; --csv, --json and -o give all"
    rows_shown = records(answer.schema.names, shown, is_vertical)
    show(None, Group(rows_shown, Text(words, style="dim")), as_json=False)


def _cell(value: object) -> Text:
    return Text("null", style="dim") if value is None else Text(shortened(text_of(value)))

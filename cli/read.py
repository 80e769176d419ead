"""``thermocline lookup`` and ``thermocline extract``: read a table as of now, with a server or without."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final
from uuid import uuid4

import typer
from rich.console import Console, Group
from rich.progress import DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

from thermocline.cli.explained import count_of, places_of, seconds_of
from thermocline.cli.file_format import TEXTS, Format, coding_of, format_of
from thermocline.cli.output import counted, records, say, shortened, show, table
from thermocline.cli.read_points import FORMS, read_point_of
from thermocline.cli.session import AsJson, TableName, Url, session_of
from thermocline.cli.stopping import orderly_end
from thermocline.errors import BadParameter, refusal, unlisted
from thermocline.text.shown import Columns, json_text
from thermocline.text.typed import again

if TYPE_CHECKING:
    from rich.console import RenderableType

    from thermocline.rules.read_point import ReadPoint
    from thermocline.serving.read.wanted import Wanted

REFUSED_MAX: Final = 1_000  # as many as a server gives at once


def lookup(
    context: typer.Context,
    name: TableName,
    key: Annotated[
        list[str],
        typer.Argument(metavar="COLUMN=VALUE", help="Values of the entity columns, or of the whole key."),
    ],
    url: Url = None,
    read_after: Annotated[
        str | None,
        typer.Option(
            metavar="TOPIC/PARTITION@OFFSET", help="Wait until this record is included (read your own write)."
        ),
    ] = None,
    vertical: Annotated[bool, typer.Option("-x", "--vertical", help="Print a line for each column.")] = False,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain",
            help="Also show the record and the file that each row came from, and what it replaced.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Show the current rows of one entity, or one row.

    Example: `thermocline lookup profiles app_id=7 user_id=u1`
    """
    values = parse_key(key)
    with orderly_end():
        ask = _asked(url, explain) if url else _reading(context, explain)
        answer = ask(name, values, read_after)
    rows: list[dict[str, Any]] = answer["rows"]
    parts: list[RenderableType] = []
    if rows:
        parts.append(places_of(rows, _value) if explain else _listed(rows, vertical))
    parts += [Text(f"refused: {refusal(**one)}", style="yellow") for one in answer.get("refused", ())]
    parts += _unlisted(answer)
    count = count_of(rows) if explain else counted(len(rows), "row")
    parts.append(Text(f"{count} as of {_read_point(answer)}, {_age(answer)}", style="dim"))
    if explain:
        parts.append(Text(f"it took: {seconds_of(answer['seconds'])}", style="dim"))
    show(answer, Group(*parts), as_json)


def _listed(rows: Sequence[Mapping[str, Any]], vertical: bool) -> RenderableType:
    columns = list(rows[0])
    return records(columns, ([_value(row[column]) for column in columns] for row in rows), vertical)


def refused(
    context: typer.Context,
    name: TableName,
    limit: Annotated[
        int, typer.Option(metavar="N", min=1, max=REFUSED_MAX, help="Maximum number of records.")
    ] = 100,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """List bad records that are not in quarantine yet.

    Kafka accepted them, but no answer includes them. After ingest, `quarantine list` shows them.
    """
    if url:
        from thermocline.cli.server_answers import Client

        with Client(url) as client:
            answer = client.refused(name, limit)
    else:
        from thermocline.serving.read.private import refused as refused_here

        with orderly_end():
            answer = refused_here(session_of(context).settings(), name, limit)
    found: list[dict[str, Any]] = answer["refused"]
    rows = [
        (
            f"{one['topic']}/{one['partition']}@{one['offset']}",
            str(Columns(one.get("key") or {})),
            one["stage"],
            one["reason"],
        )
        for one in found
    ]
    count = f"{'at least ' if answer['more'] else ''}{counted(len(rows), 'refused record')}"
    words = Text(f"{count} as of {_read_point(answer)}, {_age(answer)}", style="dim")
    listed = [table(("record", "key", "stage", "reason"), rows)] if rows else []
    show(answer, Group(*listed, *_unlisted(answer), words), as_json)


def _unlisted(answer: Mapping[str, Any]) -> list[Text]:
    """Where so many records were refused that the answer can't list them."""
    found = answer.get("refused_unlisted", ())
    return [Text(f"refused: {unlisted(**one)}", style="yellow") for one in found]


def extract(  # noqa: PLR0913, PLR0917  (a command has as many options)
    context: typer.Context,
    name: TableName,
    columns: Annotated[str | None, typer.Option(metavar="A,B", help="Only these columns.")] = None,
    where: Annotated[
        str | None,
        typer.Option(
            metavar="CONDITION",
            help="Only rows for which this is true, in SQL: value LIKE 'a%' AND app_id IN (7, 8)",
        ),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="At most N rows, in no particular order.")
    ] = None,
    format: Annotated[Format | None, typer.Option(help="Default: PATH's extension, else arrow.")] = None,  # noqa: A002
    at: Annotated[
        str | None,
        typer.Option(
            metavar=FORMS,
            help="Read as of this read point, that of an earlier extract, or the last commit by TIME.",
        ),
    ] = None,
    since: Annotated[
        str | None,
        typer.Option(
            metavar=FORMS,
            help="Only keys with a record since this read point; _change_type says upsert or delete.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="PATH",
            help="Write to PATH, which appears only when complete. Default: stdout.",
        ),
    ] = None,
    url: Url = None,
    as_json: AsJson = False,
) -> None:
    """Write a table's rows to a file or stdout.

    All rows as of one read point, those that match a condition, or changes. Writes an Arrow stream, a Parquet
    file, CSV or JSON lines. CSV and JSON lines are compressed if PATH ends with .gz or .zst. On failure, no
    file appears. Output on stdout is complete only if the exit code is 0.

    Example: `thermocline extract profiles --where "app_id = 7" --limit 10 --format jsonl`
    """
    from thermocline.serving.read.wanted import Wanted

    use = f"{again('--format', Format.ARROW)}      (or use a known extension)"
    chosen = format or format_of(output, use)
    coding = coding_of(output, chosen)
    names = [column.strip() for column in columns.split(",")] if columns else None
    if since and at:
        raise BadParameter(name="--at", problem="changes are given up to now; leave --at or --since out")
    if url and at:
        raise BadParameter(name="--at", problem="a server extracts as of now; leave --at or --url out")
    settings = session_of(context).settings

    def point_of(option: str, text: str | None) -> ReadPoint | None:
        return None if text is None else read_point_of(option, text, settings, name, has_server=bool(url))

    wanted = Wanted(names, where, limit, point_of("--since", since))
    read = _reader(context, name, wanted, chosen, coding, point_of("--at", at), url)
    is_shown = output is None and sys.stdout.isatty()
    if is_shown and chosen not in TEXTS:
        raise BadParameter(name="-o", problem="this format is binary: give -o PATH, or redirect the output")
    shown = _progress(url is not None, is_hidden=is_shown)
    with orderly_end(), file_or_stdout(output) as sink, shown as progress:
        point = read(sink, progress)
    _report(name, output, point, as_json)


_Ask = Callable[[str, dict[str, str], str | None], dict[str, Any]]


def _asked(url: str, is_explained: bool) -> _Ask:
    """What asks a server for a table's rows of an entity, with what the answer has to include."""
    from thermocline.cli.server_answers import Client

    def ask(name: str, key: dict[str, str], read_after: str | None) -> dict[str, Any]:
        with Client(url) as client:
            return (client.explained if is_explained else client.lookup)(name, key, read_after)

    return ask


def _reading(context: typer.Context, is_explained: bool) -> _Ask:
    """The same without a server."""
    from thermocline.serving.read import private

    read = private.explained if is_explained else private.lookup
    return lambda name, key, read_after: read(session_of(context).settings(), name, key, read_after)


def _reader(
    context: typer.Context,
    name: str,
    wanted: Wanted,
    chosen: Format,
    coding: str | None,
    at: ReadPoint | None,
    url: str | None,
) -> Callable[[BinaryIO, Callable[[int], None]], ReadPoint]:
    if url:
        from thermocline.cli.server_answers import Client

        def from_server(sink: BinaryIO, progress: Callable[[int], None]) -> ReadPoint:
            with Client(url) as client:
                return client.extract(name, wanted, chosen.value, sink, progress, coding)

        return from_server
    from thermocline.serving.read.private import extract as extract_here

    settings = session_of(context).settings()
    return lambda sink, progress: extract_here(
        settings, name, wanted, chosen.value, sink, at, progress, coding
    )


def _report(name: str, output: Path | None, point: ReadPoint, as_json: bool) -> None:
    """The data is the result; what is said of it goes to stderr, save where the data went into a file."""
    document = {"table": name, "path": output and str(output), "read_point": point.to_dict()}
    if output is None:
        say(f"read point: {point.to_header()}")
        return
    size, words = size_of(output)
    show(document | {"bytes": size}, Text(f"{output}{words}\nread point: {point.to_header()}"), as_json)


def size_of(output: Path) -> tuple[int | None, str]:
    """Of a file that was written, in words as well; a pipe or a device has none."""
    size = output.stat().st_size if output.is_file() else None
    return size, "" if size is None else f": {size:,} bytes"


def parse_key(words: Sequence[str]) -> dict[str, str]:
    """Columns and their texts, from ``COLUMN=VALUE`` words. Raises `BadParameter`."""
    values: dict[str, str] = {}
    for word in words:
        column, equals, value = word.partition("=")
        if not equals or not column:
            raise BadParameter(name=word, problem="is not of the form COLUMN=VALUE")
        if column in values:
            raise BadParameter(name=column, problem="is given twice")
        if not _is_text(word):
            raise BadParameter(name=column, problem="it is not UTF-8; binary columns are given in base64")
        values[column] = value
    return values


def _is_text(word: str) -> bool:
    """Whether an argument was UTF-8: Python keeps other bytes as characters that can't be written."""
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def _value(value: object) -> Text:
    """A column's value. Numbers are as in JSON: most are names of something, which no separator may break."""
    if value is None:
        return Text("null", style="dim")
    if isinstance(value, dict | list):
        return Text(shortened(json_text(value)))
    return Text(str(value).lower() if isinstance(value, bool) else shortened(str(value)))


def _read_point(answer: Mapping[str, Any]) -> str:
    """The snapshot, and the next offset of each partition that the answer does not include."""
    from thermocline.rules.seam import Seam

    point = answer["read_point"]
    ends = (f"{topic}/{partition}@{end}" for topic, partition, end in Seam.from_dict(point["end"]).items())
    return f"snapshot {point['snapshot_id']} and the log before {', '.join(ends)}"


def _age(answer: Mapping[str, Any]) -> str:
    age, stale = answer.get("age_seconds"), ", stale" if answer.get("stale") else ""
    return f"{'of unknown age' if age is None else f'{age:.2f} s old'}{stale}"


@contextmanager
def file_or_stdout(output: Path | None) -> Iterator[BinaryIO]:
    """A file that appears when it is complete, or stdout."""
    if output is None:
        with _stdout() as stdout:
            yield stdout
        return
    if not output.parent.is_dir():
        raise BadParameter(name="-o", problem=f"the folder {output.parent} does not exist")
    if output.is_dir():
        raise BadParameter(name="-o", problem=f"{output} is a folder; name a file in it")
    # Another command may write the same file meanwhile: the last one to end has it.
    file = output.resolve()
    partial = file.with_name(f".{file.name}.{uuid4().hex}.partial")
    try:
        if output.exists() and not output.is_file():  # a device or a pipe, which stays what it is
            with output.open("wb") as sink:
                yield sink
            return
        with partial.open("wb") as sink:
            yield sink
        partial.replace(file)
    except OSError as error:  # of this file: whatever is read raises errors of ours
        raise BadParameter(name="-o", problem=f"{output}: {error.strerror or error}") from error
    finally:
        with suppress(OSError):
            partial.unlink()


@contextmanager
def _stdout() -> Iterator[BinaryIO]:
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise BadParameter(name="stdout", problem=error.strerror or str(error)) from error


@contextmanager
def _progress(in_bytes: bool, is_hidden: bool) -> Iterator[Callable[[int], None]]:
    """Shows on a terminal's stderr how much was written so far: bytes, or rows."""
    console = Console(stderr=True)
    count = DownloadColumn() if in_bytes else TextColumn("{task.completed:,} rows")
    bar = Progress(
        SpinnerColumn(),
        count,
        TimeElapsedColumn(),
        console=console,
        disable=is_hidden or not console.is_terminal,
    )
    with bar:
        task = bar.add_task("extract", total=None)
        yield lambda so_far: bar.update(task, completed=so_far)

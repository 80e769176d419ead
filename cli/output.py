"""Prints results on stdout and messages on stderr: text for people, one JSON document for programs."""

from __future__ import annotations

import json
import logging
import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from thermocline.errors import NotConfirmed
from thermocline.process.logs import fields
from thermocline.text.shown import json_text
from thermocline.text.typed import PROGRAM, as_typed

if TYPE_CHECKING:
    from rich.console import RenderableType

    from thermocline.errors import ThermoclineError

# A pipe's reader wants whole lines: nothing is wrapped or cut.
UNBOUNDED_WIDTH: Final = 100_000
LABEL_WIDTH: Final = 10
CELL_CHARACTERS_MAX: Final = 1_000
"""Of a value in a table for people; the other formats give it whole."""
COMMAND: Final = f"{PROGRAM} "

log = logging.getLogger(__name__)


def show(document: object, text: RenderableType, as_json: bool) -> None:
    """A command's result: the document as JSON, or the text."""
    if as_json:
        sys.stdout.write(json_text(document, indent=2) + "\n")
    else:
        console = _console(to_stderr=False)
        for part in text.renderables if isinstance(text, Group) else [text]:
            # What may be copied is broken by the terminal, not by us.
            console.print(part, soft_wrap=isinstance(part, Text))


def discard_stdout() -> None:
    """What is left for stdout must not be flushed into it at exit: it would fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say(text: str) -> None:
    """Prints a message for the user."""
    _console(to_stderr=True).print(Text(text), soft_wrap=True)


def confirmed(question: str, what_goes: str, command: str) -> bool:
    """Whether the user says yes; ``command`` does the same without a question.

    Raises `NotConfirmed` where stdin is no terminal.
    """
    if not sys.stdin.isatty():
        problem = f"{what_goes} would be deleted, and this was not confirmed"
        raise NotConfirmed(problem=problem, command=command)
    return typer.confirm(question, err=True)


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> Table:
    """A table of text; numbers are right-aligned, with separators. A ``Text`` keeps its style."""
    cells = [list(row) for row in rows]
    grid = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for index, heading in enumerate(headings):
        numbers = bool(cells) and all(type(row[index]) in (int, float) for row in cells)
        grid.add_column(Text(heading), justify="right" if numbers else "left", overflow="fold")
    for row in cells:
        grid.add_row(*(_cell(value) for value in row))
    return grid


def records(headings: Sequence[str], rows: Iterable[Sequence[object]], is_vertical: bool) -> RenderableType:
    """Rows of any table for people: a line each, or one below the other, with a line for each column.

    The latter also where a terminal is too narrow for the lines.
    """
    cells = [[_cell(value) for value in row] for row in rows]
    lines = table(headings, cells)
    console = _console(to_stderr=False)
    unbounded = console.options.update_width(UNBOUNDED_WIDTH)  # else a measure never passes the console's
    if not is_vertical and Measurement.get(console, unbounded, lines).maximum <= console.width:
        return lines
    grid = Table(box=None, show_header=False, pad_edge=False)
    grid.add_column()
    grid.add_column(overflow="fold")
    for number, row in enumerate(cells, start=1):
        grid.add_row(Text(f"row {number:,}", style="bold"))
        for heading, cell in zip(headings, row, strict=True):
            grid.add_row(Text(heading), cell)
    return grid


def shortened(text: str) -> str:
    """At most `CELL_CHARACTERS_MAX` characters of a value, and how many it has."""
    if len(text) <= CELL_CHARACTERS_MAX:
        return text
    return f"{text[:CELL_CHARACTERS_MAX]}… ({len(text):,} characters)"


def counted(count: int, noun: str) -> str:
    """``1 row``, ``2,000 rows``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def error_document(error: ThermoclineError) -> dict[str, object]:
    """The facts of an error, for programs; its commands ready to paste."""
    return {
        "code": error.code,
        "what": error.what,
        "state": error.state,
        "cause": as_typed(error.cause),
        "next": as_typed(error.next),
        "docs": f"{COMMAND}explain {error.code}",
        "retryable": error.is_retryable,
        "exit_code": int(error.exit_code),
    }


def show_error(error: ThermoclineError, as_json: bool, is_log: bool = False) -> None:
    """An error, on stderr; a line of the log where that goes there as JSON."""
    document = error_document(error)
    if is_log:
        log.error("command failed", extra=fields(**document))
        return
    if as_json:
        sys.stderr.write(json.dumps(document, ensure_ascii=False) + "\n")
        return
    console = _console(to_stderr=True)
    head = Text.assemble(("Error", "bold red"), f" [{error.code}]: {error.what}")
    console.print(head)
    for label in ("state", "cause", "next", "docs"):
        if document[label]:
            text = Text(_labelled(label.capitalize(), str(document[label]), console.width))
            console.print(text, soft_wrap=True)


def _labelled(label: str, text: str, width: int) -> str:
    # A command is for copying: the terminal may break its line, we don't.
    paragraphs = [
        [line]
        if line.startswith(COMMAND)
        else textwrap.wrap(line, max(width - LABEL_WIDTH, 20), break_long_words=False, break_on_hyphens=False)
        for line in text.splitlines()
    ]
    lines = [line for paragraph in paragraphs for line in paragraph]
    return f"  {label:<{LABEL_WIDTH - 2}}" + f"\n{' ' * LABEL_WIDTH}".join(lines)


def _cell(value: object) -> Text:
    match value:
        case Text():
            return value
        case None:
            return Text()
        case bool():
            return Text(str(value).lower())
        case int():
            return Text(f"{value:,}")
        case _:
            return Text(shortened(str(value)))


def _console(to_stderr: bool) -> Console:
    console = Console(stderr=to_stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = UNBOUNDED_WIDTH
    return console

"""The prompt of ``thermocline sql``: statements over several lines until ``;``, with a history."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, History, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.lexers import PygmentsLexer
from pygments.lexers.sql import SqlLexer

from thermocline.cli.output import say
from thermocline.process.private_folder import make_private

if TYPE_CHECKING:
    from prompt_toolkit.key_binding import KeyPressEvent

HELP: Final = (
    "a statement ends with ;   .tables lists the tables, \\x turns rows on their side and back, "
    ".quit (or Ctrl-D) ends"
)
QUIT: Final = (".quit", ".exit", "\\q")
VERTICAL: Final = "\\x"
# Strings, quoted names and comments; the last of them may be open still, and then it has all that is left.
_COMMAND: Final = (".", "\\")
_SKIPPED: Final = re.compile(r"'[^']*('|$)|\"[^\"]*(\"|$)|--[^\n]*|/\*.*?(\*/|$)", re.DOTALL)
COMMANDS: Final = (".tables", ".help", VERTICAL, *QUIT)
Run = Callable[[bool, str], None]
"""Shows the rows of a statement: whether one below the other, and the statement."""


def prompt(tables: Sequence[str], run: Run, is_vertical: bool) -> None:
    """Runs statements as they are typed, until the user quits. Ctrl-C gives up a line or a statement."""
    say(HELP)
    session: PromptSession[str] = PromptSession(
        "sql> ",
        multiline=True,
        prompt_continuation="...> ",
        key_bindings=_keys(),
        history=_history(),
        completer=WordCompleter([*tables, *COMMANDS], WORD=True),
        complete_while_typing=False,
        lexer=PygmentsLexer(SqlLexer),
    )
    while True:
        try:
            text = session.prompt().strip()
            if text in QUIT:
                return
            if text == VERTICAL:
                is_vertical = not is_vertical
                say(f"rows are shown {'one below the other' if is_vertical else 'a line each'}")
            else:
                answer(text, tables, partial(run, is_vertical))
        except KeyboardInterrupt:
            continue
        except EOFError:
            return


def answer(text: str, tables: Sequence[str], run: Callable[[str], None]) -> None:
    """Answers one entry: a statement, a command, or nothing."""
    if text == ".tables":
        say("\n".join(tables) or "none is configured")
    elif text.startswith(_COMMAND):
        say(HELP)
    elif text:
        run(text)


def is_complete(text: str) -> bool:
    """Whether Enter ends an entry: a command, nothing at all, or a statement up to its semicolon."""
    entry = text.strip()
    return not entry or entry.startswith(_COMMAND) or _SKIPPED.sub(" ", entry).rstrip().endswith(";")


def _keys() -> KeyBindings:
    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if is_complete(buffer.text):
            buffer.validate_and_handle()
        else:
            buffer.insert_text("\n")

    return keys


def _history() -> History:
    """That of the user; of this prompt alone where there is no home, or none to write to."""
    try:
        state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
        file = Path(state) / "thermocline" / "sql_history"
        make_private(file.parent)
        with file.open("ab"):
            pass
    except (OSError, RuntimeError):
        return InMemoryHistory()
    return FileHistory(str(file))

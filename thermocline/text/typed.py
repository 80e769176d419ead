"""The command line of this process, so that the commands it prints run as they are printed."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from thermocline.errors import SAME_COMMAND
from thermocline.process.masking import mask_password

__all__ = ["PROGRAM", "again", "as_typed", "command", "typed"]

PROGRAM: Final = "thermocline"
# Those that read the configuration, however they stand in a text.
_OF_CONFIG: Final = re.compile(
    rf"(?<![\w./-]){PROGRAM} "
    r"(?=(?:apply|audit|client|config|dev|doctor|extract|ingest|init|lookup|maintain|quarantine|refused|serve|sql|status|table|topic|try|verify"
    r"|views)\b)"
)
# Options of the program itself; the others stand alone.
_WITH_VALUES: Final = ("--config", "--log-level")
# As errors have it where a command stands alone, with a remark behind it.
_SAME_COMMAND: Final = f"{SAME_COMMAND}      ("


@dataclass(slots=True)
class _Call:
    arguments: tuple[str, ...]


# A process that `serve` starts has the command line of its parent.
_call: Final = _Call(tuple(sys.argv[1:]))


@contextmanager
def typed(arguments: Sequence[str]) -> Iterator[None]:
    """Within the block, these are what the program was called with."""
    before, _call.arguments = _call.arguments, tuple(arguments)
    try:
        yield
    finally:
        _call.arguments = before


def command(words: str) -> str:
    """A command of ours, to be printed: ``ingest run profiles`` as it has to be typed here."""
    return as_typed(f"{PROGRAM} {words}")


def again(*more: str) -> str:
    """The command line of this call, with more words behind it."""
    return mask_password(shlex.join([PROGRAM, *_call.arguments, *more]))


def as_typed(text: str) -> str:
    """The text with the ``--config`` of this call in its commands, and this call for "the same command"."""
    given = _config()
    if given is not None:
        option = f"--config {shlex.quote(given)} "
        text = _OF_CONFIG.sub(lambda found: found[0] + option, text)
    return text.replace(_SAME_COMMAND, f"{again()}      (")


def _config() -> str | None:
    """What --config said, before the command: one has an option of that name."""
    arguments = iter(_call.arguments)
    for argument in arguments:
        if not argument.startswith("-"):
            return None
        name, sign, value = argument.partition("=")
        if name in _WITH_VALUES and not sign:
            value = next(arguments, "")
        if name == "--config":
            return value
    return None

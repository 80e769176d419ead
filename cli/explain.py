"""``thermocline explain``: the page of an error code, a difference that verify finds, or all error codes."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from thermocline.cli.output import show, table
from thermocline.cli.session import AsJson
from thermocline.errors import BadParameter, ThermoclineError, all_errors, did_you_mean


def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="The code in an error's brackets, e.g. not-ready.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Explain an error code.

    Also explains a difference that `verify` found. Without CODE, lists all error codes. Says what happened,
    what state the data is in, and what to do next.
    """
    if code is None:
        _list(as_json)
        return
    found = all_errors().get(code)
    if found is None:
        from thermocline.verify.finding import CODES

        if code in CODES:
            text = f"{code}   a difference that `verify` finds\n\n{CODES[code]}"
            show({"code": code, "title": CODES[code]}, Text(text), as_json)
            return
        known = did_you_mean(code, all_errors()) or "; thermocline explain lists them"
        raise BadParameter(name="CODE", problem=f'"{code}" is not an error code{known}')
    retry = "can go away by itself: try again" if found.retryable else "does not go away by itself"
    head = f"{found.code}   exit code {int(found.exit_code)}, HTTP status {found.http_status}, {retry}"
    show(_document(found), Text(f"{head}\n\n{found.page()}"), as_json)


def _list(as_json: bool) -> None:
    errors = all_errors()
    rows = [(code, int(found.exit_code), found.http_status, found.title()) for code, found in errors.items()]
    show(
        [_document(found) for found in errors.values()],
        table(("code", "exit", "HTTP", "what happened"), rows),
        as_json,
    )


def _document(found: type[ThermoclineError]) -> dict[str, object]:
    return {
        "code": found.code,
        "title": found.title(),
        "exit_code": int(found.exit_code),
        "http_status": found.http_status,
        "retryable": found.retryable,
        "page": found.page(),
    }

"""A question to the server as somebody else would ask it: by curl, in Python, on the command line."""

from __future__ import annotations

import keyword
import shlex
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from thermocline.rules.definition import LiveTable

__all__ = ["as_command", "as_curl", "as_python"]

KEY: Final = "THERMOCLINE_KEY"
"""The variable that holds a key of the server, as commands have it."""
# Arguments of the client's method that are no columns.
_OWN_ARGUMENTS: Final = frozenset({"read_after"})


def as_curl(url: str, table: str, parameters: Mapping[str, str], has_key: bool) -> str:
    """For a shell."""
    query = urlencode(parameters, quote_via=quote, safe="")
    target = shlex.quote(f"{url}/v1/tables/{quote(table, safe='')}/rows?{query}")
    # The variable is for the shell to fill in: the rest of it is nobody's text.
    return f'curl -H "Authorization: Bearer ${KEY}" {target}' if has_key else f"curl {target}"


def as_command(url: str, table: str, parameters: Mapping[str, str]) -> str:
    """For a shell."""
    words = (f"{name}={value}" for name, value in parameters.items())
    return shlex.join(["thermocline", "lookup", table, *words, "--explain", "--url", url])


def as_python(url: str, definition: LiveTable, parameters: Mapping[str, str], has_key: bool) -> str:
    """For the Python client. The parameters are values of their columns."""
    kinds = {column.name: column.type.python for column in definition.key_columns}
    values = {name: repr(int(text) if kinds[name] is int else text) for name, text in parameters.items()}
    if all(map(_is_argument, values)):
        named = ", ".join(f"{name}={value}" for name, value in values.items())
    else:
        quoted = {repr(name): value for name, value in values.items()}
        named = f"{{{', '.join(f'{name}: {value}' for name, value in quoted.items())}}}"
    imports = "import os\n\n" if has_key else ""
    key = f', key=os.environ["{KEY}"]' if has_key else ""
    address, table = repr(url), repr(definition.name)
    return (
        f"{imports}from thermocline.client import Client\n\n"
        f"with Client({address}{key}) as client:\n"
        f"    answer = client.lookup({table}, {named})\n"
        "print(answer.rows)"
    )


def _is_argument(name: str) -> bool:
    is_name = name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
    return is_name and name not in _OWN_ARGUMENTS

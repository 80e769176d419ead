"""A question to the server as somebody else would ask it: by curl, in Python, on the command line."""

from __future__ import annotations

import keyword
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from thermocline.rules.definition import LiveTable

__all__ = ["Access", "as_command", "as_curl", "as_exports", "as_python"]

# The variables by which commands know these, too. They are for the shell to fill in.
_KEY: Final = "THERMOCLINE_KEY"
_CA: Final = "THERMOCLINE_CA_FILE"
_CERTIFICATE: Final = "THERMOCLINE_CERTIFICATE"
_CERTIFICATE_KEY: Final = "THERMOCLINE_CERTIFICATE_KEY"
# Arguments of the client's method that are no columns.
_OWN_ARGUMENTS: Final = frozenset({"read_after"})


@dataclass(frozen=True, slots=True)
class Access:
    """What somebody brings: a key or a certificate, and the CA by which the server has to be known."""

    has_key: bool = False
    has_certificate: bool = False
    needs_ca: bool = False


def as_exports(access: Access) -> str:
    """What is to be set before any of the others; empty where nothing is."""
    wanted = (
        (access.needs_ca, f"export {_CA}=FILE  # PEM of the CA of this server: ask whoever runs it"),
        (access.has_certificate, f"export {_CERTIFICATE}=FILE  # PEM of your certificate"),
        (access.has_certificate, f"export {_CERTIFICATE_KEY}=FILE  # and of its key"),
        (access.has_key, f"export {_KEY}=KEY  # the key or token that you signed in with"),
    )
    return "\n".join(line for is_wanted, line in wanted if is_wanted)


def as_curl(url: str, table: str, parameters: Mapping[str, str], access: Access) -> str:
    """For a shell."""
    query = urlencode(parameters, quote_via=quote, safe="")
    target = shlex.quote(f"{url}/v1/tables/{quote(table, safe='')}/rows?{query}")
    options = (
        (access.needs_ca, f'--cacert "${_CA}" '),
        (access.has_certificate, f'--cert "${_CERTIFICATE}" --key "${_CERTIFICATE_KEY}" '),
        (access.has_key, f'-H "Authorization: Bearer ${_KEY}" '),
    )
    return f"curl {''.join(option for is_wanted, option in options if is_wanted)}{target}"


def as_command(url: str, table: str, parameters: Mapping[str, str]) -> str:
    """For a shell; the variables count for it."""
    words = (f"{name}={value}" for name, value in parameters.items())
    return shlex.join(["thermocline", "lookup", table, *words, "--explain", "--url", url])


def as_python(url: str, definition: LiveTable, parameters: Mapping[str, str], access: Access) -> str:
    """For the Python client. The parameters are values of their columns."""
    kinds = {column.name: column.type.python for column in definition.key_columns}
    values = {name: repr(int(text) if kinds[name] is int else text) for name, text in parameters.items()}
    if all(map(_is_argument, values)):
        named = ", ".join(f"{name}={value}" for name, value in values.items())
    else:
        quoted = {repr(name): value for name, value in values.items()}
        named = f"{{{', '.join(f'{name}: {value}' for name, value in quoted.items())}}}"
    certificate = f"({_variable(_CERTIFICATE)}, {_variable(_CERTIFICATE_KEY)})"
    arguments = (
        (access.has_key, f", key={_variable(_KEY)}"),
        (access.has_certificate, f", certificate={certificate}"),
        (access.needs_ca, f", ca_file={_variable(_CA)}"),
    )
    brought = "".join(argument for is_wanted, argument in arguments if is_wanted)
    imports = "import os\n\n" if brought else ""
    address, table = repr(url), repr(definition.name)
    return (
        f"{imports}from thermocline.client import Client\n\n"
        f"with Client({address}{brought}) as client:\n"
        f"    answer = client.lookup({table}, {named})\n"
        "print(answer.rows)"
    )


def _variable(name: str) -> str:
    return f'os.environ["{name}"]'


def _is_argument(name: str) -> bool:
    is_name = name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
    return is_name and name not in _OWN_ARGUMENTS

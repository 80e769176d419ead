"""Types of settings that the file may spell in more than one way."""

from __future__ import annotations

import re
from datetime import date, datetime
from ipaddress import ip_network
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field

from thermocline.rules.column_types import NESTED_SPELLED

__all__ = [
    "Bytes",
    "ColumnText",
    "ContractText",
    "DeleteText",
    "HostName",
    "Names",
    "Network",
    "OnErrorText",
    "Seconds",
    "Start",
    "UnlessText",
    "WhereText",
    "names_of",
    "size_of",
]

SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?i?b)?", re.IGNORECASE)
SIZE_UNITS: Final = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}


def size_of(value: object) -> object:
    """Bytes of ``"8GB"`` (10^9) or ``"8GiB"`` (2^30); what is no text as it is. Raises `ValueError`."""
    if not isinstance(value, str):
        return value
    match = SIZE.fullmatch(value.strip())
    if match is None:
        raise ValueError(f'"{value}" is not a size such as "512MB" or "8GiB"')
    unit = (match[2] or "").lower().removesuffix("b")
    step = 1024 if unit.endswith("i") else 1000
    return int(float(match[1]) * step ** SIZE_UNITS[unit.removesuffix("i")])


def names_of(value: object) -> object:
    """A tuple of names; a variable holds them with commas between."""
    return [name.strip() for name in value.split(",")] if isinstance(value, str) else value


def _network(text: str) -> str:
    try:
        ip_network(text)
    except ValueError as error:
        raise ValueError(f"{error}: it is no address, nor a network such as 10.0.0.0/8") from None
    return text


def _start(value: object) -> object:
    """``earliest``, ``latest`` or an ISO 8601 time with its zone."""
    text = value.isoformat() if isinstance(value, date) else value
    if text in ("earliest", "latest") or not isinstance(text, str):
        return text
    try:
        zoned = datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        raise ValueError(f'"{text}" is not earliest, latest or an ISO 8601 time') from None
    if not zoned:
        raise ValueError(f'the time "{text}" needs a zone, such as {text}Z')
    return text


def _column(value: object) -> object:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and all(
        isinstance(part, str) or (name == "path" and _is_list_of_names(part)) for name, part in value.items()
    ):
        return value
    hint = f"; {NESTED_SPELLED}" if isinstance(value, dict | list) else ""
    raise ValueError(f'a column is a type such as "int", or {{ type = "timestamptz", epoch = "ms" }}{hint}')


def _is_list_of_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _delete_when(value: object) -> object:
    if isinstance(value, dict) and all(
        isinstance(one, str) or _is_list_of_names(one) for one in value.values()
    ):
        return value
    raise ValueError('delete_when is of the form { path = "op", values = ["D"] }, or with a header')


def _where(value: object) -> object:
    return [value] if isinstance(value, dict) else value


def _on_error(value: object) -> object:
    if isinstance(value, str):
        return value
    if isinstance(value, dict) and all(isinstance(part, str) for part in value.values()):
        return value
    raise ValueError('on_error is a word such as "quarantine", or { key = "fail", contract = "skip" }')


def _contract(value: object) -> object:
    if isinstance(value, str) or _is_contract(value):
        return value
    raise ValueError(
        'contract is a word such as "evolve", or { new_columns = "evolve", wider_types = "stop" }'
    )


def _is_contract(value: object) -> bool:
    """Whether it is built as a contract; which words it has, the definition says."""
    if not isinstance(value, dict):
        return False
    columns = value.get("columns", {})
    inner = [one for one in columns.values() if isinstance(one, dict)] if isinstance(columns, dict) else []
    words = [
        *(one for name, one in value.items() if name != "columns"),
        *(w for one in inner for w in one.values()),
    ]
    return isinstance(columns, dict) and all(isinstance(one, str | int) for one in words)


Bytes = Annotated[int, BeforeValidator(size_of), Field(gt=0)]
Names = Annotated[tuple[str, ...], BeforeValidator(names_of)]
Network = Annotated[str, AfterValidator(_network)]
# As a Host header names a machine, without its port; or all names below one.
_HOST: Final = r"(\*\.)?[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?|\[[0-9A-Fa-f:.]+\]"
HostName = Annotated[str, Field(pattern=f"^({_HOST})$")]
Start = Annotated[str, BeforeValidator(_start)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
OnErrorText = Annotated[str | dict[str, str], BeforeValidator(_on_error)]
ContractText = Annotated[str | dict[str, Any], BeforeValidator(_contract)]
DeleteText = Annotated[dict[str, str | list[str]], BeforeValidator(_delete_when)]
# What a condition says is judged with the definition, since only a format says whether it can be read.
WhereText = Annotated[tuple[dict[str, Any], ...], BeforeValidator(_where)]
UnlessText = tuple[WhereText, ...]
ColumnText = Annotated[str | dict[str, str | list[str]], BeforeValidator(_column)]

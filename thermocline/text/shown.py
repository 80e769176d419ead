"""Values shown to people and to programs: as JSON has them, never as Python writes them.

Logs, errors and the command line all show values by these rules; what a row holds looks here as it does in
the JSON of a lookup.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Final

__all__ = ["Columns", "as_field", "json_form", "json_text"]

# What stands bare in a line: a word that nobody takes for anything but text.
_BARE: Final = re.compile(r'[^\s"{}\[\](),=]+')
_SCALARS: Final = re.compile(r"null|true|false|-?\d+(\.\d+)?([eE][+-]?\d+)?")


class Columns(dict[str, object]):
    """Values by their columns, such as a key. As text: ``app_id=7, user_id="ada"``."""

    def __str__(self) -> str:
        return ", ".join(f"{name}={json_text(value)}" for name, value in self.items())


def json_form(value: object) -> Any:
    """The value in the types of JSON: bytes in base64, times in RFC 3339, and what has no form as text."""
    match value:
        case Enum():
            return json_form(value.value)
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case bytes():
            return base64.b64encode(value).decode()
        case Mapping():
            return {_name(name): json_form(part) for name, part in value.items()}
        case Sequence():
            return [json_form(part) for part in value]
        case AbstractSet():
            return sorted((json_form(part) for part in value), key=str)
        case _:
            return _text(value)


def json_text(value: object, indent: int | None = None) -> str:
    """The value as JSON text."""
    return json.dumps(json_form(value), ensure_ascii=False, indent=indent)


def as_field(value: object) -> str:
    """The value in a line of text: JSON, but that a plain word stands without quotes; always one line."""
    if isinstance(value, Columns):
        return f"({value})"
    shown = json_form(value)
    if not isinstance(shown, str):
        return json.dumps(shown, ensure_ascii=False)
    text = " ".join(shown.splitlines())
    is_bare = _BARE.fullmatch(text) and not _SCALARS.fullmatch(text)
    return text if is_bare else json.dumps(text, ensure_ascii=False)


def _text(value: object) -> str:
    """What JSON has no form for."""
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return f"{value:f}"  # never with an exponent
    return value.isoformat() if isinstance(value, date) else str(value)


def _name(name: object) -> str:
    """A name in an object: a partition's is TOPIC/PARTITION."""
    return "/".join(map(str, name)) if isinstance(name, tuple) else str(json_form(name))

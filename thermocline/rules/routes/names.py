"""The name of a routed table, made of its value: never the same for two values, whatever came before.

A value that is a plain name itself keeps it. Any other is written in lower case, with _ for what a name can't
have, cut, and followed by _ and ten digits of its hash. A plain name never ends like that, nor like the name
of a table or view that is made beside others.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Final

__all__ = [
    "NAME_CHARACTERS_MAX",
    "ROUTE_CHARACTERS_MAX",
    "is_denied",
    "is_in_names",
    "may_be_made",
    "name_of",
    "problem_of_value",
]

NAME_CHARACTERS_MAX: Final = 40
"""Of what is made of a value. With the route's name and _ before it, it fits a table's name: 64."""
ROUTE_CHARACTERS_MAX: Final = 23
VALUE_BYTES_MAX: Final = 1_024
"""Of a value: the route's directory keeps each, and a text without an end is no name of anything."""

_HASH_CHARACTERS: Final = 10
_CHARACTERS: Final = re.compile("[a-z0-9_]*")
_PLAIN: Final = re.compile(rf"[a-z0-9_]{{1,{NAME_CHARACTERS_MAX}}}")
_HASHED: Final = re.compile(rf".*_[0-9a-f]{{{_HASH_CHARACTERS}}}")
# Of companions and views of other tables; and of the directory itself.
_TAKEN: Final = re.compile(r"(.*_)?(quarantine|live|live_by_key|cold|at_.+)|directory")


def name_of(value: str) -> str:
    """The part of a table's name that stands for the value."""
    is_free = _PLAIN.fullmatch(value) and not _HASHED.fullmatch(value) and not _TAKEN.fullmatch(value)
    if is_free:  # safety: route-names-apart
        return value
    cleaned = re.sub("[^a-z0-9_]", "_", value.lower())[: NAME_CHARACTERS_MAX - _HASH_CHARACTERS - 1]
    return f"{cleaned}_{hashlib.sha256(_bytes(value)).hexdigest()[:_HASH_CHARACTERS]}"


def may_be_made(name: str) -> bool:
    """Whether `name_of` gives this for a value."""
    is_free = _HASHED.fullmatch(name) or not _TAKEN.fullmatch(name)
    return bool(is_free and _PLAIN.fullmatch(name))


def is_in_names(text: str) -> bool:
    """Whether a part of a name may be this."""
    return _CHARACTERS.fullmatch(text) is not None


def problem_of_value(value: str) -> str:
    """Why a text can't be the value of a table; empty where it can."""
    if not value:
        return "its value is empty"
    if len(_bytes(value)) > VALUE_BYTES_MAX:
        return f"its value has more than {VALUE_BYTES_MAX:,} bytes"
    return ""


def is_denied(value: str, denied: Sequence[str]) -> bool:
    """Whether a value, or the name that is made of it, matches one of the patterns, as `debug_*` does."""
    return any(fnmatchcase(one, pattern) for pattern in denied for one in (value, name_of(value)))


def _bytes(value: str) -> bytes:
    return value.encode("utf-8", "surrogatepass")  # as JSON can have half of a character

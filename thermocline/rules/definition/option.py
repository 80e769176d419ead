"""Metadata of a definition's options, beside their types and defaults.

An option is a field of one of the parts of `LiveTable`. The settings of the file, the stored form,
alterations and the reference follow from what its metadata says.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, Final

__all__ = [
    "IDENTITY",
    "Option",
    "by_rule",
    "default_of",
    "fixed",
    "free",
    "is_left_out",
    "option_of",
    "settings_of",
]

_OPTION: Final = "option"


@dataclass(frozen=True, slots=True)
class Option:
    """Facts about an option; `free`, `fixed` and `by_rule` make them.

    ``meaning`` is what the reference says of it; without one, the file has no such setting. ``fixed`` is why
    it can't be altered. ``left_out``: it isn't stored where it has its default, as in tables that were made
    before there was a choice. ``needs_key``: it says nothing without a key and its columns. ``setting`` is
    its name in the file, where that is another: there it is the path of a file. ``is_size``: bytes, which the
    file may have as "8MB". ``unset`` is what it is in a file that leaves it to other options.
    """

    meaning: str = ""
    is_free: bool = False
    fixed: str = ""
    left_out: bool = False
    needs_key: bool = False
    setting: str = ""
    is_size: bool = False
    unset: object = ...


IDENTITY: Final[Mapping[str, Option]] = {_OPTION: Option()}
"""It says which definition it is, not what it says."""


def free(meaning: str, **facts: Any) -> Mapping[str, Option]:
    """It may be altered as a whole, since it only says how records to come are dealt with."""
    return {_OPTION: Option(meaning, is_free=True, **facts)}


def fixed(reason: str, meaning: str, **facts: Any) -> Mapping[str, Option]:
    """It can't be altered, and why."""
    return {_OPTION: Option(meaning, fixed=reason, **facts)}


def by_rule(meaning: str, **facts: Any) -> Mapping[str, Option]:
    """How it may be altered, `thermocline.rules.alteration` says."""
    return {_OPTION: Option(meaning, **facts)}


def option_of(field: Field[Any]) -> Option:
    """Facts about a field."""
    found: Option = field.metadata[_OPTION]
    return found


def is_left_out(field: Field[Any], value: object) -> bool:
    """Whether a table with that value does not store it."""
    return option_of(field).left_out and value == field.default


def settings_of(definition: type[Any]) -> Iterator[tuple[str, Field[Any]]]:
    """The options that the file has, by their names there."""
    for field in fields(definition):
        found = option_of(field)
        if found.meaning:
            yield found.setting or field.name, field


def default_of(field: Field[Any]) -> Any:
    """What it is in a file that doesn't mention it; ``...`` where the file must."""
    unset = option_of(field).unset
    if unset is not ...:
        return unset
    if field.default_factory is not MISSING:
        return field.default_factory()
    return ... if field.default is MISSING else field.default

"""Facts about each field of a definition: may it be altered, and when does the table store it?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field
from typing import Any, Final

__all__ = ["BY_RULE", "FREE", "IDENTITY", "alteration_of", "fixed", "is_left_out", "rarely"]

_ALTERATION: Final = "alteration"
_LEFT_OUT: Final = "is_left_out"

FREE: Final[Mapping[str, Any]] = {_ALTERATION: "free"}
"""It may be altered as a whole, since it only says how records to come are dealt with."""
BY_RULE: Final[Mapping[str, Any]] = {_ALTERATION: "rule"}
"""How it may be altered, `thermocline.rules.alteration` says."""
IDENTITY: Final[Mapping[str, Any]] = {_ALTERATION: "identity"}
"""It says which definition it is, not what it says."""


def fixed(reason: str, *, left_out: bool = False) -> Mapping[str, Any]:
    """It can't be altered, and why. ``left_out`` as in `rarely`."""
    return {_ALTERATION: reason, _LEFT_OUT: left_out}


def rarely(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """It is not stored where it has its default, as in tables that were made before there was a choice."""
    return {**metadata, _LEFT_OUT: True}


def alteration_of(option: Field[Any]) -> str:
    """``free``, ``rule``, ``identity``, or why it can't be altered."""
    return str(option.metadata[_ALTERATION])


def is_left_out(option: Field[Any], value: object) -> bool:
    """Whether a table with that value does not store it."""
    return bool(option.metadata.get(_LEFT_OUT)) and value == option.default

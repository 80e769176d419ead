"""Stages at which a record can be bad. On its own, so that the command line need not load a decoder."""

from __future__ import annotations

from enum import StrEnum


class Stage(StrEnum):
    """Where a record failed: at its key, at its value as a whole, or at a column's type."""

    KEY = "key"
    DECODE = "decode"
    CONTRACT = "contract"

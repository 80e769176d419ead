"""Authentication: every request passes here before it reaches an endpoint."""

from __future__ import annotations

from collections.abc import Callable

from thermocline.serving.read.caller import EVERYONE, Caller, Credentials

Admit = Callable[[Credentials], Caller]
"""Gives the caller, or raises the error by which a request is refused; must return at once."""


def admit_everyone(_: Credentials) -> Caller:
    """Whoever reaches the port may read all tables, where there is no clients file."""
    return EVERYONE

"""Who may ask: every request passes here before it reaches an endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from starlette.types import Scope

Admit = Callable[["Scope"], None]
"""Raises the error by which a request is refused; must return at once."""


def admit_everyone(_: Scope) -> None:
    """Whoever reaches the port may read all tables: see ``serving.expose_without_authentication``."""

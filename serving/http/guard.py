"""The guard of an app: who is let in, what is written down of it, and what is wrong with either."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from thermocline.serving.access.connections import Connections
from thermocline.serving.read.caller import EVERYONE, Caller, Credentials

if TYPE_CHECKING:
    from thermocline.serving.access.audit import AuditLog

__all__ = ["OPEN", "Admit", "Guard", "admit_everyone"]

Admit = Callable[[Credentials], Caller]
"""Gives the caller, or raises the error by which a request is refused; must return at once."""


def admit_everyone(_: Credentials) -> Caller:
    """Whoever reaches the port may read all tables, where there is no clients file."""
    return EVERYONE


@dataclass(frozen=True, slots=True)
class Guard:
    """Stands before the endpoints of one worker. Each of ``tended`` runs for as long as the app does.

    Each of ``problems`` gives a sentence for operators, or None. ``connections`` say who asks from where.
    """

    admit: Admit = admit_everyone
    audit: AuditLog | None = None
    tended: Sequence[Callable[[], Coroutine[Any, Any, None]]] = ()
    problems: Sequence[Callable[[], str | None]] = ()
    connections: Connections = field(default_factory=Connections)

    def all_problems(self) -> list[str]:
        """What is wrong now."""
        return [problem for find in self.problems if (problem := find()) is not None]


OPEN: Final = Guard()
"""Lets everybody in, and writes nothing down."""

"""The caller of a read: a name, what it may do with which tables, and which rows it sees.

A caller is told at the connection, and travels from there to every read: what may be done is asked in
`Caller.check` alone, and `Selection` leaves out rows that they don't see.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from thermocline.errors import NotPermitted

__all__ = ["EVERYONE", "Action", "Caller", "Credentials"]


class Action(StrEnum):
    """What callers do with a table."""

    READ = "read"
    """Its rows, however they are asked for, and its definition."""
    OPERATE = "operate"
    """Its status and metrics."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a connection says of who asks: the Authorization header as it came, if there is one.

    ``certificates`` are the names in the certificate that a client has shown, each with what it is before it
    (``dns:``, ``uri:``, ``cn:``); ``address`` is its IP address, empty where that isn't known.
    """

    authorization: str | None = None
    certificates: tuple[str, ...] = ()
    address: str = ""


@dataclass(frozen=True, slots=True)
class Caller:
    """A principal. ``grants`` are actions by table; None: all of them, on all tables.

    ``scopes`` are conditions by table, as `parse_where` reads them: of such a table, the caller sees only the
    rows that match.
    """

    name: str
    grants: Mapping[str, frozenset[Action]] | None = None
    scopes: Mapping[str, str] = field(default_factory=dict)

    def may(self, action: Action, table: str) -> bool:
        """Whether they may do that with a table."""
        return self.grants is None or action in self.grants.get(table, ())

    def check(self, action: Action, table: str) -> None:
        """Raises `NotPermitted` where they may not."""
        if not self.may(action, table):  # safety: caller-granted
            raise NotPermitted(caller=self.name, table=table, detail=f"{action} it")

    def check_sees_all(self, table: str, how: str) -> None:
        """Raises `NotPermitted` where they see only some rows, for a read that can't leave out the others."""
        if table in self.scopes:  # safety: caller-scope-refused
            detail = f"{how}: they see only some of its rows, and the answer can't leave out the others"
            raise NotPermitted(caller=self.name, table=table, detail=detail)

    def has_plain_access(self, table: str) -> bool:
        """Whether they may read every row of a table."""
        return self.may(Action.READ, table) and table not in self.scopes

    def may_see(self, owner: str) -> bool:
        """Whether a job of that caller is theirs; who may do everything sees all jobs."""
        return owner == self.name or (self.grants is None and not self.scopes)


EVERYONE: Final = Caller("everyone")
"""Whoever reaches the port, as long as nobody has to say who they are."""

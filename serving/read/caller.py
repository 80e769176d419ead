"""The caller of a read: a name, what it may do with which tables, and which part of them it sees.

A caller is told at the connection, and travels from there to every read: what may be done is asked in
`Caller.check` alone, and `Sight` leaves out the rows and columns that they don't see.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from thermocline.errors import NotPermitted

if TYPE_CHECKING:
    from thermocline.settings.limits import Limits

__all__ = ["ANY_TABLE", "EVERYONE", "WHOLE", "Action", "Caller", "Credentials", "Grant", "Part", "granted_by"]


class Action(StrEnum):
    """What callers do with a table."""

    LOOKUP = "lookup"
    """Rows by their key."""
    EXTRACT = "extract"
    """All or some rows, as a stream."""
    CHANGES = "changes"
    """What changed since a read point, as a stream."""
    JOBS = "jobs"
    """Extracts as files."""
    CATALOG = "catalog"
    """The table's files, by way of the live catalog."""
    ADMIN = "admin"
    """Its status, metrics and refused records, and everybody's jobs."""

    @property
    def allows(self) -> str:
        """What it allows, in words."""
        return _ALLOWED[self]

    @property
    def reads_rows(self) -> bool:
        """Whether it gives rows."""
        return self is not Action.ADMIN


ANY_TABLE: Final = "*"
"""In grants, for tables that have none of their own; behind the beginning of names, for these alone."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a connection says of who asks: the Authorization header as it came, if there is one.

    ``certificates`` are the names in the certificate that a client has shown, each with what it is before it
    (``dns:``, ``uri:``, ``cn:``); ``address`` is where they are, empty where that isn't known.
    """

    authorization: str | None = None
    certificates: tuple[str, ...] = ()
    address: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """The part of a table that somebody sees.

    ``columns`` are those outside the key, None for all. Of the rows, they see those in which each column of
    ``scope`` has the value that this text means.
    """

    columns: tuple[str, ...] | None = None
    scope: tuple[tuple[str, str], ...] = ()


WHOLE: Final = Part()


@dataclass(frozen=True, slots=True)
class Grant:
    """What somebody may do with a table, and with which part of it."""

    actions: frozenset[Action]
    part: Part = WHOLE


_EVERYTHING: Final = Grant(frozenset(Action))
_NOTHING: Final = Grant(frozenset())


def granted_by(names: Collection[str], table: str) -> str | None:
    """The name under which somebody is granted a table: its own, or else the longest pattern of names.

    A pattern is the beginning of names, followed by ``*``; `ANY_TABLE` is the shortest. None: it is not.
    """
    if table in names:
        return table
    patterns = (
        one for one in names if one.endswith(ANY_TABLE) and table.startswith(one.removesuffix(ANY_TABLE))
    )
    return max(patterns, key=len, default=None)  # safety: grant-longest-pattern


@dataclass(frozen=True, slots=True)
class Caller:
    """A principal. ``grants`` are by table or pattern (`granted_by`); None: everything on all tables.

    ``key`` says by which of their credentials they were let in; None: by none. ``limits`` say how much they
    may ask for, where they have some of their own.
    """

    name: str
    grants: Mapping[str, Grant] | None = None
    key: str | None = None
    limits: Limits | None = None

    def grant(self, table: str) -> Grant:
        """What they may do with a table, and with which part of it."""
        if self.grants is None:
            return _EVERYTHING
        by = granted_by(self.grants, table)
        return _NOTHING if by is None else self.grants[by]

    def may(self, action: Action, table: str) -> bool:
        """Whether they may do that with a table."""
        return action in self.grant(table).actions

    @property
    def is_operator(self) -> bool:
        """Whether they operate every table that has no grant of its own, also those that are to come."""
        return self.may(Action.ADMIN, ANY_TABLE)

    def knows(self, table: str) -> bool:
        """Whether they may do anything with a table; else it is for them as if it did not exist."""
        return bool(self.grant(table).actions)

    def check(self, action: Action, table: str) -> None:
        """Raises `NotPermitted` where they may not."""
        if not self.may(action, table):  # safety: caller-granted
            raise NotPermitted(caller=self.name, table=table, detail=_DENIED[action])

    def check_sees_all(self, table: str, how: str) -> None:
        """Raises `NotPermitted` where they see only a part, for a read that can't leave out the rest."""
        if self.grant(table).part != WHOLE:  # safety: caller-scope-refused
            detail = f"{how}: they see only a part of it, and the answer can't leave out the rest"
            raise NotPermitted(caller=self.name, table=table, detail=detail)

    def sees_all(self, table: str) -> bool:
        """Whether they see every row and column of a table."""
        return self.grant(table).part == WHOLE

    def reads_all(self, table: str) -> bool:
        """Whether they may look up or extract every row and column of a table."""
        may_read = self.may(Action.LOOKUP, table) or self.may(Action.EXTRACT, table)
        return may_read and self.sees_all(table)  # safety: caller-reads-all

    def may_see(self, table: str, owner: str, part: Part) -> bool:
        """Whether a job of that caller, who saw that part, is theirs; an operator of the table sees all."""
        mine = self.grant(table)
        if mine.part not in (WHOLE, part):  # safety: caller-job-part
            return False
        return owner == self.name or Action.ADMIN in mine.actions


_ALLOWED: Final[Mapping[Action, str]] = {
    Action.LOOKUP: "look up rows by their key",
    Action.EXTRACT: "extract rows as a stream",
    Action.CHANGES: "extract what changed since a read point",
    Action.JOBS: "extract rows as files",
    Action.CATALOG: "read its files by way of the live catalog",
    Action.ADMIN: "see its status, and its refused records with reasons and keys",
}
_DENIED: Final[Mapping[Action, str]] = {
    Action.LOOKUP: "look up its rows",
    Action.EXTRACT: "extract it",
    Action.CHANGES: "read changes of it",
    Action.JOBS: "start or read extract jobs",
    Action.CATALOG: "read it by the live catalog",
    Action.ADMIN: "operate it",
}

EVERYONE: Final = Caller("everyone")
"""Whoever reaches the port, as long as nobody has to say who they are."""

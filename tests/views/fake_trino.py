"""Stands in for Trino's client: it keeps the comments of views, and fails when a test says so."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from trino.exceptions import TrinoExternalError

from thermocline.settings import ViewsSettings
from thermocline.views.trino_client import Trino

_MADE = re.compile(r"CREATE OR REPLACE VIEW (\S+)\nCOMMENT '((?:[^']|'')*)'", re.MULTILINE)
_DROPPED = re.compile(r"DROP VIEW IF EXISTS (\S+)")
Hook = Callable[[str], None]


class FakeTrino:
    """The views of one schema: ``comments`` by name; ``statements`` are those that changed one.

    Each of ``hooks`` is called once, with the next statement that changes a view, before it takes effect, and
    each of ``before_look`` before the comments are read.
    """

    def __init__(self) -> None:
        self.comments: dict[str, str | None] = {}
        self.statements: list[str] = []
        self.hooks: list[Hook] = []
        self.before_look: list[Callable[[], None]] = []
        self.asked = 0
        self.options: dict[str, Any] = {}

    def client(self, settings: ViewsSettings | None = None) -> Trino:
        """Our client on this Trino, for the views of a table that is called t."""
        return Trino(settings or ViewsSettings(), self.connect, table="t")

    def connect(self, **options: Any) -> _Connection:
        self.options = options
        return _Connection(self)

    @property
    def replaced(self) -> list[str]:
        """The names of the views of the statements, in order."""
        return [_named(found) for statement in self.statements if (found := _MADE.search(statement))]

    def run(self, sql: str) -> list[list[Any]]:
        self.asked += 1
        if "table_comments" in sql:
            if self.before_look:
                self.before_look.pop(0)()
            return [[name, comment] for name, comment in self.comments.items()]
        if self.hooks:
            self.hooks.pop(0)(sql)
        if found := _MADE.search(sql):
            self.comments[_named(found)] = found[2].replace("''", "'")
        elif found := _DROPPED.search(sql):
            self.comments.pop(_named(found), None)
        else:
            raise AssertionError(f"not a statement that this fake knows: {sql}")
        self.statements.append(sql)
        return []


LOST_RACES = (
    ("View was updated concurrently: app.t_live",),
    ("View was created concurrently: app.t_live",),
    ("View already exists: app.t_live",),
    ("View does not exist: app.t_live",),
    ("[SQLITE_BUSY] The database file is locked (database is locked)",),
    ("Failed to replace view", "UnableToExecuteStatementException", "[SQLITE_BUSY] (database is locked)"),
    ("Error processing metadata for table app.t_live", "Cannot parse missing int: last-column-id"),
)
"""What Trino answers whoever lost the race to replace a view, with its causes: Iceberg's words, SQLite's."""


def contended(sql: str, said: tuple[str, ...] = LOST_RACES[0]) -> None:
    """Loses the race."""
    raise trino_error(*said)


def trino_error(message: str, *causes: str, name: str = "GENERIC_INTERNAL_ERROR") -> TrinoExternalError:
    """As Trino's client raises it; the innermost cause is the last one."""
    failure: dict[str, Any] | None = None
    for said in reversed((message, *causes)):
        failure = {"type": "a.b.Exception", "message": said} | ({"cause": failure} if failure else {})
    error = {"message": message, "errorName": name, "errorCode": 1, "errorType": "EXTERNAL"}
    return TrinoExternalError({**error, "failureInfo": failure})


def _named(found: re.Match[str]) -> str:
    return found[1].split(".")[-1].strip('"')


class _Connection:
    def __init__(self, trino: FakeTrino) -> None:
        self._trino = trino
        self._rows: list[list[Any]] = []

    def cursor(self) -> _Connection:
        return self

    def execute(self, sql: str) -> None:
        self._rows = self._trino.run(sql)

    def fetchall(self) -> list[list[Any]]:
        return self._rows

    def close(self) -> None:
        pass

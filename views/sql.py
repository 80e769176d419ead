"""Names, texts and times in Trino's SQL, and the layout of a query."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable
from datetime import UTC, datetime

__all__ = [
    "comment",
    "indented",
    "instant",
    "json_path",
    "literal",
    "moved_in",
    "name",
    "part",
    "qualified",
    "select",
]


def name(identifier: str) -> str:
    """A delimited identifier, so that neither dots, blanks nor reserved words matter."""
    return '"' + identifier.replace('"', '""') + '"'


def qualified(*parts: str) -> str:
    """A name with all its parts: a view means the same whatever its reader's catalog and schema are."""
    return ".".join(map(name, parts))


def literal(text: str) -> str:
    """A string literal."""
    return "'" + text.replace("'", "''") + "'"


def json_path(*fields: str) -> str:
    """The path of a JSON object's field, through the fields of the objects around it, as a string literal.

    Names of columns have neither quotes nor backslashes (``definition.COLUMN_NAME``), so nothing is escaped.
    """
    assert not any('"' in field or "\\" in field for field in fields)
    return literal("$" + "".join(f'["{field}"]' for field in fields))


def instant(time: datetime) -> str:
    """A point in time, to the millisecond: later parts are cut off, so that a view never ends too late."""
    assert time.tzinfo is not None
    text = time.astimezone(UTC).isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")
    return f"TIMESTAMP '{text} UTC'"


def indented(text: str) -> str:
    """A part of a query, moved in."""
    return textwrap.indent(text, "  ")


def comment(text: str) -> str:
    """A comment of one or several lines; whatever the text is, it stays one."""
    return "\n".join(f"-- {line}" for line in text.splitlines())


def select(columns: Iterable[str], source: str) -> str:
    """A query of these expressions, one a line, on a table or a part."""
    listed = indented(",\n".join(columns))
    return f"SELECT\n{listed}\nFROM {source}"


def part(name_: str, says: str, query: str) -> str:
    """A named part of a query, under a comment that says what it holds."""
    return f"{comment(says)}\n{name_} AS (\n{indented(query)}\n)"


def moved_in(text: str, levels: int) -> str:
    """The same text where its first line stands within another, its other lines moved in."""
    return text.replace("\n", "\n" + "  " * levels)

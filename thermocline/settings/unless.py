"""Tables that take records before others do: the conditions of those that ``unless`` names.

The definition of a table has the conditions of these tables, not their names, so that it is complete by
itself. Who goes before a table goes before those that name it, too: of all of them, the first takes a record.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from thermocline.errors import did_you_mean

__all__ = ["put_conditions"]


def put_conditions(tree: Mapping[str, Any], problems: list[str]) -> None:
    """Puts conditions in the place of names, in the tables of a file; adds what is wrong to the problems."""
    tables = tree.get("tables")
    if not isinstance(tables, dict):
        return
    found: dict[str, list[Any]] = {}
    for name, table in tables.items():
        if not isinstance(table, dict) or not isinstance(table.get("unless"), list | str):
            continue
        before: list[str] = []
        said = [f"tables.{name}: {problem}" for problem in _walk(tables, name, name, before)]
        problems += said
        given = [one for one in _given(table) if not isinstance(one, str)]
        found[name] = given + ([] if said else [_conditions(tables[one]) for one in before])
    for name, conditions in found.items():
        tables[name]["unless"] = conditions


def _walk(tables: Mapping[str, Any], first: str, name: str, before: list[str]) -> Iterator[str]:
    """Notes all tables that go before one; what is wrong with them, in sentences."""
    for other in _given(tables[name]):
        if not isinstance(other, str) or other in before:
            continue
        if other == first:
            yield f"unless: {first} would go before itself"
        elif not isinstance(tables.get(other), dict):
            yield f'unless: "{other}" is no table of this file{did_you_mean(other, list(tables))}'
        elif not _conditions(tables[other]):
            yield f"unless: {other} has no where: it takes all records, and leaves none"
        else:
            before.append(other)
            yield from _walk(tables, first, other, before)


def _given(table: Mapping[str, Any]) -> Sequence[Any]:
    """The names, which a variable has with commas between; anything else is left to the types."""
    given = table.get("unless", ())
    if isinstance(given, str):
        return [name.strip() for name in given.split(",")]
    return given if isinstance(given, list) else ()


def _conditions(table: Mapping[str, Any]) -> list[Any]:
    where = table.get("where", [])
    return where if isinstance(where, list) else [where]

"""Stand-ins for wrong parts of a configuration, so that the rest of it can be checked, too."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from thermocline.rules.definition import LiveTable
from thermocline.rules.definition.option import option_of, settings_of

__all__ = ["substitute"]

_CATALOG: Final = {"type": "glue"}  # the one that needs nothing else
# A definition in which nothing hangs on a key, so that a key or columns that are wrong are one problem.
_WITHOUT_KEY: Final[dict[str, Any]] = {"key": [], "key_from": "value"}
_OF_KEYS: Final = tuple(setting for setting, field in settings_of(LiveTable) if option_of(field).needs_key)


def substitute(tree: dict[str, Any], place: Sequence[str | int]) -> None:
    """Take out what has a problem, or put something in its place where something must stand.

    ``place`` is where pydantic found it. What stands there then has no problem, nor makes one elsewhere.
    """
    match place:
        case ("kafka",) | ("kafka", "bootstrap_servers", *_):
            kafka = tree["kafka"] if isinstance(tree["kafka"], dict) else {}
            tree["kafka"] = {**kafka, "bootstrap_servers": "stand-in:9092"}
        case ("catalog",) | ("catalog", "type" | "uri" | "warehouse", *_):
            tree["catalog"] = dict(_CATALOG)
        case ("audit", "topic", *_):
            tree["audit"]["topic"] = "stand-in"
        case ("tables", str(name), *rest) if isinstance(tree["tables"].get(name), dict):
            _substitute_in_table(tree["tables"][name], name, rest)
        case ("tables", name, *_):
            tree["tables"].pop(name, None)
        case (section, setting, *_) if isinstance(tree.get(str(section)), dict):
            tree[str(section)].pop(setting, None)
        case (section, *_):
            tree.pop(str(section), None)


def _substitute_in_table(table: dict[str, Any], name: str, place: Sequence[str | int]) -> None:
    match place:
        case ():
            table.pop("dead_letter_topic", None)  # what is asked of a table as a whole is asked of this
        case ("identifier", *_):
            table["identifier"] = f"stand-in.{name}"
        case ("topics", *_):
            table["topics"] = ["stand-in"]
        case ("columns", column, *_):
            table["columns"][column] = "string"  # a key may have it, too
        case ("columns",):
            _take_key_out(table)
            table["columns"] = {}
        case ("key", *_):
            _take_key_out(table)
        case (setting, *_):
            table.pop(str(setting), None)


def _take_key_out(table: dict[str, Any]) -> None:
    for setting in _OF_KEYS:
        table.pop(setting, None)
    table.update(_WITHOUT_KEY)

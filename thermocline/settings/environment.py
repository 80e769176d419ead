"""Variables of the environment as settings: by themselves, or by the file that one with ``_FILE`` names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from thermocline.failpoints import MODULE_VARIABLE as FAILPOINTS_VARIABLE
from thermocline.process.masking import MASK
from thermocline.settings.model import Settings
from thermocline.settings.route import RouteSettings
from thermocline.settings.table import TableSettings
from thermocline.settings.value_file import FileUnusable, FromFile, value_in

__all__ = [
    "ACCESS_VARIABLES",
    "FILE_SUFFIX",
    "FILE_VARIABLE",
    "OTHER_VARIABLES",
    "PREFIX",
    "Laid",
    "known_beside",
    "lay_environment_over",
]

FILE_VARIABLE: Final = "THERMOCLINE_CONFIG"
PREFIX: Final = "THERMOCLINE_"
FILE_SUFFIX: Final = "_FILE"
# By these, commands that ask a server say who asks, and whom they trust (`cli.server_access`).
ACCESS_VARIABLES: Final = (
    "THERMOCLINE_KEY",
    "THERMOCLINE_KEY_FILE",
    "THERMOCLINE_KEY_OVER_HTTP",
    "THERMOCLINE_CA_FILE",
    "THERMOCLINE_CERTIFICATE",
    "THERMOCLINE_CERTIFICATE_KEY",
)
# Variables with our prefix that are not settings.
OTHER_VARIABLES: Final = frozenset(
    {
        FILE_VARIABLE,
        "THERMOCLINE_CACHE",
        "THERMOCLINE_TRACEBACK",
        *ACCESS_VARIABLES,
        FAILPOINTS_VARIABLE,
    }
)

SHOWN_CHARACTERS_MAX: Final = 3
"""Of what a file has, so much may be in a problem: a shorter part is in any sentence, and says nothing."""

Place = tuple[str, ...]

_OF_NAMES: Final[Mapping[str, Any]] = {"tables": TableSettings, "routes": RouteSettings}
"""Sections that have one for each name."""


@dataclass(frozen=True, slots=True)
class Laid:
    """What variables set: the variable by each place, and the values that come from files."""

    origins: dict[Place, str] = field(default_factory=dict)
    from_files: list[FromFile] = field(default_factory=list)

    def without_contents(self, problems: Iterable[str]) -> list[str]:
        """The problems without anything of what files have: one that was named by mistake may be a key."""
        parts = {part for value in self.from_files for part in _parts(value)}
        longest_first = sorted(parts, key=len, reverse=True)
        return [_masked(problem, longest_first) for problem in problems]


def lay_environment_over(tree: dict[str, Any], folder: Path, problems: list[str]) -> Laid:
    """Sets what the variables say. ``folder`` is that of the configuration, for paths that are relative."""
    laid = Laid()
    for variable in sorted(os.environ):
        if not variable.startswith(PREFIX) or variable in OTHER_VARIABLES:
            continue
        node, place = _place_of(tree, variable)
        value: str = os.environ[variable]
        if _names_file(node, place):
            node, place = _place_of(tree, variable.removesuffix(FILE_SUFFIX))
            other = next((of for at, of in laid.origins.items() if ".".join(at) == ".".join(place)), None)
            if other is not None:
                problems.append(f"{variable}: {other} is set, too: keep one of them")
                continue
            try:
                value = _value_of_file(value, folder)
            except FileUnusable as error:
                problems.append(f"{variable}: {error}")
                continue
            laid.from_files.append(value)
        if isinstance(node.get(place[-1]), dict):
            problems.append(f"{variable}: names a section, not a setting")
            continue
        node[place[-1]] = value
        laid.origins[place] = variable
    return laid


def known_beside(place: Place) -> list[str]:
    """The names that may stand where the last part of a place stands; none below what has any names."""
    of_name = _OF_NAMES.get(place[0]) if len(place) > 2 else None  # as in tables.NAME.SETTING
    model: Any = of_name or Settings
    for section in place[2:-1] if of_name else place[:-1]:
        found = getattr(model, "model_fields", {}).get(section)
        model = getattr(found, "annotation", None)
    return list(getattr(model, "model_fields", ()))


def _value_of_file(named: str, folder: Path) -> FromFile:
    if not named:
        raise FileUnusable("names no file")
    try:
        return value_in(folder / named)
    except FileUnusable as error:
        raise FileUnusable(f"{folder / named} {error}") from None


def _place_of(tree: dict[str, Any], variable: str) -> tuple[dict[str, Any], Place]:
    """The section that a variable's setting stands in, and the setting's place."""
    words = variable.removeprefix(PREFIX).split("__")
    node, place = tree, []
    for word in words[:-1]:
        place.append(_spelled_as_in(node, word))
        child = node.setdefault(place[-1], {})
        node = child if isinstance(child, dict) else {}
    place.append(_spelled_as_in(node, words[-1]))
    return node, tuple(place)


def _spelled_as_in(node: Mapping[str, Any], word: str) -> str:
    """Variables are in capitals: a name of the file is meant where only case differs."""
    return next((name for name in node if name.casefold() == word.casefold()), word.lower())


def _names_file(node: Mapping[str, Any], place: Place) -> bool:
    """Whether a variable names a file that has the value: not where a setting is called so itself."""
    match place:
        case ("tables" | "routes", _, "columns", *_):  # columns have any names
            return False
    name = place[-1]
    is_setting = name in node or name in known_beside(place)
    return name.casefold().endswith(FILE_SUFFIX.casefold()) and not is_setting


def _parts(value: str) -> Iterator[str]:
    """The value, and what a problem may have of it: a list is told by its items, an address by its parts."""
    pieces: Sequence[str] = [value, *value.split(","), *value.split(), *value.split("://")]
    yield from (one for piece in pieces if len(one := piece.strip()) > SHOWN_CHARACTERS_MAX)


def _masked(problem: str, parts: Iterable[str]) -> str:
    for part in parts:
        problem = problem.replace(part, MASK)  # safety: no-content-of-files
    return problem

"""The settings that a file and the environment give, whatever their values: to tell which have no effect."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thermocline.settings.environment import lay_environment_over
from thermocline.settings.load import PASS_THROUGH, find_file

__all__ = ["Given", "given_settings"]

Place = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Given:
    """A setting's place, such as ``("audit", "path")``, and the variable that gives it, or else the file."""

    place: Place
    variable: str = ""

    @property
    def name(self) -> str:
        """Its dotted name."""
        return ".".join(self.place)


def given_settings(path: Path | None = None) -> tuple[Given, ...]:
    """Those of a configuration that can be read, in the file's order; of other programs' settings, none.

    Raises `ConfigInvalid` where no file is there.
    """
    file = find_file(path)
    tree = tomllib.loads(file.read_text(encoding="utf-8"))
    laid = lay_environment_over(tree, file.parent, [])
    return tuple(Given(place, laid.origins.get(place, "")) for place in _leaves(tree))


def _leaves(tree: Mapping[str, Any], above: Place = ()) -> Iterator[Place]:
    for name, value in tree.items():
        place = (*above, name)
        if place in PASS_THROUGH or (above[:1] in (("tables",), ("routes",)) and name == "columns"):
            continue
        if isinstance(value, dict) and value:
            yield from _leaves(value, place)
        else:
            yield place

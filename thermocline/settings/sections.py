"""Says where a name belongs that is written into another section."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from pydantic import BaseModel

from thermocline.iceberg.catalog_properties import WORDS
from thermocline.kafka.client_settings import known_properties
from thermocline.settings.model import Settings
from thermocline.settings.route import RouteSettings
from thermocline.settings.table import TableSettings

_TABLE: Final = "tables.NAME"
_ROUTE: Final = "routes.NAME"
# The sections for other programs: which names are theirs. TOML reads dotted names without quotes as sections.
_THEIRS: Final[dict[str, Callable[[str, bool], bool]]] = {
    "kafka.client": lambda name, is_section: _is_of(name, known_properties(), is_section),
    "catalog.properties": lambda name, is_section: _is_of(name, WORDS, is_section),
    "spark.conf": lambda name, _: name.partition(".")[0] == "spark",
}


def belongs(place: tuple[str, ...], *, is_section: bool) -> str:
    """``; it belongs in [ingest]`` for the place of a name that other sections have; nothing for others.

    Args:
        is_section: Whether other names are below it, so that it may be the first part of a dotted name.
    """
    *section, name = place
    sections = [one for one, names in _names_by_section() if name in names]
    sections += [one for one, is_theirs in _THEIRS.items() if is_theirs(name, is_section)]
    others = [f"[{one}]" for one in sections if one != ".".join(section)]
    return f"; it belongs in {' or '.join(others)}" if others else ""


def _names_by_section() -> Iterator[tuple[str, frozenset[str]]]:
    yield from _within("", Settings)
    yield _TABLE, frozenset(TableSettings.model_fields)
    yield _ROUTE, frozenset(RouteSettings.model_fields) - frozenset(TableSettings.model_fields)


def _within(section: str, model: Any) -> Iterator[tuple[str, frozenset[str]]]:
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            place = f"{section}.{name}" if section else name
            yield place, frozenset(inner.model_fields)
            yield from _within(place, inner)


def _is_of(name: str, known: Any, is_section: bool) -> bool:
    return name in known or (is_section and any(one.startswith(f"{name}.") for one in known))

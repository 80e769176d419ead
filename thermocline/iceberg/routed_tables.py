"""The tables of routes, as their directories name them, beside those that the configuration declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from thermocline.errors import ForeignSnapshot
from thermocline.iceberg.catalog import ROUTED_PROPERTY, catalog_if_any, find_table
from thermocline.rules.routes.directory import Directory

if TYPE_CHECKING:
    from thermocline.settings import Settings

__all__ = ["directory_in", "with_routed_tables"]


def directory_in(properties: Mapping[str, str | None], name: str) -> Directory:
    """The directory that a route's table carries. Raises `ForeignSnapshot` where it can't be read."""
    try:
        return Directory.from_json(properties.get(ROUTED_PROPERTY))
    except ValueError as error:
        detail = f"its property {ROUTED_PROPERTY} was changed: {error}"
        raise ForeignSnapshot(table=name, snapshot_id=-1, detail=detail) from error


def with_routed_tables(settings: Settings) -> Settings:
    """The settings with every table that the routes' directories name; the same where there is no route.

    A directory that does not exist yet names none. Raises what `open_catalog` and `load_table` raise, and
    `ForeignSnapshot` where a directory can't be read.
    """
    catalog = catalog_if_any(settings.catalog) if settings.routes else None
    if catalog is None:
        return settings
    for name, route in settings.routes.items():
        table = find_table(catalog, route.directory_identifier)
        if table is not None:
            known = directory_in(table.properties, name)
            settings = settings.with_routed(name, known.names, known.columns)
    return settings

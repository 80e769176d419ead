"""Make the table of a value of a route: from where the value may have come first, once, and for good."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from thermocline.errors import TableTaken
from thermocline.iceberg.catalog import (
    catalog_errors,
    definition_of,
    find_table,
)
from thermocline.ingest.commit.java import JavaCatalog
from thermocline.ingest.quarantine import create_quarantine
from thermocline.ingest.table.create import check_new_names, create_java_table
from thermocline.rules.seam import Seam
from thermocline.settings.route import table_of_value

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from thermocline.ingest.commit.change import TableChange
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings

__all__ = ["ROUTED_FROM_PROPERTY", "TableMaker"]

ROUTED_FROM_PROPERTY: Final = "thermocline.routed-from"
"""Of a table that a route made: JSON with the value, and the seam that it began with."""


@dataclass(frozen=True, slots=True)
class TableMaker:
    """Makes the tables of one route, in the catalog of the directory's owner."""

    settings: Settings
    route: str
    catalog: Catalog
    jvm: Any

    def make(self, value: str, topics: LiveTable, start: TableChange) -> str:
        """Make the value's table, which begins where ``start`` says; its name.

        ``topics`` has the topics that the route reads by now. A table that was made for the value before,
        from there or from before it, is taken as it is.

        Raises:
            TableTaken: the name is that of another table.
            ConfigInvalid: the route's options make no definition.
            ThermoclineError: the catalog or the store does not take it.
        """
        name = table_of_value(self.route, value)
        definition = self.settings.routes[self.route].table_settings(value).definition(name)
        definition = replace(definition, topics=topics.topics)
        check_new_names(definition)
        self._refuse_declared(name, definition.identifier)
        there = find_table(self.catalog, definition.identifier)
        if there is not None:
            _check_ours(there, name, definition, value, start.seam)
            return name
        with catalog_errors(self.catalog, name):
            self.catalog.create_namespace_if_not_exists(definition.identifier.rpartition(".")[0])
            create_quarantine(self.catalog, definition.identifier)
        properties = {ROUTED_FROM_PROPERTY: json.dumps({"value": value, "seam": start.seam.to_dict()})}
        change = replace(start, definition=definition, properties=properties)
        create_java_table(JavaCatalog(self.jvm, self.settings.catalog), definition, change)
        return name

    def _refuse_declared(self, name: str, identifier: str) -> None:
        for declared, table in self.settings.tables.items():
            if identifier == table.identifier and declared != name:
                raise TableTaken(table=name, identifier=identifier, detail=f"it is that of {declared}")


def _check_ours(there: Table, name: str, definition: LiveTable, value: str, seam: Seam) -> None:
    """Raises `TableTaken` where a table isn't the one that would be made, or began too late for it."""
    detail = _why_not_ours(there, name, definition, value, seam)
    if detail:
        raise TableTaken(table=name, identifier=definition.identifier, detail=detail)


def _why_not_ours(there: Table, name: str, definition: LiveTable, value: str, seam: Seam) -> str:
    try:
        made = json.loads(there.properties.get(ROUTED_FROM_PROPERTY, ""))
        made_for, began = made["value"], Seam.from_dict(made["seam"])
    except (ValueError, TypeError, KeyError):
        return "it was not made by a route"
    if made_for != value:
        return f'it is the table of the value "{made_for}"'
    differences = definition_of(there, name).differences(definition)
    if differences:
        return f"it has another definition: {'; '.join(differences)}"
    if not seam.at_least(began):  # safety: routed-began-in-time
        return f"it began at {began}, later than records of its value may have come: {seam}"
    return ""

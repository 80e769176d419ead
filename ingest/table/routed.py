"""Make the table of a value of a route: from where the value may have come first, once, and for good."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from pyiceberg.exceptions import ForbiddenError, NoSuchNamespaceError

from thermocline.errors import SchemaUnusable, TableRestricted, TableTaken
from thermocline.iceberg.catalog import (
    QUARANTINE_SUFFIX,
    catalog_errors,
    definition_of,
    find_table,
)
from thermocline.ingest.commit.java import JavaCatalog
from thermocline.ingest.quarantine import create_quarantine
from thermocline.ingest.table.create import check_new_names, create_java_table
from thermocline.process.logs import fields
from thermocline.rules.contract.modes import Contract
from thermocline.rules.recognise import Unrecognised
from thermocline.rules.routes.by_schema import ByFirst, by_first
from thermocline.rules.routes.names import is_denied, name_of
from thermocline.rules.routes.own_columns import OwnColumns
from thermocline.rules.seam import Seam
from thermocline.settings.route import VALUE, table_of_value

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from thermocline.ingest.commit.change import TableChange
    from thermocline.rules.definition import LiveTable
    from thermocline.rules.routes.directory import Directory
    from thermocline.rules.routes.own_columns import FirstSchema
    from thermocline.settings import Settings
    from thermocline.settings.route import RouteSettings

__all__ = ["ROUTED_FROM_PROPERTY", "Made", "TableMaker"]

ROUTED_FROM_PROPERTY: Final = "thermocline.routed-from"
"""Of a table that a route made: JSON with the value, and the seam that it began with."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Made:
    """A value's table: its name, and its columns where it has its own."""

    table: str
    own: OwnColumns | None = None


@dataclass(frozen=True, slots=True)
class TableMaker:
    """Makes the tables of one route, in the catalog of the directory's owner."""

    settings: Settings
    route: str
    catalog: Catalog
    jvm: Any

    def make(
        self, value: str, directory: LiveTable, start: TableChange, first: FirstSchema | None = None
    ) -> Made:
        """Make the value's table, which begins where ``start`` says.

        ``directory`` has the topics that the table reads; ``first`` is for tables with columns of their own.
        A table that was made for the value before, from there or from before it, is taken as it is.

        Raises:
            TableTaken: the name is that of another table.
            SchemaUnusable: the first record's schemas are not those of a table, or there are none.
            RegistryUnreachable: they can't be asked for now.
            ConfigInvalid: the route's options make no definition.
            ThermoclineError: the catalog or the store does not take it.
        """
        name, route = table_of_value(self.route, value), self.settings.routes[self.route]
        identifier = route.table_settings(value).identifier

        def wanted(own: OwnColumns | None) -> LiveTable:
            definition = route.table_settings(value, own).definition(name)
            return replace(definition, topics=directory.topics)

        self._refuse_declared(name, identifier)
        there = find_table(self.catalog, identifier)
        if there is not None:
            detail = _why_not_ours(there, name, value, start.seam, wanted)
            if detail:
                raise TableTaken(table=name, identifier=identifier, detail=detail)
            return Made(name, _own_of(definition_of(there, name)))
        found = self._by_first(route, name, directory, first) if route.is_by_schema else None
        definition = wanted(None if found is None else found.own)
        _check_routed_alike(directory, definition, name)
        check_new_names(definition)
        with catalog_errors(self.catalog, name):
            self.catalog.create_namespace_if_not_exists(definition.identifier.rpartition(".")[0])
            create_quarantine(self.catalog, definition.identifier)
        made_from = json.dumps({"value": value, "seam": start.seam.to_dict()})
        properties = {**start.properties, ROUTED_FROM_PROPERTY: made_from}
        change = replace(start, definition=definition, properties=properties)
        create_java_table(JavaCatalog(self.jvm, self.settings.catalog), definition, change)
        if found is not None:
            extra = fields(table=name, first_record=str(first), left_out="; ".join(found.left_out))
            _logger.info("a table has the columns of its first record's schema", extra=extra)
        return Made(name, None if found is None else found.own)

    def _by_first(
        self, route: RouteSettings, name: str, directory: LiveTable, first: FirstSchema | None
    ) -> ByFirst:
        registry = self.settings.registry.client()
        if first is None or registry is None:
            detail = "none of its records names a schema that the registry knows"
            raise SchemaUnusable(table=name, detail=detail, remedy="write records that do")
        try:
            return by_first(directory, route.key, Contract.parse(route.contract), first, registry)
        except Unrecognised as error:
            detail = f"{error} (its first record is {first})"
            raise SchemaUnusable(table=name, detail=detail, remedy=error.remedy) from error

    def made_before(self, known: Directory) -> tuple[str, ...]:
        """The values with a table that the directory doesn't know: a batch that didn't land had it made.

        None where the catalog may not be listed. Raises `CatalogUnreachable`.
        """
        route = self.settings.routes[self.route]
        namespace, _, template = route.table.rpartition(".")
        names = {template.replace(VALUE, name_of(value)) for value in (*known.names, *known.failed)}
        before, after = template.split(VALUE)
        found = []
        with catalog_errors(self.catalog, self.route), suppress(NoSuchNamespaceError, ForbiddenError):
            for *_, name in self.catalog.list_tables(namespace):
                is_candidate = name.startswith(before) and name.endswith(after) and name not in names
                if is_candidate and not name.endswith(QUARANTINE_SUFFIX):
                    value = self._value_of(f"{namespace}.{name}")
                    if value is not None and value not in known and not is_denied(value, route.denied):
                        found.append(value)
        return tuple(sorted(found))

    def _value_of(self, identifier: str) -> str | None:
        """The value that the route made a table for; None of any other table."""
        try:
            there = find_table(self.catalog, identifier)
            text = "" if there is None else there.properties.get(ROUTED_FROM_PROPERTY, "")
            value = str(json.loads(text)["value"])
        except (TableRestricted, ValueError, TypeError, KeyError):
            return None
        is_of_this = self.settings.routes[self.route].table.replace(VALUE, name_of(value)) == identifier
        return value if is_of_this else None

    def _refuse_declared(self, name: str, identifier: str) -> None:
        for declared, table in self.settings.tables.items():
            if identifier == table.identifier and declared != name:
                raise TableTaken(table=name, identifier=identifier, detail=f"it is that of {declared}")


def _check_routed_alike(directory: LiveTable, definition: LiveTable, name: str) -> None:
    """Raises `SchemaUnusable` where the directory reads a record's value elsewhere than its table does."""
    in_key = definition.fields_in_key - directory.fields_in_key
    for source in definition.route.sources:
        if source.field in in_key:  # safety: schema-routed-alike
            detail = f"the key of its records has the {source}, by which the route tells values"
            raise SchemaUnusable(table=name, detail=detail, remedy="name the key's columns in the route: key")


def _own_of(stored: LiveTable) -> OwnColumns | None:
    return OwnColumns.of(stored) if stored.columns_by_schema else None


def _why_not_ours(
    there: Table, name: str, value: str, seam: Seam, wanted: Callable[[OwnColumns | None], LiveTable]
) -> str:
    """Why a table isn't the one that would be made, or was made before; empty where it is.

    Its own columns are as they are: another first record may have said them.
    """
    try:
        made = json.loads(there.properties.get(ROUTED_FROM_PROPERTY, ""))
        made_for, began = made["value"], Seam.from_dict(made["seam"])
    except (ValueError, TypeError, KeyError):
        return "it was not made by a route"
    if made_for != value:
        return f'it is the table of the value "{made_for}"'
    stored = definition_of(there, name)
    differences = stored.differences(wanted(_own_of(stored)))
    if differences:
        return f"it has another definition: {'; '.join(differences)}"
    if not seam.at_least(began):  # safety: routed-began-in-time
        return f"it began at {began}, later than records of its value may have come: {seam}"
    return ""

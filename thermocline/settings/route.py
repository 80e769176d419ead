"""Settings of one route: its topics, where a record's value is, and what the table of each value is like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import Field, WrapValidator, create_model, model_validator

from thermocline.rules.contract.modes import Contract
from thermocline.rules.definition.options import SCHEMA_FORMATS
from thermocline.rules.routes.names import (
    ROUTE_CHARACTERS_MAX,
    is_denied,
    is_in_names,
    may_be_made,
    name_of,
)
from thermocline.rules.routes.own_columns import BY_SCHEMA, PLAIN_KEYS, OwnColumns
from thermocline.rules.routing import Source
from thermocline.settings.section import Section
from thermocline.settings.table import TableSettings
from thermocline.settings.values import ColumnText, Names

if TYPE_CHECKING:
    from pydantic import ValidatorFunctionWrapHandler

    from thermocline.rules.definition import LiveTable

__all__ = ["VALUE", "DirectorySettings", "RouteSettings", "problems_of_routes", "table_of_value"]

VALUE: Final = "{}"
"""In a route's ``table``: the part of the name that is made of a value."""
DIRECTORY_NAME: Final = "directory"
TABLES_MAX: Final = 10_000
"""Each table has an owner, a lease and files of its own; the directory is copied into each metadata file."""

# What a route says for all of its tables, and each table by itself.
_OF_EACH: Final = ("identifier", "topics", "where", "unless")
_TEMPLATE: Final[dict[str, Any]] = {
    name: (field.annotation, field)
    for name, field in TableSettings.model_fields.items()
    if name not in _OF_EACH
}
_Template: Any = create_model("_Template", __base__=Section, **_TEMPLATE)
_KEY: Final = "record_key"
"""The key of a directory whose tables have the keys of their own schemas."""


def _columns(value: object, handler: ValidatorFunctionWrapHandler) -> Any:
    if isinstance(value, str) and value != BY_SCHEMA:
        raise ValueError(f'columns is "{value}", not a section of columns or "{BY_SCHEMA}"')
    return value if value == BY_SCHEMA else handler(value)


class DirectorySettings(TableSettings):
    """A route's directory, which is owned, read and maintained as a table is; it has no rows.

    ``by`` is where a record has its value. ``by_schema``: its tables have columns of their own.
    """

    by: dict[str, str | list[str]]
    by_schema: bool = False

    def definition(self, name: str, there: LiveTable | None = None) -> LiveTable:
        """See `TableSettings`; with what makes it a directory."""
        by_schema = self.by_schema
        return self._built(name, values_at=self.by, columns_by_schema=by_schema, **self._kept(there))


class OwnColumnsSettings(TableSettings):
    """A routed table whose columns the configuration does not name: they are what the table has."""

    def definition(self, name: str, there: LiveTable | None = None) -> LiveTable:
        """See `TableSettings`; with the columns that it began with."""
        return self._built(name, columns_by_schema=True, **self._kept(there))


class RouteSettings(_Template):  # type: ignore[misc]  # the options of its tables are those of `TableSettings`
    """A route: a table for each value that records of its topics have, made when the value first comes."""

    topics: Names
    key: Names | None = None
    columns: Annotated[dict[str, ColumnText], WrapValidator(_columns)]
    by: dict[str, str | list[str]]
    table: Annotated[str, Field(min_length=1)]
    directory: str | None = None
    denied: Names = ()
    tables_max: Annotated[int, Field(ge=1, le=TABLES_MAX)] = 1_000
    unrouted: Literal["quarantine", "skip", "fail"] = "quarantine"

    @model_validator(mode="after")
    def _check_by(self) -> Self:
        Source.parse(self.by)
        return self

    @model_validator(mode="after")
    def _check_table(self) -> Self:
        if self.table.count(VALUE) != 1 or VALUE not in self.table.rpartition(".")[2]:
            raise ValueError(f'table is "{self.table}", but needs {VALUE} once, as in "app.events_{VALUE}"')
        return self

    @model_validator(mode="after")
    def _check_contract(self) -> Self:
        has_own_schema = self.value_schema_file is not None
        problems = tuple(Contract.parse(self.contract).problems(self.format, has_own_schema))
        if problems:
            raise ValueError("; ".join(problems))
        return self

    @model_validator(mode="after")
    def _check_columns(self) -> Self:
        if not self.is_by_schema:
            if self.key is None:
                raise ValueError("key is missing")
            return self
        formats: list[tuple[str, str, tuple[str, ...]]] = [("format", self.format, SCHEMA_FORMATS)]
        if self.key_from == "key":
            formats.append(("key_format", self.key_format or self.format, (*SCHEMA_FORMATS, *PLAIN_KEYS)))
        for setting, given, known in formats:
            if given not in known:
                needs = " or ".join(known)
                raise ValueError(
                    f'columns = "{BY_SCHEMA}" needs {setting} = {needs}: "{given}" declares no types'
                )
        if self.value_schema_file is not None:
            raise ValueError(
                f'columns = "{BY_SCHEMA}" can\'t be used with value_schema_file: records name their schemas'
            )
        if self.key is None and self.key_from != "key":
            raise ValueError(
                "key is missing: it names fields of the value, or is [] if each record adds a row"
            )
        if self.key is None and self.entity:
            raise ValueError("entity needs key: each table has the key of its own records' schema")
        return self

    @property
    def is_by_schema(self) -> bool:
        """Whether each table has the columns of its first record's schema."""
        columns: object = self.columns
        return columns == BY_SCHEMA

    @property
    def directory_identifier(self) -> str:
        """Where the directory is in the catalog."""
        return self.directory or self.table.replace(VALUE, DIRECTORY_NAME)

    def may_give(self, identifier: str) -> bool:
        """Whether the table of a value that isn't denied may have this identifier."""
        before, after = self.table.split(VALUE)
        if not identifier.startswith(before) or not identifier.endswith(after):
            return False
        name = identifier[len(before) : len(identifier) - len(after)]
        return may_be_made(name) and not is_denied(name, self.denied)

    def directory_settings(self) -> DirectorySettings:
        """The directory's own settings."""
        of_directory = {
            "identifier": self.directory_identifier,
            "on_error": self.unrouted,
            # Records without a route are no reason to stop; tables judge what can't be read themselves.
            "errors_ratio_max": 1.0,
            "errors_count_max": None,
            "delete_unmatched": False,
            "views": (),
        }
        given = {**self._of_tables(), **of_directory, "by": self.by, "by_schema": self.is_by_schema}
        del given["contract"]  # it has no rows, and so no use for other columns
        if self.is_by_schema:
            given |= self._stand_in().to_dict() | {"sequence_by": (), "partial_updates": False}
            del given["tombstone_retention_hours"]
        settings: DirectorySettings = DirectorySettings.model_validate(given)
        return settings

    def table_settings(self, value: str, own: OwnColumns | None = None) -> TableSettings:
        """The settings of a value's table, which may have columns of its own."""
        identifier = self.table.replace(VALUE, name_of(value))
        where = [{**self.by, "in": [value]}]
        given = {**self._of_tables(), "identifier": identifier, "where": where}
        if not self.is_by_schema:
            settings: TableSettings = TableSettings.model_validate(given)
            return settings
        by_schema: TableSettings = OwnColumnsSettings.model_validate(
            given | (own or self._stand_in()).to_dict()
        )
        return by_schema

    def _stand_in(self) -> OwnColumns:
        """Key and columns where nobody knows them: by them, a directory finds values as its tables do."""
        in_key = self.key_from == "key"
        key = self.key if self.key is not None else (_KEY,)
        type_ = PLAIN_KEYS.get(self.key_format or self.format, "string") if in_key else "string"
        return OwnColumns(tuple(key), dict.fromkeys(key or (_KEY,), type_))

    def _of_tables(self) -> dict[str, Any]:
        given = {"topics": self.topics, **{name: getattr(self, name) for name in _TEMPLATE}}
        if "format_version" not in self.model_fields_set:
            del given["format_version"]  # what the file doesn't say, no table's settings say
        return given


def table_of_value(route: str, value: str) -> str:
    """What commands and servers call the table of a value."""
    return f"{route}_{name_of(value)}"


def problems_of_routes(
    routes: Mapping[str, RouteSettings], tables: Mapping[str, TableSettings]
) -> Iterator[str]:
    """What is wrong with the names of routes; ``tables`` are those that the file has beside them."""
    for name in routes:
        if len(name) > ROUTE_CHARACTERS_MAX:
            yield f"routes.{name}: a route's name has at most {ROUTE_CHARACTERS_MAX} characters"
        if name in tables:
            yield f"routes.{name}: tables.{name} has the name of the route's directory: rename one"
        for place in (*(f"tables.{one}" for one in tables), *(f"routes.{one}" for one in routes)):
            if place.partition(".")[2].startswith(f"{name}_"):  # safety: routes-names-apart
                yield f"routes.{name}: {place} may have the name of one of its tables: rename it"
    yield from _problems_of_identifiers(routes, tables)


def _problems_of_identifiers(
    routes: Mapping[str, RouteSettings], tables: Mapping[str, TableSettings]
) -> Iterator[str]:
    given = {f"tables.{name}": table.identifier for name, table in tables.items()}
    given |= {f"routes.{name}": route.directory_identifier for name, route in routes.items()}
    for name, route in routes.items():
        for place, identifier in given.items():
            if route.may_give(identifier):  # safety: route-identifiers-apart
                yield (
                    f"routes.{name}: {identifier}, which is that of {place}, may be the table of a value: "
                    "rename one, or deny the value"
                )
    for (name, route), (another, other) in combinations(routes.items(), 2):
        if _may_meet(route.table, other.table):  # safety: routes-identifiers-apart
            yield (
                f'routes.{another}: table = "{other.table}" may give the same table as "{route.table}" '
                f"of routes.{name}: rename one"
            )


def _may_meet(table: str, other: str) -> bool:
    """Whether two routes may give two values the same identifier."""
    (before, after), (before_too, after_too) = table.split(VALUE), other.split(VALUE)
    short, long = sorted((before, before_too), key=len)
    end, longer_end = sorted((after, after_too), key=len)
    if not long.startswith(short) or not longer_end.endswith(end):
        return False
    return is_in_names(long[len(short) :]) and is_in_names(longer_end[: len(longer_end) - len(end)])

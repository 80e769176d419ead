"""Settings of one route: its topics, where a record's value is, and what the table of each value is like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, Self

from pydantic import Field, create_model, model_validator

from thermocline.rules.routes.names import ROUTE_CHARACTERS_MAX, name_of
from thermocline.rules.routing import Source
from thermocline.settings.section import Section
from thermocline.settings.table import TableSettings
from thermocline.settings.values import Names

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable

__all__ = ["DirectorySettings", "RouteSettings", "problems_of_routes", "table_of_value"]

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


class DirectorySettings(TableSettings):
    """A route's directory, which is owned, read and maintained as a table is; it has no rows.

    ``by`` is where a record has its value.
    """

    by: dict[str, str | list[str]]

    def definition(self, name: str, there: LiveTable | None = None) -> LiveTable:
        """See `TableSettings`; with what makes it a directory."""
        return self._built(name, values_at=self.by, **self._kept(there))


class RouteSettings(_Template):  # type: ignore[misc]  # the options of its tables are those of `TableSettings`
    """A route: a table for each value that records of its topics have, made when the value first comes."""

    topics: Names
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

    @property
    def directory_identifier(self) -> str:
        """Where the directory is in the catalog."""
        return self.directory or self.table.replace(VALUE, DIRECTORY_NAME)

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
        given = {**self._of_tables(), **of_directory, "by": self.by}
        given.pop("contract", None)  # it has no rows, and so no use for other columns
        settings: DirectorySettings = DirectorySettings.model_validate(given)
        return settings

    def table_settings(self, value: str) -> TableSettings:
        """The settings of a value's table."""
        identifier = self.table.replace(VALUE, name_of(value))
        where = [{**self.by, "in": [value]}]
        given = {**self._of_tables(), "identifier": identifier, "where": where}
        settings: TableSettings = TableSettings.model_validate(given)
        return settings

    def _of_tables(self) -> dict[str, Any]:
        said = (name for name in _TEMPLATE if name in self.model_fields_set)  # the others have its defaults
        return {"topics": self.topics, **{name: getattr(self, name) for name in said}}


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
        for table in tables:
            if table == name:
                yield f"routes.{name}: tables.{name} has the name of the route's directory: rename one"
            elif table.startswith(f"{name}_"):
                yield f"routes.{name}: tables.{table} may have the name of one of its tables: rename it"

"""The entity or row that somebody asks for by the text of its key columns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from thermocline.errors import BadParameter
from thermocline.rules.keys import check_key_columns, parse_value
from thermocline.serving.cold.reader import Entity

if TYPE_CHECKING:
    from thermocline.rules.definition import LiveTable


def entity_of(definition: LiveTable, parameters: Mapping[str, str]) -> Entity:
    """The entity that parameters name: the entity's columns, and maybe those that follow in the key, as text.

    Raises:
        BadParameter: a parameter is another column of the table, or none.
        BadParameter: a column is missing, or its text is no value of its type.
    """
    check_has_key(definition)  # safety: no-lookup-without-key
    check_key_columns(definition, parameters)
    values = []
    for place, column in enumerate(definition.key_columns):
        if column.name not in parameters:
            _check_missing(definition, place, parameters)
            break
        try:
            values.append(parse_value(column, parameters[column.name]))
        except ValueError as error:
            raise BadParameter(name=column.name, problem=str(error)) from error
    return Entity.of(definition, values)


def check_has_key(definition: LiveTable) -> None:
    """Raises `BadParameter` when the rows of the table can't be looked up."""
    if not definition.has_key:
        raise BadParameter.without_key(definition.name)


def _check_missing(definition: LiveTable, place: int, parameters: Mapping[str, str]) -> None:
    missing = definition.key[place]
    if place < len(definition.entity):
        needed = ", ".join(definition.entity)
        raise BadParameter(name=missing, problem=f"it is missing: a lookup needs {needed}")
    for later in definition.key[place + 1 :]:
        if later in parameters:
            raise BadParameter(name=missing, problem=f"it is missing, and {later} comes after it in the key")

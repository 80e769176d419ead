"""Messages of one type as columns, a field at a time.

Parsing is the library's; what it lets through although the rule does not is caught where fields are read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import isfinite
from operator import attrgetter
from typing import Any, Final

from google.protobuf.message import DecodeError

from thermocline.rules.column_types import Kind
from thermocline.rules.decode.exact import finite
from thermocline.rules.decode.fields import RowFields
from thermocline.rules.decode.formats import PRESENCE, UNSET, Refusals
from thermocline.rules.decode.framing import indexes_length, message_indexes
from thermocline.rules.decode.protobuf.fitting import (
    TIMESTAMP,
    WRAPPERS,
    Convert,
    NotUtf8,
    checked_text,
    conversion,
    described,
    is_closed_enum,
    timestamps,
)
from thermocline.rules.decode.protobuf.json_values import check_closed_enum, json_text_of
from thermocline.rules.decode.protobuf.nested import nested_conversion
from thermocline.rules.decode.schema_documents import SchemaFormat, Target, WriterSchema
from thermocline.rules.definition import Column
from thermocline.rules.protobuf_schema import message_at, message_called

__all__ = ["PROTOBUF"]


class MessageReader:
    """Reads messages that one schema wrote; see `BodyReader`."""

    def __init__(
        self,
        schema: WriterSchema,
        head: bytes,
        columns: Sequence[Column],
        required: Sequence[str],
        tells_unset: bool,
        row_fields: RowFields,
    ) -> None:
        """Prepares for columns, of which some must not be null. Raises `SchemaInvalid`.

        ``tells_unset``: the others are `UNSET` for null, as null of Protobuf is what is not there.
        ``row_fields``: rows that have none of these are refused.
        """
        descriptors = schema.descriptors
        if schema.message is None:
            class_ = message_at(descriptors, message_indexes(head))
        else:
            class_ = message_called(descriptors, schema.message)
        self._parse = class_.FromString
        targets = [Target(number, column, column.read_from) for number, column in enumerate(columns)]
        self._message = _Message(class_.DESCRIPTOR, targets, row_fields)
        self._columns = columns
        self._required = frozenset(required)
        self._tells_unset = tells_unset

    def read(self, bodies: Sequence[bytes], start: int, refused: Refusals) -> list[list[Any]]:
        """See `BodyReader`."""
        bodies = [body[start:] for body in bodies] if start else bodies
        try:
            messages: list[Any] = list(map(self._parse, bodies))
        except DecodeError:
            messages = [self._parsed(index, body, refused) for index, body in enumerate(bodies)]
        found: list[list[Any]] = [[None] * len(bodies) for _ in self._columns]
        self._message.read(messages, found, refused)
        return [self._settled(*one, refused) for one in zip(self._columns, found, strict=True)]

    def _settled(self, column: Column, values: list[Any], refused: Refusals) -> list[Any]:
        """The values, null for what is not there, as a column may have them."""
        if column.name in self._required:
            for index, value in enumerate(values):
                if value is None:  # safety: protobuf-key-null
                    refused.setdefault(index, (column, _reason(column, "missing")))
        elif self._tells_unset:  # safety: protobuf-unset
            return [UNSET if value is None else value for value in values]
        return values

    def _parsed(self, index: int, body: bytes, refused: Refusals) -> Any:
        """A message, or None where there is none."""
        try:
            return self._parse(body)
        except DecodeError as error:
            why = str(error).rpartition(": ")[2]
            refused[index] = (None, f"not Protobuf by its schema: {why}")
            return None


class _Message:
    """Reads the fields that targets ask for in messages of one type."""

    def __init__(self, descriptor: Any, targets: Sequence[Target], row_fields: RowFields) -> None:
        names = [field.name for field in descriptor.fields]
        self._problem = row_fields.problem(targets[0].before, names) if targets else ""
        self._leaves: list[tuple[Target, _Leaf]] = []
        self._inner: list[tuple[Any, _Message]] = []
        for name in dict.fromkeys(target.path[0] for target in targets):
            field = descriptor.fields_by_name.get(name)
            if field is not None:  # the schema has it
                self._add(field, [target for target in targets if target.path[0] == name], row_fields)

    def _add(self, field: Any, targets: Sequence[Target], row_fields: RowFields) -> None:
        """Has a field read for the targets whose paths begin with it."""
        inside = [target.inside() for target in targets if len(target.path) > 1]
        self._leaves += [(one, _leaf(field, one.column)) for one in targets if len(one.path) == 1]
        if not inside:
            return
        if field.is_repeated or field.message_type is None:
            self._leaves += [(target, _without_fields(field, target.path[0])) for target in inside]
        else:
            self._inner.append((field, _Message(field.message_type, inside, row_fields)))

    def read(self, messages: Sequence[Any], found: list[list[Any]], refused: Refusals) -> None:
        """Puts the values of each target where its column has them; messages may be None."""
        if self._problem:  # safety: protobuf-needs-a-field
            places = [index for index, message in enumerate(messages) if message is not None]
            refused.update(dict.fromkeys(places, (None, self._problem)))
            return
        for target, leaf in self._leaves:
            found[target.number] = leaf.read(messages, target.column, refused)
        for field, inner in self._inner:
            inner.read(_present(messages, field), found, refused)


@dataclass(frozen=True, slots=True)
class _Leaf:
    """A field that is a column's value."""

    field: Any
    convert: Convert | None
    is_wrapper: bool = False
    convert_all: Callable[[Sequence[Any]], list[Any]] | None = None
    """The same of many values at once; raises `ValueError` where any is refused."""

    def read(self, messages: Sequence[Any], column: Column, refused: Refusals) -> list[Any]:
        """The column's values; what is refused is null."""
        if self.field.has_presence:
            values = _present(messages, self.field)
        elif None in messages:
            values = [None if one is None else getattr(one, self.field.name) for one in messages]
        else:
            values = list(map(attrgetter(self.field.name), messages))
        if is_closed_enum(self.field):
            self._refuse_hidden(messages, column, refused)
        if self.is_wrapper:
            values = [None if value is None else value.value for value in values]
        if self.convert_all is not None:
            with suppress(ValueError):
                return self.convert_all(values)
        return _converted(values, self.convert, column, refused)

    def _refuse_hidden(self, messages: Sequence[Any], column: Column, refused: Refusals) -> None:
        for index, message in enumerate(messages):
            try:
                if message is not None:
                    check_closed_enum(message, self.field)
            except ValueError as error:
                refused.setdefault(index, (column, _reason(column, error)))


def _leaf(field: Any, column: Column) -> _Leaf:
    if column.name == PRESENCE:
        return _Leaf(field, None)
    if column.type.kind is Kind.JSON:
        return _Leaf(field, json_text_of(field))
    try:
        if column.type.fields:
            return _Leaf(field, nested_conversion(field, column.type))
        if field.is_repeated:
            raise ValueError(f"the record has a value of type {described(field)}")  # noqa: TRY301
        if field.message_type is not None and field.message_type.full_name in WRAPPERS:
            return _Leaf(field, conversion(field.message_type.fields_by_name["value"], column.type), True)
        convert = conversion(field, column.type)
        is_time = field.message_type is not None and field.message_type.full_name == TIMESTAMP
        return _Leaf(field, convert, convert_all=timestamps if is_time else None)
    except ValueError as error:
        return _Leaf(field, partial(_refuse, str(error)))


def _without_fields(field: Any, name: str) -> _Leaf:
    why = f"the record has a value of type {described(field)}, in which is no field {name}"
    return _Leaf(field, partial(_refuse, why))


def _present(messages: Sequence[Any], field: Any) -> list[Any]:
    """The field of each message that has it, None of the others."""
    name, get = field.name, attrgetter(field.name)
    if field.message_type is None and not field.default_value and None not in messages:
        # A value that is not the default is there.
        values = map(get, messages)
        return [
            value if value or one.HasField(name) else None
            for value, one in zip(values, messages, strict=True)
        ]
    return [None if one is None or not one.HasField(name) else get(one) for one in messages]


def _converted(values: list[Any], convert: Convert | None, column: Column, refused: Refusals) -> list[Any]:
    if convert is None or (convert is checked_text and bytes not in set(map(type, values))):
        return values
    if convert is finite and isfinite(sum(filter(None, values))):
        return values
    try:
        return [None if value is None else convert(value) for value in values]
    except (ValueError, RecursionError):
        return [_convert_one(index, value, convert, column, refused) for index, value in enumerate(values)]


def _convert_one(index: int, value: Any, convert: Convert, column: Column, refused: Refusals) -> Any:
    try:
        return None if value is None else convert(value)
    except NotUtf8 as error:
        refused[index] = (None, f"not Protobuf by its schema: {error}")
    except (ValueError, RecursionError) as error:
        refused.setdefault(index, (column, _reason(column, error)))
    return None


def _refuse(why: str, _: object) -> object:
    raise ValueError(why)


def _reason(column: Column, why: object) -> str:
    return f"{column.name} ({column.type}): {why}"


PROTOBUF: Final = SchemaFormat("PROTOBUF", indexes_length, 6, MessageReader)

"""A Protobuf schema as the classes of its messages, from its descriptors.

Descriptors are what a compiler makes of a schema's text. `canonical` leaves of them what reading needs, so
that equal schemas are equal bytes, whichever compiler made them. Source: descriptor.proto.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    descriptor_pool,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    message_factory,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.message import DecodeError
from google.type import (
    date_pb2,
    datetime_pb2,
    dayofweek_pb2,
    decimal_pb2,
    interval_pb2,
    latlng_pb2,
    money_pb2,
    month_pb2,
    timeofday_pb2,
)

from thermocline.rules.avro_schema import SchemaInvalid

__all__ = [
    "canonical",
    "comments_of",
    "descriptors_of",
    "message_at",
    "message_called",
    "packed_schema",
    "unpacked_schema",
]

# Numbers of the fields of descriptor.proto, of which the paths of comments are made.
_MESSAGE: Final = 4  # FileDescriptorProto.message_type
_FIELD: Final = 2  # DescriptorProto.field
_NESTED: Final = 3  # DescriptorProto.nested_type


def canonical(descriptors: bytes) -> bytes:
    """The same FileDescriptorSet without what reading does not need: comments, defaults, services, options.

    Raises:
        SchemaInvalid: it is none.
    """
    kept = descriptor_pb2.FileDescriptorSet()
    for file in _files(descriptors):
        one = kept.file.add(name=file.name, package=file.package, dependency=file.dependency)
        one.public_dependency.extend(file.public_dependency)
        for field in ("syntax", "edition"):
            if file.HasField(field):
                setattr(one, field, getattr(file, field))
        _keep_features(file, one)
        for message in file.message_type:
            _keep_message(message, one.message_type.add())
        for enum in file.enum_type:
            _keep_enum(enum, one.enum_type.add())
    content: bytes = kept.SerializeToString(deterministic=True)
    return content


def comments_of(descriptors: bytes) -> dict[str, dict[str, str]]:
    """What the texts of a set of files say of the fields of each message, by the message's full name.

    Nothing where they were compiled without it. Raises `SchemaInvalid`.
    """
    found: dict[str, dict[str, str]] = {}
    for file in _files(descriptors):
        for location in file.source_code_info.location:
            said = (location.leading_comments or location.trailing_comments).strip()
            path = list(location.path)
            if not said or len(path) % 2 or path[-2:-1] != [_FIELD]:
                continue
            message = _message_in(file, path[:-2])
            if message is not None:
                name, of = message
                found.setdefault(name, {})[of.field[path[-1]].name] = said
    return found


def _message_in(file: Any, path: Sequence[int]) -> tuple[str, Any] | None:
    """A message of a file, with its full name, by the path to its declaration."""
    name, of = file.package, None
    for kind, number in zip(path[::2], path[1::2], strict=True):
        if kind != (_MESSAGE if of is None else _NESTED):
            return None
        of = (file.message_type if of is None else of.nested_type)[number]
        name = f"{name}.{of.name}".lstrip(".")
    return None if of is None else (name, of)


def descriptors_of(files: Mapping[str, str]) -> bytes:
    """A set of files, by the names that they are imported by, each a FileDescriptorProto in base64.

    Raises:
        SchemaInvalid: one of them is none.
    """
    found = descriptor_pb2.FileDescriptorSet()
    for name, text in files.items():
        try:
            found.file.add().ParseFromString(base64.b64decode(text, validate=True))
        except (ValueError, DecodeError):
            raise SchemaInvalid(f"{name} has no descriptor in base64") from None
        found.file[-1].name = name
    content: bytes = found.SerializeToString()
    return content


def packed_schema(descriptors: bytes) -> str:
    """Descriptors as text, equal for equal schemas. Raises `SchemaInvalid`."""
    return base64.b64encode(canonical(descriptors)).decode()


def unpacked_schema(text: str) -> bytes:
    """The descriptors that `packed_schema` made a text of. Raises `SchemaInvalid`."""
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        raise SchemaInvalid("it is not a set of descriptors in base64") from None


def message_at(descriptors: bytes, indexes: Sequence[int]) -> Any:
    """The class of a message by its place in the last file of a set, and in the messages around it.

    Raises:
        SchemaInvalid: there is none, or which one is meant is not clear.
    """
    files = _files(descriptors)
    name, messages = files[-1].package, files[-1].message_type
    for number in indexes:
        if number >= len(messages):  # safety: protobuf-message
            raise SchemaInvalid(f"it has no message at {'.'.join(map(str, indexes))}")
        message = messages[number]
        # Some serializers count the entries of maps, which are messages by themselves; others do not.
        if any(one.options.map_entry for one in messages[: number + 1]):
            place = ".".join(map(str, indexes))
            raise SchemaInvalid(f"maps come before its message at {place}: another one may be meant")
        name, messages = f"{name}.{message.name}".lstrip("."), message.nested_type
    return _class_of(files, name)


def message_called(descriptors: bytes, name: str) -> Any:
    """The class of a message by its full name; an empty name means the only one of the last file.

    Raises:
        SchemaInvalid: there is none.
    """
    files = _files(descriptors)
    known = [f"{files[-1].package}.{message.name}".lstrip(".") for message in files[-1].message_type]
    if not name and len(known) != 1:
        raise SchemaInvalid(
            f"which of its messages is meant is not said: {', '.join(known) or 'it has none'}"
        )
    return _class_of(files, name or known[0])


def _class_of(files: Sequence[Any], name: str) -> Any:
    pool = descriptor_pool.DescriptorPool()
    # What is read by its meaning is as it is known, whatever a registry says of it.
    available = {file.name: file for file in (*files, *_WELL_KNOWN)}
    try:
        for file in _in_order(available, files[-1].name, {}):
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    except KeyError:
        raise SchemaInvalid(f"it has no message {name}") from None
    except (TypeError, RecursionError) as error:
        raise SchemaInvalid(str(error).splitlines()[0]) from None


def _in_order(available: dict[str, Any], name: str, seen: dict[str, None]) -> Iterator[Any]:
    """A file after those that it needs. One that is not there is left out: it may say nothing but options."""
    if name in seen:
        return
    seen[name] = None
    file = descriptor_pb2.FileDescriptorProto()
    file.CopyFrom(available[name])
    kept = [one for one in file.dependency if one in available]
    del file.dependency[:], file.public_dependency[:], file.weak_dependency[:], file.option_dependency[:]
    file.dependency.extend(kept)
    file.public_dependency.extend(range(len(kept)))  # so that what was imported publicly is found
    for needed in kept:
        yield from _in_order(available, needed, seen)
    yield file


def _files(descriptors: bytes) -> list[Any]:
    try:
        files = list(descriptor_pb2.FileDescriptorSet.FromString(descriptors).file)
    except DecodeError:
        raise SchemaInvalid("it is not a set of descriptors") from None
    if not files:
        raise SchemaInvalid("it is empty")
    return files


def _keep_message(message: Any, one: Any) -> None:
    one.name = message.name
    for field in message.field:
        kept = one.field.add(name=field.name, number=field.number, label=field.label)
        for name in ("type", "type_name", "oneof_index", "proto3_optional"):
            if field.HasField(name):
                setattr(kept, name, getattr(field, name))
        _keep_features(field, kept)
    for group in message.oneof_decl:
        one.oneof_decl.add(name=group.name)
    for nested in message.nested_type:
        _keep_message(nested, one.nested_type.add())
    for enum in message.enum_type:
        _keep_enum(enum, one.enum_type.add())
    if message.options.map_entry:
        one.options.map_entry = True
    _keep_features(message, one)


def _keep_enum(enum: Any, one: Any) -> None:
    one.name = enum.name
    for value in enum.value:
        one.value.add(name=value.name, number=value.number)
    if enum.options.allow_alias:
        one.options.allow_alias = True
    _keep_features(enum, one)


def _keep_features(of: Any, one: Any) -> None:
    if of.options.HasField("features"):
        one.options.features.CopyFrom(of.options.features)


def _file_of(module: Any) -> Any:
    return descriptor_pb2.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)


def _confluent_decimal() -> Any:
    """Which Confluent's registry knows without being told."""
    file = descriptor_pb2.FileDescriptorProto(
        name="confluent/type/decimal.proto", package="confluent.type", syntax="proto3"
    )
    message = file.message_type.add(name="Decimal")
    types = descriptor_pb2.FieldDescriptorProto
    for number, (name, type_) in enumerate(
        (("value", types.TYPE_BYTES), ("precision", types.TYPE_UINT32), ("scale", types.TYPE_INT32)), start=1
    ):
        message.field.add(name=name, number=number, type=type_, label=types.LABEL_OPTIONAL)
    return file


_WELL_KNOWN: Final = (
    *map(
        _file_of,
        (
            *(any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2),
            *(struct_pb2, timestamp_pb2, type_pb2, wrappers_pb2),
            *(date_pb2, datetime_pb2, dayofweek_pb2, decimal_pb2, interval_pb2, latlng_pb2, money_pb2),
            *(month_pb2, timeofday_pb2),
        ),
    ),
    _confluent_decimal(),
)

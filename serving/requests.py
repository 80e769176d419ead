"""What callers send, checked: parameters, bodies, and the formats that they accept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import parse_qsl

import msgspec

from serving.encode import MEDIA_TYPES
from serving.entity import check_has_key, entity_of
from thermocline.errors import BadParameter, NotAcceptable, RequestMalformed
from thermocline.rules.definition import Kind

if TYPE_CHECKING:
    from starlette.requests import Request

    from serving.cold.reader import Entity
    from thermocline.rules.definition import Column, LiveTable

ENTITIES_MAX: Final = 1_000
# 1,000 entities of 4 kB each, which is more than keys are made of.
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
# Refused records that one answer lists.
LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000
Body = TypeVar("Body", bound=msgspec.Struct)
INTEGER_KINDS: Final = frozenset({Kind.INT, Kind.LONG})


class BatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of ``rows:batch``."""

    entities: list[dict[str, Any]]


class ExtractBody(msgspec.Struct, forbid_unknown_fields=True):
    """The body of ``extract``; no columns means all declared ones."""

    columns: list[str] | None = None


def entity_of_query(definition: LiveTable, query: bytes) -> Entity:
    """The entity that a query string names. Raises as ``entity_of``."""
    return entity_of(definition, _parameters(query))


def limit_of_query(query: bytes) -> int:
    """How many items a query string asks for. Raises `BadParameter`, and as ``_parameters``."""
    parameters = _parameters(query)
    text = parameters.pop("limit", str(LIMIT_DEFAULT))
    if parameters:
        raise BadParameter(name=next(iter(parameters)), problem="it is unknown; there is limit")
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= LIMIT_MAX):
        raise BadParameter(name="limit", problem=f"it is a number from 1 to {LIMIT_MAX}")
    return int(text)


def entities_of_body(definition: LiveTable, content: bytes) -> list[Entity]:
    """The entities of a batch, in their order; integers as JSON numbers, all else as strings.

    Raises:
        NoKey, NotKeyColumn, UnknownColumn: as ``entity_of``.
        BadParameter: as ``entity_of``, or the body is of another form or too long.
    """
    check_has_key(definition)
    body = _decoded(content, BatchBody)
    if len(body.entities) > ENTITIES_MAX:
        raise BadParameter(name="entities", problem=f"{len(body.entities)} of them; at most {ENTITIES_MAX}")
    columns = {column.name: column for column in definition.key_columns}
    return [
        entity_of(definition, {name: _text(columns.get(name), value) for name, value in entity.items()})
        for entity in body.entities
    ]


def columns_of_body(content: bytes) -> list[str] | None:
    """The columns that an extract names; None for all. No body is an empty one. Raises `BadParameter`."""
    return _decoded(content, ExtractBody).columns if content.strip() else None


def format_of(accept: str) -> str:
    """The name of the format that an Accept header prefers. Raises `NotAcceptable`."""
    names = {media_type: name for name, (media_type, _) in MEDIA_TYPES.items()}
    default = next(iter(MEDIA_TYPES))
    for wanted in _by_preference(accept) or ["*/*"]:
        if wanted in ("*/*", "application/*"):
            return default
        if wanted in names:
            return names[wanted]
    raise NotAcceptable(accept=accept, offered=tuple(names))


async def body_of(request: Request) -> bytes:
    """The whole body. Raises `BadParameter` when it is too long."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise BadParameter(name="body", problem=f"it is longer than {BODY_BYTES_MAX} bytes")
        parts.append(part)
    return b"".join(parts)


def _parameters(query: bytes) -> dict[str, str]:
    """The parameters of a query string.

    Raises:
        RequestMalformed: it is not percent-encoded UTF-8.
        BadParameter: one is given twice.
    """
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict")
    except UnicodeDecodeError as error:
        raise RequestMalformed(part="the query string", detail="it is not percent-encoded UTF-8") from error
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        twice = next(name for place, (name, _) in enumerate(pairs) if name in [n for n, _ in pairs[:place]])
        raise BadParameter(name=twice, problem="it is given twice")
    return parameters


def _decoded(content: bytes, form: type[Body]) -> Body:
    try:
        return msgspec.json.decode(content, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        known = ", ".join(field.name for field in msgspec.structs.fields(form))
        raise BadParameter(name="body", problem=f"{error}; it is a JSON object of: {known}") from error


def _text(column: Column | None, value: object) -> str:
    """A JSON value as ``parse_value`` takes it; which type of JSON it is, is checked here."""
    if column is None:
        return ""
    if column.type.kind in INTEGER_KINDS:
        if type(value) is int:
            return str(value)
    elif isinstance(value, str):
        return value
    wanted = "an integer" if column.type.kind in INTEGER_KINDS else "a string"
    raise BadParameter(name=column.name, problem=f"{msgspec.json.encode(value).decode()} is not {wanted}")


def _by_preference(accept: str) -> Sequence[str]:
    """The media types of an Accept header, the most wanted first, without those refused."""
    ranges: list[tuple[float, str]] = []
    for item in accept.split(","):
        media_type, *parameters = (part.strip() for part in item.split(";"))
        settings: Mapping[str, str] = dict(p.split("=", 1) for p in parameters if "=" in p)
        try:
            quality = float(settings.get("q", "1"))
        except ValueError:
            quality = 1.0
        if media_type and quality > 0:
            ranges.append((quality, media_type.lower()))
    return [media_type for _, media_type in sorted(ranges, key=lambda pair: -pair[0])]

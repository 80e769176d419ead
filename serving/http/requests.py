"""Requests, checked: parameters, bodies, and the formats that they accept."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response

from thermocline.errors import BadParameter, BadRequest
from thermocline.serving.read.encode import CODINGS, FORMATS
from thermocline.serving.read.entity import check_has_key, entity_of

if TYPE_CHECKING:
    from starlette.types import Scope

    from thermocline.rules.definition import Column, LiveTable
    from thermocline.serving.cold.reader import Entity

ENTITIES_MAX: Final = 1_000
# 1,000 entities of 4 kB each, which is more than keys are made of.
BODY_BYTES_MAX: Final = 4 * 1024 * 1024
# Refused records that one answer lists.
LIMIT_DEFAULT: Final = 100
LIMIT_MAX: Final = 1_000
# No column takes an integer beyond 64 bits.
_INTEGER_BELOW: Final = 2**64


def _number(text: str) -> int | float:
    """A number with a point or an exponent, which is an integer where nothing stands behind the point.

    So JSON Schema has it: 7.0 is an integer, and the same key as 7.
    """
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("Number out of range")
    if abs(number) < _INTEGER_BELOW:
        with suppress(InvalidOperation):  # an exponent of twenty digits
            exact = Decimal(text)
            return int(exact) if exact == int(exact) else number
    return number


_DECODER: Final = msgspec.json.Decoder(float_hook=_number)


class JsonRequest(Request):
    """Its body is strict JSON: Python's parser also takes NaN and unpaired surrogates."""

    async def json(self) -> Any:
        """The body. Raises `BadParameter`."""
        content = await self.body()
        try:
            return _DECODER.decode(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadParameter(name="body", problem=str(error)) from error


class JsonRoute(APIRoute):
    """Its body is read as a `JsonRequest`."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's own, with another request."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            return await handler(JsonRequest(request.scope, request.receive))

        return handle


def header_of(scope: Scope, name: str) -> str | None:
    """The first header of that name."""
    wanted = name.lower().encode()
    for given, value in scope["headers"]:
        if given == wanted:
            text: str = value.decode("latin-1")
            return text
    return None


def headers_of(scope: Scope, name: str) -> list[str]:
    """All headers of that name, in their order."""
    wanted = name.lower().encode()
    return [value.decode("latin-1") for given, value in scope["headers"] if given == wanted]


def entity_of_query(definition: LiveTable, query: bytes) -> Entity:
    """The entity that a query string names. Raises as ``entity_of``."""
    return entity_of(definition, parameters_of(query))


def entities_of(definition: LiveTable, listed: Sequence[Mapping[str, Any]]) -> list[Entity]:
    """The entities of a batch, in their order; integers as JSON numbers, all else as strings.

    Raises:
        BadParameter: as ``entity_of``.
    """
    check_has_key(definition)
    columns = {column.name: column for column in definition.key_columns}
    return [
        entity_of(definition, {name: _text(columns.get(name), value) for name, value in entity.items()})
        for entity in listed
    ]


def format_of(accept: str) -> str:
    """The name of the format that an Accept header prefers. Raises `BadRequest`."""
    names = {one.media_type: name for name, one in FORMATS.items()}
    default = next(iter(FORMATS))
    families = {"*/*": default, "application/*": default, "text/*": "csv"}
    for wanted in _by_preference(accept) or ["*/*"]:
        found = families.get(wanted) or names.get(wanted)
        if found is not None:
            return found
    raise BadRequest.not_acceptable(accept, tuple(names))


def coding_of(accept_encoding: str, format_name: str) -> str | None:
    """How a stream is compressed by what an Accept-Encoding header prefers; None: it is not.

    Only lines of text are. What is not named isn't asked for, so ``*`` asks for nothing.
    """
    if not FORMATS[format_name].is_text:
        return None
    for wanted in _by_preference(accept_encoding):
        if wanted == "identity":
            return None
        if wanted in CODINGS:
            return wanted
    return None


def parameters_of(query: bytes) -> dict[str, str]:
    """The parameters of a query string.

    Raises:
        BadParameter: it is not percent-encoded UTF-8, or a parameter is given twice.
    """
    try:
        pairs = _pairs(query.decode("ascii"))
    except UnicodeDecodeError as error:
        problem = "it is not percent-encoded UTF-8; binary key columns are given in base64"
        raise BadParameter(name="the query string", problem=problem) from error
    parameters = dict(pairs)
    if len(parameters) < len(pairs):
        seen = Counter(name for name, _ in pairs)  # in linear time: a query may be as long as a caller likes
        twice = next(name for name, times in seen.items() if times > 1)
        raise BadParameter(name=twice, problem="it is given twice")
    return parameters


def _pairs(query: str) -> list[tuple[str, str]]:
    if "%" in query or "+" in query:
        return parse_qsl(query, keep_blank_values=True, errors="strict")  # safety: key-is-utf-8
    # What that would give, in a third of the time: there is nothing to unquote.
    parts = [pair.partition("=") for pair in query.split("&") if pair]
    return [(name, value) for name, _, value in parts]


def _text(column: Column | None, value: object) -> str:
    """A JSON value as ``parse_value`` takes it; which type of JSON it is, is checked here."""
    if column is None:
        return ""
    if column.type.python is int:
        if type(value) is int:
            return str(value)
    elif isinstance(value, str):
        return value
    wanted = "an integer" if column.type.python is int else "a string"
    raise BadParameter(name=column.name, problem=f"{msgspec.json.encode(value).decode()} is not {wanted}")


def _by_preference(accept: str) -> Sequence[str]:
    """What an Accept header lists, the most wanted first, without what it refuses."""
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

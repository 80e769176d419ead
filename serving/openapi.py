"""The OpenAPI document: what FastAPI says of the endpoints, for each table with its own columns."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from fastapi.openapi.utils import get_openapi

from serving.encode import PROBLEM_TYPE
from serving.models import Problem
from thermocline.errors import (
    BadParameter,
    InternalError,
    MethodNotAllowed,
    NotReady,
    ReadAfterTimeout,
    UnknownTable,
)
from thermocline.rules.definition import PROVENANCE
from thermocline.rules.nested_types import nullable_schema

if TYPE_CHECKING:
    from fastapi import FastAPI

    from thermocline.errors import ThermoclineError
    from thermocline.rules.definition import LiveTable

Document = dict[str, Any]

ANSWERING: Final = (UnknownTable, BadParameter, NotReady, ReadAfterTimeout)
"""The errors of every read of a table."""
_EVERYWHERE: Final = (MethodNotAllowed, InternalError)
_ROWS, _BATCH, _EXTRACT = (f"/v1/tables/{{table}}/{what}" for what in ("rows", "rows:batch", "extract"))


def problems(*errors: type[ThermoclineError]) -> dict[int | str, Document]:
    """The answers by status that are errors: these, and those of every endpoint."""
    codes: dict[int, list[str]] = {}
    every: tuple[type[ThermoclineError], ...] = (*errors, *_EVERYWHERE)
    for error in every:
        codes.setdefault(error.http_status, []).append(error.code)
    by_status = sorted(codes.items())
    return {status: {"description": ", ".join(some), "model": Problem} for status, some in by_status}


def described(api: FastAPI, definitions: Mapping[str, LiveTable]) -> Document:
    """What ``/openapi.json`` answers: each table has paths of its own, with its columns and their types."""
    document = get_openapi(
        title=api.title, version=api.version, description=api.description, routes=api.routes
    )
    paths: Document = {}
    for path, operations in document["paths"].items():
        if "{table}" not in path:
            paths[path] = operations
            continue
        for name, definition in definitions.items():
            if definition.has_key or path not in (_ROWS, _BATCH):
                paths[path.replace("{table}", name)] = {
                    method: _of_table(operation, path, name, definition)
                    for method, operation in operations.items()
                }
    for operations in paths.values():
        for operation in operations.values():
            _name_problems(operation["responses"])
    return {**document, "paths": paths}


def _of_table(generic: Document, path: str, name: str, definition: LiveTable) -> Document:
    """An endpoint as one table has it."""
    operation = copy.deepcopy(generic)
    operation["operationId"] += f"_{name}"
    operation["summary"] = generic["summary"].replace("{table}", name)
    operation["tags"] = [name]
    operation["parameters"] = [one for one in generic.get("parameters", ()) if one["name"] != "table"]
    if path == _ROWS:
        operation["parameters"] = [*_key_parameters(definition), *operation["parameters"]]
        _specialise(operation["responses"]["200"], {"rows": _rows(definition)})
    if path == _BATCH:
        results = {"type": "array", "items": _object({"rows": _rows(definition)})}
        _specialise(operation["responses"]["200"], {"results": results})
        entity = {**_object(_keys(definition)), "required": list(definition.entity)}
        _specialise(operation["requestBody"], {"entities": {"type": "array", "items": entity}})
    if path == _EXTRACT:
        names = [*(column.name for column in definition.columns), *PROVENANCE]
        columns = {"type": ["array", "null"], "minItems": 1, "uniqueItems": True, "items": {"enum": names}}
        _specialise(operation["requestBody"], {"columns": columns})
    return operation


def _specialise(content: Document, properties: Document) -> None:
    """Beside what FastAPI says of a JSON body, what it is in this table."""
    body = content["content"]["application/json"]
    body["schema"] = {"allOf": [body["schema"], {"type": "object", "properties": properties}]}


def _key_parameters(definition: LiveTable) -> list[Document]:
    return [
        {"name": name, "in": "query", "required": name in definition.entity, "schema": schema}
        for name, schema in _keys(definition).items()
    ]


def _keys(definition: LiveTable) -> Document:
    return {column.name: column.type.json_schema for column in definition.key_columns}


def _rows(definition: LiveTable) -> Document:
    keys = _keys(definition)
    values = {column.name: nullable_schema(column.type) for column in definition.value_columns}
    row = {column.name: {**values, **keys}[column.name] for column in definition.columns}
    return {"type": "array", "items": {**_object(row), "required": list(row)}}


def _object(properties: Document) -> Document:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _name_problems(responses: Document) -> None:
    for status, response in responses.items():
        if int(status) >= 400:
            response["content"] = {PROBLEM_TYPE: response["content"]["application/json"]}

"""The OpenAPI document of a server, made from the definitions of its tables.

Each table gets its own paths, so that the parameters have their real names and types.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from serving.encode import MEDIA_TYPES
from serving.requests import ENTITIES_MAX, LIMIT_DEFAULT, LIMIT_MAX
from thermocline.errors import (
    BadParameter,
    InternalError,
    MethodNotAllowed,
    NotAcceptable,
    NotKeyColumn,
    NotReady,
    ReadAfterTimeout,
    RequestMalformed,
    RowNotFound,
    UnknownColumn,
    UnknownTable,
)
from thermocline.rules.definition import PROVENANCE, Kind

if TYPE_CHECKING:
    from thermocline.errors import ThermoclineError
    from thermocline.rules.definition import Column, LiveTable

Document = dict[str, Any]

_SCHEMAS: Final[dict[Kind, Document]] = {
    Kind.INT: {"type": "integer", "format": "int32"},
    Kind.LONG: {"type": "integer", "format": "int64"},
    Kind.STRING: {"type": "string"},
    Kind.DOUBLE: {"type": "number", "format": "double"},
    Kind.DECIMAL: {"type": "string", "format": "decimal"},
    Kind.BOOLEAN: {"type": "boolean"},
    Kind.DATE: {"type": "string", "format": "date"},
    Kind.TIMESTAMPTZ: {"type": "string", "format": "date-time"},
    Kind.UUID: {"type": "string", "format": "uuid"},
    Kind.BINARY: {"type": "string", "contentEncoding": "base64"},
}
_EVERYWHERE: Final = (MethodNotAllowed, InternalError)
_ANSWERING: Final = (
    UnknownTable,
    BadParameter,
    UnknownColumn,
    NotReady,
    ReadAfterTimeout,
    *_EVERYWHERE,
)


def openapi_document(definitions: Mapping[str, LiveTable], version: str) -> Document:
    """What ``/openapi.json`` answers."""
    paths: Document = {}
    for name, definition in definitions.items():
        paths[f"/v1/tables/{name}"] = {"get": _simple(f"The definition of {name}", "table", UnknownTable)}
        if definition.has_key:
            paths[f"/v1/tables/{name}/rows"] = {"get": _rows(definition)}
            paths[f"/v1/tables/{name}/rows:batch"] = {"post": _batch(definition)}
        paths[f"/v1/tables/{name}/refused"] = {"get": _refused(definition)}
        paths[f"/v1/tables/{name}/extract"] = {"post": _extract(definition)}
    paths["/v1/tables"] = {"get": _simple("The names of the tables served here", "table")}
    paths["/livez"] = {"get": _simple("Whether the process answers", "operation")}
    paths["/readyz"] = {"get": _simple("Whether every table can be asked now", "operation", NotReady)}
    paths["/status"] = {"get": _simple("How fresh each table is, and what its tailer does", "operation")}
    paths["/metrics"] = {"get": _metrics()}
    paths["/version"] = {"get": _simple("The release", "operation")}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Thermocline", "version": version, "description": _DESCRIPTION},
        "paths": paths,
        "components": {
            "schemas": {"Problem": _PROBLEM, "ReadPoint": _READ_POINT, "Refused": _REFUSED_RECORD}
        },
    }


_DESCRIPTION: Final = (
    "Iceberg tables as of now: each answer is one snapshot, with what the table does not contain yet laid "
    "over it, and says which. Every error is an application/problem+json."
)
_OFFSETS: Final[Document] = {
    "type": "object",
    "description": "topic → partition → next offset",
    "additionalProperties": {
        "type": "object",
        "additionalProperties": {"type": "integer", "format": "int64"},
    },
}
_READ_POINT: Final[Document] = {
    "type": "object",
    "description": "What an answer reflects: the snapshot, and the records of each partition in [seam, end).",
    "required": ["snapshot_id", "seam", "end"],
    "properties": {"snapshot_id": {"type": "string"}, "seam": _OFFSETS, "end": _OFFSETS},
}
_PROBLEM: Final[Document] = {
    "type": "object",
    "required": ["type", "title", "status", "detail", "instance", "code", "retryable"],
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "instance": {"type": "string"},
        "code": {"type": "string", "description": "Stable; `thermocline explain CODE` tells more."},
        "state": {"type": "string"},
        "next": {"type": "string"},
        "retryable": {"type": "boolean"},
    },
}
_FRESHNESS: Final[Document] = {
    "read_point": {"$ref": "#/components/schemas/ReadPoint"},
    "age_seconds": {
        "type": ["number", "null"],
        "description": "Since every partition was last known to be read up to its end; null if it never was.",
    },
    "stale": {"type": "boolean"},
}
_REFUSED: Final[Document] = {
    "type": "array",
    "description": (
        "Records that the table can't take, the newest of a partition first: those up to "
        "Thermocline-Read-After; without it, and where there are no rows, those that are not committed yet. "
        "Absent where there are none."
    ),
    "items": {"$ref": "#/components/schemas/Refused"},
}
_REFUSED_RECORD: Final[Document] = {
    "type": "object",
    "required": ["topic", "partition", "offset", "stage", "reason"],
    "properties": {
        "topic": {"type": "string"},
        "partition": {"type": "integer", "format": "int32"},
        "offset": {"type": "integer", "format": "int64"},
        "stage": {"enum": ["key", "decode", "contract"]},
        "reason": {"type": "string"},
    },
}
_READ_AFTER: Final[Document] = {
    "name": "Thermocline-Read-After",
    "in": "header",
    "required": False,
    "description": "topic/partition@offset, ...: waits, within a bound, until these records are included.",
    "schema": {"type": "string"},
}
_READ_HEADERS: Final[Document] = {
    "Thermocline-Read-Point": {"description": "JSON, a ReadPoint", "schema": {"type": "string"}},
    "Thermocline-Age-Seconds": {"schema": {"type": "string"}},
    "Thermocline-Stale": {"schema": {"type": "boolean"}},
    "Thermocline-Refused": {
        "description": (
            "topic/partition@offset, ...: records up to Thermocline-Read-After that the table can't take; "
            "absent where there are none."
        ),
        "schema": {"type": "string"},
    },
}


def _rows(definition: LiveTable) -> Document:
    parameters = [_parameter(column, column.name in definition.entity) for column in definition.key_columns]
    answer = _answer({"rows": _array(_row(definition))})
    return {
        "summary": f"The rows of one entity of {definition.name}, or one row",
        "description": (
            "The entity's columns, and optionally the key columns that follow them. An entity without rows "
            "is an empty list; a whole key without a row is a 404, which says where it was read, too."
        ),
        "tags": [definition.name],
        "parameters": [*parameters, _READ_AFTER],
        "responses": {
            "200": _json(answer),
            **_errors(RowNotFound, RequestMalformed, NotKeyColumn, *_ANSWERING),
        },
    }


def _batch(definition: LiveTable) -> Document:
    entity = {
        "type": "object",
        "required": list(definition.entity),
        "additionalProperties": False,
        "properties": {column.name: _SCHEMAS[column.type.kind] for column in definition.key_columns},
    }
    body = _object({"entities": {"type": "array", "maxItems": ENTITIES_MAX, "items": entity}})
    result = _object({"rows": _array(_row(definition))})
    answer = _answer({"results": _array(result)})
    return {
        "summary": f"The rows of several entities of {definition.name}, at one read point",
        "tags": [definition.name],
        "parameters": [_READ_AFTER],
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": _json(answer), **_errors(NotKeyColumn, *_ANSWERING)},
    }


def _refused(definition: LiveTable) -> Document:
    limit = {"type": "integer", "minimum": 1, "maximum": LIMIT_MAX, "default": LIMIT_DEFAULT}
    listed = _array({"$ref": "#/components/schemas/Refused"})
    more = {"type": "boolean", "description": "Whether there are more than the limit."}
    answer = _object({"table": {"type": "string"}, "refused": listed, "more": more, **_FRESHNESS})
    return {
        "summary": f"The records that {definition.name} can't take, and that are not committed yet",
        "description": "The newest of a partition first. Once they are committed, they are in quarantine.",
        "tags": [definition.name],
        "parameters": [{"name": "limit", "in": "query", "required": False, "schema": limit}],
        "responses": {
            "200": _json(answer),
            **_errors(UnknownTable, RequestMalformed, BadParameter, NotReady, *_EVERYWHERE),
        },
    }


def _answer(content: Document) -> Document:
    """An object as all answers are: how fresh it is, and what was refused where something was."""
    answer = _object({"table": {"type": "string"}, **content, **_FRESHNESS})
    answer["properties"]["refused"] = _REFUSED
    return answer


def _extract(definition: LiveTable) -> Document:
    names = [*(column.name for column in definition.columns), *PROVENANCE]
    columns = {"type": ["array", "null"], "minItems": 1, "uniqueItems": True, "items": {"enum": names}}
    body = {"type": "object", "additionalProperties": False, "properties": {"columns": columns}}
    streams = {
        media_type: {"schema": {"type": "string", "format": "binary"}}
        for media_type, _ in MEDIA_TYPES.values()
    }
    return {
        "summary": f"All rows of {definition.name}, at one read point",
        "description": "A stream as Accept prefers it. One that breaks off lacks its end mark or footer.",
        "tags": [definition.name],
        "parameters": [_READ_AFTER],
        "requestBody": {"required": False, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": {"description": "The rows", "headers": _READ_HEADERS, "content": streams},
            **_errors(NotAcceptable, *_ANSWERING),
        },
    }


def _metrics() -> Document:
    content = {"text/plain": {"schema": {"type": "string"}}}
    return {
        "summary": "Prometheus metrics, over all workers",
        "tags": ["operation"],
        "responses": {"200": {"description": "Text format", "content": content}, **_errors(*_EVERYWHERE)},
    }


def _simple(summary: str, tag: str, *errors: type[ThermoclineError]) -> Document:
    responses = {"200": _json({"type": "object"}), **_errors(*errors, *_EVERYWHERE)}
    return {"summary": summary, "tags": [tag], "responses": responses}


def _parameter(column: Column, required: bool) -> Document:
    return {"name": column.name, "in": "query", "required": required, "schema": _SCHEMAS[column.type.kind]}


def _row(definition: LiveTable) -> Document:
    return _object({column.name: _value(definition, column) for column in definition.columns})


def _value(definition: LiveTable, column: Column) -> Document:
    schema = _SCHEMAS[column.type.kind]
    return schema if column.name in definition.key else {**schema, "type": [schema["type"], "null"]}


def _object(properties: Document) -> Document:
    return {"type": "object", "required": list(properties), "properties": properties}


def _array(items: Document) -> Document:
    return {"type": "array", "items": items}


def _json(schema: Document) -> Document:
    return {"description": "The answer", "content": {"application/json": {"schema": schema}}}


def _errors(*errors: type[ThermoclineError]) -> Document:
    """One response for each HTTP status, naming the codes it may carry."""
    by_status: dict[int, list[str]] = {}
    for error in errors:
        by_status.setdefault(error.http_status, []).append(error.code)
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        str(status): {"description": ", ".join(codes), "content": problem}
        for status, codes in sorted(by_status.items())
    }

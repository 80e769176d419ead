"""The OpenAPI document: what FastAPI says of the endpoints, for each table with its own columns."""

from __future__ import annotations

import copy
from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain, count
from typing import TYPE_CHECKING, Any, Final

import msgspec
from fastapi.openapi.utils import get_openapi

from thermocline.bounded import Bounded
from thermocline.errors import (
    AuditUnavailable,
    BadParameter,
    BadRequest,
    InternalError,
    NotPermitted,
    NotReady,
    ReadAfterTimeout,
    TooManyRequests,
    Unauthenticated,
    UnknownTable,
)
from thermocline.rules.definition import PROVENANCE
from thermocline.rules.nested_types import nullable_schema
from thermocline.serving.http.models import Problem
from thermocline.serving.http.requests import ENTITIES_MAX
from thermocline.serving.read.caller import EVERYONE, Action
from thermocline.serving.read.encode import PROBLEM_TYPE
from thermocline.serving.read.sight import sight_of

if TYPE_CHECKING:
    from fastapi import FastAPI
    from fastapi.routing import APIRoute

    from thermocline.errors import ThermoclineError
    from thermocline.rules.definition import Column, LiveTable
    from thermocline.serving.read.caller import Caller, Grant

Document = dict[str, Any]

OF_A_TABLE: Final = (UnknownTable, NotPermitted, AuditUnavailable)
"""The errors of every request for a table."""
ANSWERING: Final = (*OF_A_TABLE, BadParameter, NotReady, ReadAfterTimeout)
"""The errors of every read of a table."""
TAKING_A_BODY: Final = (413, 415)
"""The statuses of a bad request that every request with a body may be."""
_EXPLAINED: Final = "/v1/tables/{table}/rows/explained"
_SCHEMAS: Final = "#/components/schemas/"
_ROWS, _BATCH, _EXTRACT, _JOBS, _REFUSED = (
    f"/v1/tables/{{table}}/{what}" for what in ("rows", "rows:batch", "extract", "extracts", "refused")
)
_METRICS, _STATUS = "/metrics", "/status"
_ACTIONS: Final[Mapping[str, Iterable[Action]]] = {
    _ROWS: (Action.LOOKUP,),
    _EXPLAINED: (Action.LOOKUP,),
    _BATCH: (Action.LOOKUP,),
    _EXTRACT: (Action.EXTRACT, Action.CHANGES),
    _REFUSED: (Action.ADMIN,),
}
_WITH_COLUMNS: Final = {_EXTRACT: "ExtractBody", _JOBS: "ExtractJobCreate"}
"""The bodies that name columns, by path."""
_DOCUMENTS_BYTES_MAX: Final = 16 << 20
"""Of a table, a document takes some tens of kilobytes."""


def problems(*errors: type[ThermoclineError], bad: Sequence[int] = ()) -> dict[int | str, Document]:
    """The answers by status that are errors: these, those of every endpoint, and bad requests."""
    codes: dict[int, list[str]] = {status: [BadRequest.code] for status in (400, *bad, 405, 431)}
    every: tuple[type[ThermoclineError], ...] = (*errors, Unauthenticated, TooManyRequests, InternalError)
    for error in every:
        codes.setdefault(error.http_status, []).append(error.code)
    by_status = sorted(codes.items())
    return {status: {"description": ", ".join(some), "model": Problem} for status, some in by_status}


def described(
    api: FastAPI,
    definitions: Mapping[str, LiveTable],
    caller: Caller = EVERYONE,
    unlisted: Container[str] = (),
) -> Document:
    """What ``/openapi.json`` answers: each table has paths of its own, with its columns and their types.

    It has those by which the caller may do anything; of the server's own, all but the ``unlisted``.

    Generators of clients name functions and classes by operation ids, tags and schemas; so these are short
    and unique, and what is inside a schema has no title.
    """
    document = get_openapi(
        title=api.title,
        version=api.version,
        description=api.description,
        routes=api.routes,
        servers=[{"url": "/", "description": "The server that this document comes from"}],
    )
    schemas: Document = document["components"]["schemas"]
    labels = _labels(definitions)
    paths: Document = {}
    for path, operations in document["paths"].items():
        if path in unlisted:
            continue
        if "{table}" not in path:
            paths[path] = {method: {"tags": ["server"], **one} for method, one in operations.items()}
            continue
        for name, definition in definitions.items():
            may_ask = any(caller.may(action, name) for action in _actions_of(path))
            if may_ask and (definition.has_key or path not in (_ROWS, _EXPLAINED, _BATCH)):
                paths[path.replace("{table}", name)] = {
                    method: _of_table(operation, path, labels[name], definition, schemas, caller)
                    for method, operation in operations.items()
                }
    _name_problems(paths)
    used = _used(paths, schemas)
    components = {name: {**_untitled(schemas[name]), "title": name} for name in sorted(used)}
    return {**document, "paths": _untitled(paths), "components": {"schemas": components}}


class Documents:
    """What each caller is told of the endpoints: those of their tables alone, with the columns they see."""

    def __init__(self, api: FastAPI, definitions: Mapping[str, LiveTable]) -> None:
        self._api = api
        self._definitions = definitions
        self._kept: Bounded[tuple[tuple[str, Grant], ...], bytes] = Bounded(_DOCUMENTS_BYTES_MAX)

    def of(self, caller: Caller) -> bytes:
        """JSON."""
        grants = {name: caller.grant(name) for name in self._definitions if caller.knows(name)}
        key = tuple(grants.items())
        found = self._kept.get(key)
        return self._made(caller, grants, key) if found is None else found

    def _made(self, caller: Caller, grants: Mapping[str, Grant], key: tuple[tuple[str, Grant], ...]) -> bytes:
        seen = {}
        for name in grants:
            with suppress(NotPermitted):  # a grant that does not fit the table
                seen[name] = sight_of(caller, self._definitions[name]).definition
        document = msgspec.json.encode(described(self._api, seen, caller, self._unlisted(caller)))
        return self._kept.put(key, document, len(document))

    def _unlisted(self, caller: Caller) -> frozenset[str]:
        """What is for those who operate tables: the status of these, and what is said of all at once."""
        operated = [caller.may(Action.ADMIN, name) for name in self._definitions]
        if all(operated):
            return frozenset()
        return frozenset({_METRICS} if any(operated) else {_METRICS, _STATUS})


def operation_id(route: APIRoute) -> str:
    """What a client calls an endpoint."""
    return route.name


def _actions_of(path: str) -> Iterable[Action]:
    """Of which one is needed for a path of a table."""
    if path.startswith(_JOBS):
        return (Action.JOBS,)
    return _ACTIONS.get(path, Action)


def _labels(names: Iterable[str]) -> dict[str, str]:
    """What schemas and operations of tables are called by: unique also by letters and digits alone."""
    labels: dict[str, str] = {}
    seen = set[str]()
    for name in names:
        candidates = chain([name], (f"{name}_{number}" for number in count(2)))
        labels[name] = next(one for one in candidates if _bare(one) not in seen)
        seen.add(_bare(labels[name]))
    return labels


def _bare(name: str) -> str:
    return "".join(filter(str.isalnum, name)).lower()


def _of_table(
    generic: Document, path: str, label: str, definition: LiveTable, schemas: Document, caller: Caller
) -> Document:
    """An endpoint as one table has it. What its bodies are in this table is added to the schemas."""
    name = definition.name
    operation = copy.deepcopy(generic)
    operation["operationId"] += f"_{label}"
    operation["summary"] = generic["summary"].replace("{table}", name)
    operation["tags"] = [name]
    parameters = [one for one in operation.get("parameters", ()) if one["name"] != "table"]
    operation["parameters"] = [{**one, "schema": _given(one["schema"])} for one in parameters]

    def specialise(content: Document, base: str, properties: Document) -> None:
        schemas[f"{label}_{base}"] = _with(schemas[base], properties)
        media = content["content"]["application/json"]
        own = _reference(f"{label}_{base}")
        media["schema"] = {"anyOf": [own, {"type": "null"}]} if "anyOf" in media["schema"] else own

    rows = {"type": "array", "items": _reference(f"{label}_Row")}
    if path in (_ROWS, _EXPLAINED):
        operation["parameters"] = [*_key_parameters(definition), *operation["parameters"]]
        schemas[f"{label}_Row"] = _row(definition)
    if path == _ROWS:
        specialise(operation["responses"]["200"], "RowsAnswer", {"rows": rows})
    if path == _EXPLAINED:
        row = {"anyOf": [_reference(f"{label}_Row"), {"type": "null"}]}
        schemas[f"{label}_ExplainedRow"] = _with(schemas["ExplainedRow"], {"row": row, "replaced": row})
        rows = {"type": "array", "items": _reference(f"{label}_ExplainedRow")}
        specialise(operation["responses"]["200"], "ExplainedAnswer", {"rows": rows})
    if path == _BATCH:
        schemas[f"{label}_EntityRows"] = _with(schemas["EntityRows"], {"rows": rows})
        results = {"type": "array", "items": _reference(f"{label}_EntityRows")}
        specialise(operation["responses"]["200"], "BatchAnswer", {"results": results})
        schemas[f"{label}_Entity"] = {**_object(_keys(definition)), "required": list(definition.entity)}
        entities = {"type": "array", "items": _reference(f"{label}_Entity"), "maxItems": ENTITIES_MAX}
        specialise(operation["requestBody"], "BatchBody", {"entities": entities})
    if "requestBody" in operation and path in _WITH_COLUMNS:
        names = [*(column.name for column in definition.columns), *PROVENANCE]
        items = {"type": "string", "enum": names}
        columns = {"type": ["array", "null"], "minItems": 1, "uniqueItems": True, "items": items}
        base = _WITH_COLUMNS[path]
        where = {**schemas[base]["properties"]["where"], "examples": [f'"{names[0]}" IS NOT NULL']}
        specialise(operation["requestBody"], base, {"columns": columns, "where": where})
    if path == _EXTRACT:
        _allow(operation["requestBody"], schemas[f"{label}_ExtractBody"], caller, name)
    return operation


def _allow(body: Document, schema: Document, caller: Caller, table: str) -> None:
    """Leaves the caller of an extract, of all that its body may ask for, what they may read."""
    if not caller.may(Action.CHANGES, table):
        del schema["properties"]["since"]
    elif not caller.may(Action.EXTRACT, table):
        since = schema["properties"]["since"]
        schema["properties"]["since"] = _given(since)
        schema["required"] = ["since"]
        body["required"] = True
        media = body["content"]["application/json"]
        media["schema"] = _given(media["schema"])


def _given(schema: Document) -> Document:
    """The schema of a parameter that is given: left out, it is null in Python alone."""
    match schema:
        case {"anyOf": [dict(given), {"type": "null"}]}:
            return {**given, **{name: value for name, value in schema.items() if name != "anyOf"}}
    return schema


def _with(schema: Document, properties: Document) -> Document:
    """The schema of an object, but for some properties, which it has otherwise."""
    own = {
        name: {**({"description": base["description"]} if "description" in base else {}), **properties[name]}
        if name in properties
        else base
        for name, base in schema["properties"].items()
    }
    return {**schema, "properties": own}


def _reference(name: str) -> Document:
    return {"$ref": f"{_SCHEMAS}{name}"}


def _used(paths: Document, schemas: Document) -> set[str]:
    """The schemas that the paths refer to, themselves or by others."""
    used = set[str]()
    new = _references(paths)
    while new:
        used |= new
        new = {other for name in new for other in _references(schemas[name])} - used
    return used


def _references(part: Any) -> set[str]:
    match part:
        case {"$ref": str(reference)}:
            return {reference.removeprefix(_SCHEMAS)}
        case dict():
            return set().union(*map(_references, part.values()))
        case list():
            return set().union(*map(_references, part))
    return set()


def _untitled(part: Any) -> Any:
    """The same without titles: two classes of the same name would be made of two things of the same title."""
    match part:
        case dict():
            return {
                name: _untitled(value)
                for name, value in part.items()
                if not (name == "title" and isinstance(value, str))
            }
        case list():
            return [_untitled(one) for one in part]
    return part


def _key_parameters(definition: LiveTable) -> list[Document]:
    return [
        {"name": name, "in": "query", "required": name in definition.entity, "schema": schema}
        for name, schema in _keys(definition).items()
    ]


def _keys(definition: LiveTable) -> Document:
    return {column.name: _described(column, column.type.json_schema) for column in definition.key_columns}


def _described(column: Column, schema: Document) -> Document:
    return {**schema, "description": column.comment} if column.comment else schema


def _row(definition: LiveTable) -> Document:
    keys = _keys(definition)
    values = {
        column.name: _described(column, nullable_schema(column.type)) for column in definition.value_columns
    }
    row = {column.name: {**values, **keys}[column.name] for column in definition.columns}
    return {**_object(row), "required": list(row)}


def _object(properties: Document) -> Document:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def _name_problems(paths: Document) -> None:
    """Errors are problems. FastAPI's own, of parameters that take any text, can't happen."""
    for operation in chain.from_iterable(operations.values() for operations in paths.values()):
        responses = operation["responses"]
        for status, response in list(responses.items()):
            if _references(response) == {"HTTPValidationError"}:
                del responses[status]
            elif int(status) >= 400:
                response["content"] = {PROBLEM_TYPE: response["content"]["application/json"]}

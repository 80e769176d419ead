"""A read-only Iceberg REST catalog whose tables are as of now, below ``/iceberg``.

Source: the Iceberg REST catalog specification (open-api/rest-catalog-open-api.yaml).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import msgspec
from fastapi import APIRouter, Depends, Header, Request
from fastapi.routing import APIRoute
from starlette.responses import Response

from thermocline.errors import ThermoclineError
from thermocline.rules.read_point import HEADER as READ_AFTER
from thermocline.serving.http.catalog_problems import PREFIX, catalog_error, catalog_problem
from thermocline.serving.http.dependencies import Asking, Noting, OfWorker
from thermocline.serving.http.noted import noted_in
from thermocline.serving.http.problems import IS_HEAD
from thermocline.serving.live.channel import Asked
from thermocline.serving.read.caller import Action

if TYPE_CHECKING:
    from thermocline.serving.read.tables import ServedTable, Tables

__all__ = ["PREFIX", "live_catalog"]

JSON: Final = "application/json"
NOT_MODIFIED: Final = 304
_SEPARATOR: Final = "\x1f"
"""Between the parts of a namespace in a path."""
_AGAIN: Final = "@"
"""Between a table's name and that of an earlier load."""
_NAMESPACE: Final = "/v1/{prefix}/namespaces/{namespace}"
_ENDPOINTS: Final = (
    "GET /v1/{prefix}/namespaces",
    f"GET {_NAMESPACE}",
    f"HEAD {_NAMESPACE}",
    f"GET {_NAMESPACE}/tables",
    f"GET {_NAMESPACE}/tables/{{table}}",
    f"HEAD {_NAMESPACE}/tables/{{table}}",
    f"POST {_NAMESPACE}/tables/{{table}}/metrics",
)
"""What there is: engines refuse anything else before they ask for it."""
_READ_ONLY: Final = (
    "live tables are read-only: write to the topic that feeds the table, or to the table in its own catalog"
)


class _Refused(Exception):
    """A request that the catalog refuses, as the specification has errors."""

    def __init__(self, status: int, kind: str, message: str) -> None:
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


class _CatalogRoute(APIRoute):
    """Its errors have the specification's form."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """FastAPI's own, with errors told as engines read them."""
        handler = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                return await handler(request)
            except _Refused as refused:
                return catalog_error(refused.status, refused.kind, refused.message)
            except ThermoclineError as error:
                noted_in(request.scope).outcome = error.code
                return catalog_problem(error)

        return handle


live_catalog = APIRouter(prefix=PREFIX, route_class=_CatalogRoute, include_in_schema=False)


@live_catalog.get("/v1/config")
async def config() -> Response:
    """What there is; and that engines ask for all snapshots.

    With those alone that names refer to, Iceberg's library asks for the others later, is told of the next
    load, and fails since the snapshot that it knows is not among them.
    """
    return _json({"defaults": {}, "overrides": {"snapshot-loading-mode": "all"}, "endpoints": _ENDPOINTS})


@live_catalog.get("/v1/namespaces")
async def namespaces(worker: OfWorker, caller: Asking, parent: str = "") -> Response:
    """The namespaces below another one, or those at the top."""
    above = tuple(parent.split(_SEPARATOR)) if parent else ()
    found = {name for name, _ in _permitted(worker.tables, caller)}
    if above and not any(name[: len(above)] == above for name in found):
        raise _no_namespace(above)
    below = {name[: len(above) + 1] for name in found if name[: len(above)] == above and name != above}
    return _json({"namespaces": sorted(below)})


async def _namespace(worker: OfWorker, caller: Asking, namespace: str) -> tuple[str, ...]:
    """The one that the path names."""
    wanted = tuple(namespace.split(_SEPARATOR))
    if not any(name[: len(wanted)] == wanted for name, _ in _permitted(worker.tables, caller)):
        raise _no_namespace(wanted)
    return wanted


Namespace = Annotated[tuple[str, ...], Depends(_namespace)]


@live_catalog.get("/v1/namespaces/{namespace}")
async def describe_namespace(request: Request, wanted: Namespace) -> Response:
    """A namespace, which says nothing but its name."""
    if IS_HEAD in request.scope:
        return Response(status_code=204)
    return _json({"namespace": wanted, "properties": {}})


@live_catalog.get("/v1/namespaces/{namespace}/tables")
async def tables(worker: OfWorker, caller: Asking, wanted: Namespace) -> Response:
    """The tables of a namespace."""
    names = [_identifier(table)[-1] for name, table in _permitted(worker.tables, caller) if name == wanted]
    return _json({"identifiers": [{"namespace": wanted, "name": name} for name in sorted(names)]})


class _Table(NamedTuple):
    """A table as the path names it: now, or as an earlier ``load`` had it."""

    served: ServedTable
    load: str


async def _table(worker: OfWorker, caller: Asking, noted: Noting, namespace: str, table: str) -> _Table:
    """The one that the path names.

    Without its namespace, too, it is the table that is missing: then Iceberg's library asks for the table
    whose metadata is meant, as in ``app.profiles.snapshots``.
    """
    wanted = tuple(namespace.split(_SEPARATOR))
    own_name, _, load = table.partition(_AGAIN)
    for name, served in _permitted(worker.tables, caller):
        if name == wanted and _identifier(served)[-1] == own_name:
            noted.table = served.name
            caller.check_sees_all(served.name, "read the files of it")
            return _Table(served, load)
    raise _no_table(wanted, table)


LiveTable = Annotated[_Table, Depends(_table)]


@live_catalog.get("/v1/namespaces/{namespace}/tables/{table}")
async def load(
    request: Request,
    worker: OfWorker,
    table: LiveTable,
    if_none_match: Annotated[str, Header()] = "",
    read_after: Annotated[str | None, Header(alias=READ_AFTER)] = None,
) -> Response:
    """A table as of now, or as an earlier load had it."""
    table.served.check_exists()
    if IS_HEAD in request.scope:
        return Response(status_code=204)
    assert worker.live is not None
    wanted = {} if table.load else await worker.read_after(table.served.reader, read_after)
    loaded = await worker.live.ask(Asked(table.served.name, wanted, table.load))
    tag = f'"{loaded.tag}"'
    if tag in (one.strip() for one in if_none_match.split(",")):
        return Response(status_code=NOT_MODIFIED, headers={"ETag": tag})
    return Response(loaded.answer, headers={"ETag": tag}, media_type=JSON)


@live_catalog.post("/v1/namespaces/{namespace}/tables/{table}/metrics")
async def report(_: LiveTable) -> Response:
    """What an engine says of a scan; nobody keeps it."""
    return Response(status_code=204)


@live_catalog.api_route("/{path:path}", methods=["GET", "POST", "PUT", "DELETE", "PATCH"])
async def anything_else(request: Request, path: str) -> Response:
    """Whatever would change something, and what there is not."""
    if request.method == "GET":
        raise _Refused(404, "NoSuchEndpointException", f"the live catalog has no route {path}")
    raise _Refused(403, "ForbiddenException", _READ_ONLY)


def _permitted(tables: Tables, caller: Asking) -> Iterator[tuple[tuple[str, ...], ServedTable]]:
    """The tables that the caller may read this way, each with its namespace."""
    for table in tables:
        if caller.may(Action.CATALOG, table.name):
            yield _identifier(table)[:-1], table


def _identifier(table: ServedTable) -> tuple[str, ...]:
    return tuple(table.definition.identifier.split("."))


def _no_namespace(wanted: tuple[str, ...]) -> _Refused:
    return _Refused(404, "NoSuchNamespaceException", f"Namespace does not exist: {'.'.join(wanted)}")


def _no_table(namespace: tuple[str, ...], table: str) -> _Refused:
    return _Refused(404, "NoSuchTableException", f"Table does not exist: {'.'.join((*namespace, table))}")


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type=JSON)

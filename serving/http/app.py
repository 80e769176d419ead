"""The HTTP API: lookups, batches, extracts, and what operators ask for.

``create_app`` declares the endpoints over a `Worker`; FastAPI reads their parameters and describes them, and
``openapi`` says of each table what its columns are. `Requests` is the only layer in front of the endpoints,
and the lookup of one entity is answered without the framework's objects: they would cost several times the
lookup itself. Where it is known without reading, `LookupProtocol` has answered it before it gets here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from fastapi import APIRouter, FastAPI, Header, Query
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline
from pyiceberg.io.pyarrow import PyArrowFileIO
from starlette.responses import Response

from thermocline import __version__
from thermocline.errors import (
    AuditUnavailable,
    BadParameter,
    HotBytesExceeded,
    NotPermitted,
    NotReady,
    ReadPointGone,
    RowNotFound,
    ServerBusy,
    ThermoclineError,
    UnknownTable,
)
from thermocline.process.clock import SystemClock
from thermocline.process.metrics import CONTENT_TYPE
from thermocline.rules.read_point import HEADER as READ_AFTER
from thermocline.serving.access.audit import rows_in
from thermocline.serving.hot.refused import RefusedRecords
from thermocline.serving.http.dependencies import (
    AdminTable,
    Asking,
    KnownTable,
    LookupTable,
    Noting,
    OfWorker,
    ReadAfter,
)
from thermocline.serving.http.direct import DirectLookups
from thermocline.serving.http.explained import explained
from thermocline.serving.http.extract_response import (
    AGE,
    READ_POINT,
    REFUSED,
    STALE,
    UNLISTED,
    ExtractResponse,
)
from thermocline.serving.http.guard import OPEN, Guard
from thermocline.serving.http.jobs import jobs
from thermocline.serving.http.live_catalog import live_catalog
from thermocline.serving.http.models import (
    BatchAnswer,
    BatchBody,
    ExtractBody,
    HealthAnswer,
    RefusedAnswer,
    RefusedQuery,
    RowsAnswer,
    TableBody,
    TableNames,
    VersionAnswer,
)
from thermocline.serving.http.noted import noted_in
from thermocline.serving.http.open_connections import Bounds
from thermocline.serving.http.openapi import (
    ANSWERING,
    OF_A_TABLE,
    TAKING_A_BODY,
    Documents,
    described,
    operation_id,
    problems,
)
from thermocline.serving.http.problems import CALLER, ROWS_PATH, Requests, rows_headers
from thermocline.serving.http.requests import (
    JsonRoute,
    coding_of,
    entities_of,
    entity_of_query,
    format_of,
    header_of,
)
from thermocline.serving.http.site.lookup import lookups
from thermocline.serving.http.site.routes import assets, pages
from thermocline.serving.http.site.session import Session
from thermocline.serving.http.statuses import not_operated, operates_all, server_status, shared_status
from thermocline.serving.http.worker import Worker
from thermocline.serving.read.answer import answer_json, batch_json, refused_json
from thermocline.serving.read.caller import ANY_TABLE, Action, Caller
from thermocline.serving.read.encode import FORMATS
from thermocline.serving.read.selection import Selection
from thermocline.serving.read.tables import ServedTable, Tables
from thermocline.serving.read.wanted import Wanted
from thermocline.serving.status.document import ServerStatus
from thermocline.serving.store import measures

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from thermocline.serving.live.channel import LiveChannel
    from thermocline.settings import ServingSettings

JSON: Final = "application/json"
# A worker that starts loads its tables' indexes in seconds. One that takes longer listens, and says why; and
# as it stops only once it has started, this is shorter than the time that it has for stopping.
FIRST_REFRESH_SECONDS_MAX: Final = 8.0

_DESCRIPTION: Final = (
    "Serves Iceberg tables as of now: each answer combines one snapshot of a table with the records that the "
    "table does not contain yet, and names its read point. Every error is an application/problem+json."
)
_BINARY: Final = {"type": "string", "format": "binary"}
_EXTRACT_HEADERS: Final = {
    "Content-Encoding": {
        "description": "gzip or zstd, if Accept-Encoding asks for it; for CSV and JSON lines only",
        "schema": {"type": "string"},
    },
    READ_POINT: {"description": "The read point: a ReadPointBody as JSON", "schema": {"type": "string"}},
    AGE: {"schema": {"type": "string"}},
    STALE: {"schema": {"type": "boolean"}},
    REFUSED: {
        "description": f"topic/partition@offset, ...: records up to {READ_AFTER} that the table can't take; "
        "absent if there are none.",
        "schema": {"type": "string"},
    },
    UNLISTED: {
        "description": "topic/partition@first-last, ...: where more records were refused than the server "
        "keeps; absent if there are none.",
        "schema": {"type": "string"},
    },
}


class _PlainRoute(APIRoute):
    """Declared as any endpoint, and answered by an ASGI app."""

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers; another method than GET is FastAPI's to refuse."""
        if scope["method"] in (self.methods or ()):
            await _rows(scope, receive, send)
        else:
            await super().handle(scope, receive, send)


async def _rows(scope: Scope, _: Receive, send: Send) -> None:
    """The lookup of one entity or one row."""
    worker: Worker = scope["app"].state.worker
    caller: Caller = scope[CALLER]
    table = worker.tables.read_by(caller, scope["path_params"]["table"])
    caller.check(Action.LOOKUP, table.name)
    reader = table.reader
    definition = worker.sights.of(caller, reader.cold.index.definition).definition
    entity = entity_of_query(definition, scope["query_string"])
    wanted = await worker.read_after(reader, header_of(scope, READ_AFTER))
    noted = noted_in(scope)
    noted.definition, noted.entities = definition, (entity,)
    look, results = await worker.looked_up(caller, reader, (entity,))
    noted.read_point, noted.rows = look.read_point_json, rows_in(results[0])
    refused = worker.refused(caller, reader, look, wanted, results)
    body = answer_json(reader.name, look, entity, results[0], refused)
    await send({"type": "http.response.start", "status": 200, "headers": rows_headers(body)})
    await send({"type": "http.response.body", "body": body})


reads = APIRouter(route_class=JsonRoute)
operations = APIRouter()


async def rows(table: str, read_after: ReadAfter = None) -> None:
    """Takes the entity's columns, and optionally the key columns that follow them.

    An entity without rows gives an empty list. A whole key without a row gives a 404, which also names the
    read point.
    """


@reads.post(
    "/v1/tables/{table}/rows:batch",
    summary="The rows of several entities of {table}, at one read point",
    response_model=BatchAnswer,
    responses=problems(ServerBusy, *ANSWERING, bad=TAKING_A_BODY),
)
async def batch(
    worker: OfWorker,
    caller: Asking,
    noted: Noting,
    table: LookupTable,
    body: BatchBody,
    read_after: ReadAfter = None,
) -> Response:
    """All entities are read at the same read point."""
    reader = table.reader
    definition = worker.sights.of(caller, reader.cold.index.definition).definition
    entities = entities_of(definition, body.entities)
    wanted = await worker.read_after(reader, read_after)
    noted.definition, noted.entities = definition, entities
    look, results = await worker.looked_up(caller, reader, entities)
    noted.read_point, noted.rows = look.read_point_json, sum(map(rows_in, results))
    refused = worker.refused(caller, reader, look, wanted, results)
    return Response(batch_json(reader.name, look, results, refused), media_type=JSON)


@reads.post(
    "/v1/tables/{table}/extract",
    summary="All or some rows of {table}, at one read point",
    response_class=Response,
    responses={
        200: {
            "description": "The rows",
            "headers": _EXTRACT_HEADERS,
            "content": {
                one.media_type: {"schema": {"type": "string"} if one.is_text else _BINARY}
                for one in FORMATS.values()
            },
        },
        **problems(ReadPointGone, HotBytesExceeded, ServerBusy, *ANSWERING, bad=(406, *TAKING_A_BODY)),
    },
)
async def extract(
    worker: OfWorker,
    caller: Asking,
    noted: Noting,
    table: KnownTable,
    body: ExtractBody | None = None,
    accept: Annotated[str, Header()] = "",
    accept_encoding: Annotated[str, Header()] = "",
    read_after: ReadAfter = None,
) -> Response:
    """Streams the rows in the format that Accept prefers.

    If the stream breaks off, the last chunk of the chunked answer is missing. An Arrow stream then also lacks
    its end mark, and a Parquet file its footer.
    """
    format_name = format_of(accept)
    coding = coding_of(accept_encoding, format_name)
    wanted = replace(Wanted() if body is None else body.wanted(), caller=caller)
    action = Action.EXTRACT if wanted.since is None else Action.CHANGES
    noted.verb = str(action)
    caller.check(action, table.name)
    definition = table.reader.cold.index.definition
    # Refused before it waits in line. Reading a long condition would keep others waiting here.
    await asyncio.to_thread(Selection.of, definition, wanted)
    included = await worker.read_after(table.reader, read_after)
    floor = table.reader.end()
    refused = table.reader.refused_up_to(included) if caller.sees_all(table.name) else RefusedRecords()
    return ExtractResponse(
        table.name, partial(table.extract, wanted, floor), format_name, coding, worker, refused
    )


@reads.get(
    "/v1/tables/{table}/refused",
    summary="Records that {table} can't take, and that are not committed yet",
    response_model=RefusedAnswer,
    responses=problems(*OF_A_TABLE, BadParameter, NotReady),
)
async def refused(caller: Asking, table: AdminTable, query: Annotated[RefusedQuery, Query()]) -> Response:
    """Lists the newest records of each partition, and of each about as many if they are more than the limit.

    Once they are committed, they are in quarantine.
    """
    caller.check_sees_all(table.name, "list refused records of it")
    look = table.reader.look(())
    found = table.reader.refused_since(look.read_point, query.limit)
    return Response(refused_json(table.reader.name, look, *found), media_type=JSON)


@reads.get(
    "/v1/tables/{table}",
    summary="The definition of {table}",
    response_model=TableBody,
    responses=problems(*OF_A_TABLE, NotReady),
)
async def describe(worker: OfWorker, caller: Asking, table: KnownTable) -> Response:
    """Returns the definition that is stored in the table; to who sees a part of it, key and columns alone."""
    table.check_exists()
    stored = msgspec.Raw(worker.sights.of(caller, table.stored_definition()).definition_json().encode())
    return _json({"name": table.name, "definition": stored})


@operations.get("/v1/tables", summary="The names of the tables that this server serves", responses=problems())
async def list_tables(worker: OfWorker, caller: Asking) -> TableNames:
    """Lists the tables in the server's configuration with which the caller may do anything."""
    return TableNames(tables=[table.name for table in worker.tables.known_to(caller)])


@operations.get("/livez", summary="Whether the process answers", responses=problems())
async def livez() -> HealthAnswer:
    """For a liveness probe."""
    return HealthAnswer(status="ok")


@operations.get(
    "/readyz",
    summary="Whether every table that can be served is ready",
    responses=problems(NotReady, AuditUnavailable),
)
async def readyz(worker: OfWorker, caller: Asking) -> HealthAnswer:
    """For a readiness probe: 200 once every table that can be read from the catalog is ready.

    A table that is missing or broken there takes no server out of a load balancer; the answer names it to
    those who may do anything with it. With none that can be read, each has to be ready from what the server
    holds of it.
    """
    problems = {table.name: table.catalog_problem() for table in worker.tables}
    readable = [table for table in worker.tables if problems[table.name] is None]
    for table in readable or worker.tables:
        _check_ready(table, caller)
    if worker.guard.audit is not None:
        worker.guard.audit.check()
    told = {table: said for table, said in problems.items() if said and caller.knows(table)}
    return HealthAnswer(status="ready", not_served=told)


def _check_ready(table: ServedTable, caller: Caller) -> None:
    try:
        table.check_ready()
    except ThermoclineError as error:
        if caller.may(Action.ADMIN, table.name) or (isinstance(error, NotReady) and caller.knows(table.name)):
            raise
        # safety: readyz-names-no-table
        raise NotReady(table="of the server", detail="ask with credentials for which one, and why") from error


@operations.get(
    "/status",
    summary="How fresh each table is, and what its tailer is doing",
    response_model=ServerStatus,
    responses=problems(UnknownTable),
)
async def status(
    worker: OfWorker,
    caller: Asking,
    table: Annotated[str | None, Query(description="This table alone, in all details.")] = None,
) -> Response:
    """Returns what `thermocline status` and the pages show about a server.

    Of tables that the caller doesn't operate, only the names are there, of those that they know otherwise.
    """
    if table is not None:
        return Response(await shared_status(worker, caller, table), media_type=JSON)
    document = await server_status(worker, caller)
    if others := not_operated(worker, caller):
        document = document.model_copy(update={"not_operated": others})
    return Response(document.model_dump_json(exclude_unset=True), media_type=JSON)


@operations.get(
    "/metrics",
    summary="Prometheus metrics of all workers",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}, **problems(NotPermitted)},
)
async def metrics(worker: OfWorker, caller: Asking) -> Response:
    """For Prometheus."""
    if not operates_all(worker, caller):  # safety: metrics-for-operators
        raise NotPermitted(caller=caller.name, table=ANY_TABLE, detail="read metrics")
    for table in worker.tables:
        table.measure()
    await asyncio.to_thread(worker.measure_jobs)
    content = await asyncio.to_thread(measures.render)  # counts the open files of each process
    return Response(content, headers={"content-type": CONTENT_TYPE})


@operations.get("/version", name="version", summary="The version of Thermocline", responses=problems())
async def release() -> VersionAnswer:
    """Returns the version of the server that answers."""
    return VersionAnswer(version=__version__)


def create_app(
    tables: Tables,
    settings: ServingSettings,
    io: PyArrowFileIO | None = None,
    guard: Guard = OPEN,
    live: LiveChannel | None = None,
) -> Requests:
    """The app of one API worker.

    ``io`` reaches the object store where extract jobs put their files; the ``guard`` stands before all
    endpoints. ``live`` asks for snapshots as of now; without it, there is no live catalog.
    """
    worker = Worker(tables, settings, io or PyArrowFileIO(), live, guard)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        refreshing = asyncio.gather(worker.refresh_forever(), *(one() for one in guard.tended))
        # The worker listens once this is over: until then, another one may be able to answer.
        await worker.refreshed(FIRST_REFRESH_SECONDS_MAX)  # safety: worker-loads-first
        yield
        refreshing.cancel()
        await asyncio.gather(refreshing, return_exceptions=True)
        worker.close()
        if guard.audit is not None:
            await asyncio.to_thread(guard.audit.close)

    api = FastAPIOffline(
        title="Thermocline",
        version=__version__,
        description=_DESCRIPTION,
        redoc_url=None,
        generate_unique_id_function=operation_id,
        lifespan=lifespan,
    )
    api.state.worker = worker
    api.state.session = session = Session(settings.state_dir, SystemClock())
    api.router.add_api_route(
        ROWS_PATH,
        rows,
        summary="The rows of one entity of {table}, or one row",
        response_model=RowsAnswer,
        responses=problems(RowNotFound, ServerBusy, *ANSWERING),
        route_class_override=_PlainRoute,
    )
    api.router.routes.insert(0, api.router.routes.pop())  # tried first for each request
    api.include_router(explained)
    api.include_router(reads)
    api.include_router(jobs)
    api.include_router(operations)
    api.include_router(lookups)  # before the pages, which take any path of a table
    api.include_router(pages)
    api.include_router(assets)
    if live is not None:
        api.include_router(live_catalog)
    definitions = {table.name: table.definition for table in tables}
    api.openapi = cache(lambda: described(api, definitions))  # type: ignore[method-assign]
    documents = Documents(api, definitions)

    async def openapi(caller: Asking) -> Response:
        return Response(documents.of(caller), media_type=JSON)

    api.router.add_api_route("/openapi.json", openapi, include_in_schema=False)
    api.router.routes.insert(0, api.router.routes.pop())  # before FastAPI's own
    return Requests(
        api,
        DirectLookups(tables).answer,
        guard,
        cors_origins=settings.cors_origins,
        tables=definitions,
        session=session,
        bounds=Bounds.of(settings),
    )


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type=JSON)

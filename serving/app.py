"""The HTTP door: lookups, batches, extracts, and what operators ask for.

``create_app`` puts the routes together over `Tables`. The two lookup routes and the extract are plain
Starlette routes, which cost a third of a FastAPI one; ``openapi`` describes them by each table's definition.
Nothing here waits for a file on the event loop: what is not in memory is read by a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

import msgspec
from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from serving import measures
from serving.encode import MEDIA_TYPES
from serving.extract import columns_of
from serving.lookup import answer_json, batch_json, check_found
from serving.openapi import openapi_document
from serving.problems import Requests, on_http_exception, on_thermocline_error
from serving.requests import body_of, columns_of_body, entities_of_body, entity_of_query, format_of
from thermocline.errors import BadParameter, ReadAfterTimeout, ThermoclineError
from thermocline.logs import fields
from thermocline.metrics import CONTENT_TYPE
from thermocline.read_point import parse_read_after

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from serving.cold.reader import Entity
    from serving.extract import Extract
    from serving.lookup import JsonRow, Look, TableReader
    from serving.tables import ServedTable, Tables
    from thermocline.settings import ServingSettings

READ_AFTER: Final = "Thermocline-Read-After"
READ_POINT: Final = "Thermocline-Read-Point"
AGE: Final = "Thermocline-Age-Seconds"
STALE: Final = "Thermocline-Stale"
JSON: Final = "application/json"

# A new snapshot or a status of the tailer is noticed within this; each look is one stat call per table.
REFRESH_SECONDS: Final = 0.1
# The tailer commits every 20 ms; looking twice as often costs a waiting request microseconds.
READ_AFTER_POLL_SECONDS: Final = 0.01
# Cold reads mostly hold the interpreter: more threads than this would only take turns.
COLD_THREADS: Final = 4
# At once per worker; each takes up to DuckDB's memory limit and both cores. Others wait in line.
EXTRACTS_MAX: Final = 2

log = logging.getLogger(__name__)


def create_app(tables: Tables, settings: ServingSettings) -> FastAPI:
    """The app of one API worker."""
    door = _Door(tables, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        refreshing = asyncio.create_task(door.refresh_forever())
        yield
        refreshing.cancel()
        await asyncio.gather(refreshing, return_exceptions=True)
        door.close()

    app = FastAPI(title="Thermocline", version=_version(), lifespan=lifespan)
    app.add_route("/v1/tables/{table}/rows", door.rows, methods=["GET"], include_in_schema=False)
    app.add_route("/v1/tables/{table}/rows:batch", door.batch, methods=["POST"], include_in_schema=False)
    app.add_route("/v1/tables/{table}/extract", door.extract, methods=["POST"], include_in_schema=False)
    for path, endpoint in {
        "/v1/tables": door.list_tables,
        "/v1/tables/{table}": door.describe,
        "/livez": door.livez,
        "/readyz": door.readyz,
        "/status": door.status,
        "/metrics": door.metrics,
        "/version": door.version,
    }.items():
        app.add_route(path, endpoint, methods=["GET"], include_in_schema=False)
    app.add_middleware(Requests)
    app.add_exception_handler(ThermoclineError, on_thermocline_error)
    app.add_exception_handler(HTTPException, on_http_exception)
    definitions = {table.name: table.definition for table in tables}
    app.openapi = partial(openapi_document, definitions, _version())  # type: ignore[method-assign]
    return app


class _Door:
    """The endpoints. One per worker; all methods run on the event loop."""

    def __init__(self, tables: Tables, settings: ServingSettings) -> None:
        self._tables = tables
        self._read_after_seconds_max = settings.read_after_seconds_max
        self._stale_after_seconds = settings.stale_after_seconds
        self._cold_threads = ThreadPoolExecutor(COLD_THREADS, "cold")
        self._extract_threads = ThreadPoolExecutor(2 * EXTRACTS_MAX, "extract")
        self._extracts = asyncio.Semaphore(EXTRACTS_MAX)

    async def refresh_forever(self) -> None:
        """Keeps every table at its newest snapshot. A failure is logged and tried again."""
        loop = asyncio.get_running_loop()
        failing: set[str] = set()
        while True:
            for table in self._tables:
                try:
                    await loop.run_in_executor(self._cold_threads, table.refresh)
                    failing.discard(table.name)
                except Exception:
                    if table.name not in failing:
                        log.exception("refresh failed", extra=fields(table=table.name))
                    failing.add(table.name)
            await asyncio.sleep(REFRESH_SECONDS)

    def close(self) -> None:
        """Ends the threads and lets go of the tables."""
        self._cold_threads.shutdown(cancel_futures=True)
        self._extract_threads.shutdown(cancel_futures=True)
        self._tables.close()

    async def rows(self, request: Request) -> Response:
        """One entity, or one row."""
        reader = self._table(request).reader
        entity = entity_of_query(reader.cold.index.definition, request.query_params)
        await self._read_after(reader, request)
        look, (rows,) = await self._looked_up(reader, (entity,))
        check_found(look.cold.index.definition, entity, rows)
        return Response(answer_json(reader.name, look, rows), media_type=JSON)

    async def batch(self, request: Request) -> Response:
        """Several entities, all from one view."""
        reader = self._table(request).reader
        entities = entities_of_body(reader.cold.index.definition, await body_of(request))
        await self._read_after(reader, request)
        look, results = await self._looked_up(reader, entities)
        return Response(batch_json(reader.name, look, results), media_type=JSON)

    async def extract(self, request: Request) -> Response:
        """All rows, as a stream."""
        table = self._table(request)
        format_name = format_of(request.headers.get("accept", ""))
        columns = columns_of(table.reader.cold.index.definition, columns_of_body(await body_of(request)))
        await self._read_after(table.reader, request)
        return _ExtractResponse(
            open_extract=lambda: table.extract(columns),
            format_name=format_name,
            stale_after_seconds=self._stale_after_seconds,
            slots=self._extracts,
            threads=self._extract_threads,
        )

    async def list_tables(self, _: Request) -> Response:
        """The tables that are served."""
        return _json({"tables": [table.name for table in self._tables]})

    async def describe(self, request: Request) -> Response:
        """One table's definition."""
        table = self._table(request)
        definition = msgspec.Raw(table.definition.to_json().encode())
        return _json({"name": table.name, "definition": definition})

    async def livez(self, _: Request) -> Response:
        """Whether this process answers at all."""
        return _json({"status": "ok"})

    async def readyz(self, _: Request) -> Response:
        """Whether every table can be asked now."""
        for table in self._tables:
            table.reader.check_ready()
        return _json({"status": "ready"})

    async def status(self, _: Request) -> Response:
        """How fresh each table is, and what the tailer behind it does."""
        return _json({"tables": {table.name: table.status() for table in self._tables}})

    async def metrics(self, _: Request) -> Response:
        """Prometheus metrics, over all workers of this server."""
        for table in self._tables:
            table.measure()
        return Response(measures.render(), headers={"content-type": CONTENT_TYPE})

    async def version(self, _: Request) -> Response:
        """The release."""
        return _json({"version": _version()})

    def _table(self, request: Request) -> ServedTable:
        return self._tables[request.path_params["table"]]

    async def _looked_up(
        self, reader: TableReader, entities: Sequence[Entity]
    ) -> tuple[Look, list[list[JsonRow]]]:
        look = reader.look(entities)
        known = [reader.cached_rows(look.cold, entity) for entity in entities]
        missing = [place for place, rows in enumerate(known) if rows is None]
        if missing:

            def read() -> None:
                for place in missing:
                    known[place] = reader.cold_rows(look.cold, entities[place])

            await asyncio.get_running_loop().run_in_executor(self._cold_threads, read)
        return look, reader.overlay(look, [rows or {} for rows in known])

    async def _read_after(self, reader: TableReader, request: Request) -> None:
        """Waits until an answer includes the records that the request names, within the bound."""
        text = request.headers.get(READ_AFTER)
        if text is None:
            return
        wanted = parse_read_after(text)
        for topic, _ in wanted:
            if topic not in reader.cold.index.definition.topics:
                raise BadParameter(name=READ_AFTER, problem=f"the table is not fed from topic {topic}")
        deadline = asyncio.get_running_loop().time() + self._read_after_seconds_max
        while not _includes(reader, wanted):
            if asyncio.get_running_loop().time() > deadline:
                waited_seconds = self._read_after_seconds_max
                raise ReadAfterTimeout(table=reader.name, wanted=text, waited_seconds=waited_seconds)
            await asyncio.sleep(READ_AFTER_POLL_SECONDS)


class _ExtractResponse(Response):
    """Streams an extract: the next chunk is made while this one is sent, and none beyond that.

    Whatever ends it, the caller's going away included, the extract is closed. One that fails after it began
    is broken off, which the caller can tell from a complete one.
    """

    def __init__(
        self,
        open_extract: Callable[[], Extract],
        format_name: str,
        stale_after_seconds: float,
        slots: asyncio.Semaphore,
        threads: ThreadPoolExecutor,
    ) -> None:
        media_type, self._encode = MEDIA_TYPES[format_name]
        super().__init__(media_type=media_type)
        del self.headers["content-length"]
        self._open_extract = open_extract
        self._stale_after_seconds = stale_after_seconds
        self._slots = slots
        self._threads = threads

    async def __call__(self, _: Scope, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        async with self._slots:
            extract = await loop.run_in_executor(self._threads, self._open_extract)
            chunks = self._encode(extract.schema, extract.batches())
            gone = asyncio.create_task(_disconnected(receive))
            take = partial(loop.run_in_executor, self._threads, next, chunks, None)
            upcoming = take()
            try:
                chunk = await upcoming
                self._describe(extract)
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                while chunk is not None and not gone.done():
                    upcoming = take()
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
                    chunk = await upcoming
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            finally:
                gone.cancel()
                await asyncio.shield(self._close(upcoming, chunks, extract))

    def _describe(self, extract: Extract) -> None:
        self.headers[READ_POINT] = extract.read_point.to_header()
        self.headers[AGE] = f"{extract.age_seconds:.3f}"
        self.headers[STALE] = str(extract.age_seconds > self._stale_after_seconds).lower()

    async def _close(
        self, upcoming: asyncio.Future[bytes | None], chunks: Generator[bytes], extract: Extract
    ) -> None:
        # A generator may only be closed when no thread is inside it.
        await asyncio.wait([upcoming])

        def close() -> None:
            chunks.close()
            extract.close()
            measures.EXTRACT_ROWS.labels(extract.table).inc(extract.rows)

        await asyncio.get_running_loop().run_in_executor(self._threads, close)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _includes(reader: TableReader, wanted: Mapping[tuple[str, int], int]) -> bool:
    end = reader.end()
    return all(end.get(place) > offset for place, offset in wanted.items())


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type=JSON)


def _version() -> str:
    try:
        return version("thermocline")
    except PackageNotFoundError:
        return "0+unknown"

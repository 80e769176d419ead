"""The HTTP door: lookups, batches, extracts, and what operators ask for.

``create_app`` puts the routes together over `Tables`; ``openapi`` describes them by each table's definition.
There are no layers between `Requests` and the routes, and the lookup of one entity is answered without the
framework's objects: they would cost several times the lookup itself. Nothing here waits for a file on the
event loop: what is not in memory is read by a thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Final

import msgspec
from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route, Router

from serving import measures
from serving.answer import answer_json, batch_json, refused_json
from serving.cold.threads import ReadingThreads
from serving.docs_page import docs_page
from serving.encode import MEDIA_TYPES, Chunk
from serving.extract import columns_of
from serving.openapi import openapi_document
from serving.problems import Requests
from serving.requests import (
    body_of,
    columns_of_body,
    entities_of_body,
    entity_of_query,
    format_of,
    limit_of_query,
)
from serving.storage import storage_named
from thermocline.errors import ReadAfterTimeout
from thermocline.process.logs import fields
from thermocline.process.metrics import CONTENT_TYPE
from thermocline.rules.read_point import HEADER as READ_AFTER
from thermocline.rules.read_point import (
    check_partitions,
    check_topics,
    ends_before,
    includes,
    parse_read_after,
)

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from serving.answer import JsonRow
    from serving.cold.reader import Entity
    from serving.extract import Extract
    from serving.lookup import Look, TableReader
    from serving.tables import ServedTable, Tables
    from thermocline.settings import ServingSettings

READ_POINT: Final = "Thermocline-Read-Point"
AGE: Final = "Thermocline-Age-Seconds"
STALE: Final = "Thermocline-Stale"
REFUSED: Final = "Thermocline-Refused"
JSON: Final = "application/json"

# A new snapshot or a status of the tailer is noticed within this; each look is one stat call per table.
REFRESH_SECONDS: Final = 0.1
# A worker that starts loads its tables' indexes in seconds. One that takes longer listens, and says why; and
# as it stops only once it has started, this is shorter than the time that it has for stopping.
FIRST_REFRESH_SECONDS_MAX: Final = 8.0
# The tailer commits every 20 ms; looking twice as often costs a waiting request microseconds.
READ_AFTER_POLL_SECONDS: Final = 0.01
# A partition that a topic gains is read within about two seconds. One that isn't by then does not exist.
PARTITION_SECONDS_MAX: Final = 4.0
# Local reads take turns at the interpreter for half of their time; a remote one waits for its request alone.
COLD_THREADS: Final = 4
# At once per worker; each takes up to DuckDB's memory limit and both cores. Others wait in line.
EXTRACTS_MAX: Final = 2
# A caller that takes no chunk for so long has stopped reading; a slow one takes a chunk in seconds.
SEND_SECONDS_MAX: Final = 60.0

log = logging.getLogger(__name__)


def create_app(tables: Tables, settings: ServingSettings) -> Requests:
    """The app of one API worker."""
    door = _Door(tables, settings)

    @asynccontextmanager
    async def lifespan(_: object) -> AsyncIterator[None]:
        refreshing = asyncio.create_task(door.refresh_forever())
        # The worker listens once this is over: until then, another one may be able to answer.
        await door.refreshed(FIRST_REFRESH_SECONDS_MAX)
        yield
        refreshing.cancel()
        await asyncio.gather(refreshing, return_exceptions=True)
        door.close()

    # In the order in which they are tried for each request.
    routes = [
        Route("/v1/tables/{table}/rows", _Rows(door), methods=["GET"]),
        Route("/v1/tables/{table}/rows:batch", door.batch, methods=["POST"]),
        Route("/v1/tables/{table}/extract", door.extract, methods=["POST"]),
        Route("/v1/tables/{table}/refused", door.refused),
        Route("/v1/tables/{table}", door.describe),
        Route("/v1/tables", door.list_tables),
        Route("/livez", door.livez),
        Route("/readyz", door.readyz),
        Route("/status", door.status),
        Route("/metrics", door.metrics),
        Route("/version", door.version),
    ]
    return Requests(Router([*routes, *_documentation(tables)], lifespan=lifespan))


def _documentation(tables: Tables) -> list[BaseRoute]:
    """The OpenAPI document, and a page of it; FastAPI's own pages load scripts from the internet."""
    pages = FastAPI(docs_url=None, redoc_url=None)

    def document() -> dict[str, object]:
        return openapi_document({table.name: table.definition for table in tables}, _version())

    pages.openapi = document  # type: ignore[method-assign]

    async def docs(_: Request) -> Response:
        return HTMLResponse(docs_page(pages.openapi()))

    return [*pages.routes, Route("/docs", docs)]


class _Door:
    """The endpoints. One per worker; all methods run on the event loop."""

    def __init__(self, tables: Tables, settings: ServingSettings) -> None:
        self._tables = tables
        self._read_after_seconds_max = settings.read_after_seconds_max
        self._stale_after_seconds = settings.stale_after_seconds
        self._cold_threads = ReadingThreads(COLD_THREADS)
        self._extract_threads = ThreadPoolExecutor(2 * EXTRACTS_MAX, "extract")
        self._extracts = asyncio.Semaphore(EXTRACTS_MAX)
        self._has_refreshed = asyncio.Event()

    async def refreshed(self, seconds_max: float) -> None:
        """Returns once every table was brought to its newest snapshot, or this has failed, or time is up."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._has_refreshed.wait(), seconds_max)

    async def refresh_forever(self) -> None:
        """Keeps every table at its newest snapshot. A failure is logged and tried again."""
        failing: set[str] = set()
        while True:
            for table in self._tables:
                try:
                    await self._cold_threads.run(table.refresh)
                    failing.discard(table.name)
                except Exception:
                    if table.name not in failing:
                        log.exception("refresh failed", extra=fields(table=table.name))
                    failing.add(table.name)
            self._has_refreshed.set()
            await asyncio.sleep(REFRESH_SECONDS)

    def close(self) -> None:
        """Ends the threads and lets go of the tables."""
        self._cold_threads.close()
        self._extract_threads.shutdown(cancel_futures=True)
        self._tables.close()

    async def batch(self, request: Request) -> Response:
        """Several entities, all from one view."""
        reader = self.table(request.scope).reader
        entities = entities_of_body(reader.cold.index.definition, await body_of(request))
        wanted = await self.read_after(reader, request.scope)
        look, results = await self.looked_up(reader, entities)
        refused = reader.refused(look, wanted, results)
        return Response(batch_json(reader.name, look, results, refused), media_type=JSON)

    async def refused(self, request: Request) -> Response:
        """The refused records since the seam, the newest of a partition first."""
        reader = self.table(request.scope).reader
        count_max = limit_of_query(request.scope["query_string"])
        look = reader.look(())
        found = reader.refused_since(look.read_point, count_max)
        return Response(refused_json(reader.name, look, *found), media_type=JSON)

    async def extract(self, request: Request) -> Response:
        """All rows, as a stream."""
        table = self.table(request.scope)
        format_name = format_of(request.headers.get("accept", ""))
        wanted = columns_of_body(await body_of(request))
        columns_of(table.reader.cold.index.definition, wanted)  # refused before it waits in line
        included = await self.read_after(table.reader, request.scope)
        floor = table.reader.end()
        response = _ExtractResponse(
            open_extract=lambda: table.extract(wanted, floor),
            format_name=format_name,
            stale_after_seconds=self._stale_after_seconds,
            slots=self._extracts,
            threads=self._extract_threads,
        )
        if refused := table.reader.refused_up_to(included):
            response.headers[REFUSED] = ", ".join(
                f"{one.topic}/{one.partition}@{one.offset}" for one in refused
            )
        return response

    async def list_tables(self, _: Request) -> Response:
        """The tables that are served."""
        return _json({"tables": [table.name for table in self._tables]})

    async def describe(self, request: Request) -> Response:
        """One table's definition."""
        table = self.table(request.scope)
        table.check_exists()
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

    def table(self, scope: Scope) -> ServedTable:
        """The table that a request's path names. Raises `UnknownTable`."""
        return self._tables[scope["path_params"]["table"]]

    async def looked_up(
        self, reader: TableReader, entities: Sequence[Entity]
    ) -> tuple[Look, list[list[JsonRow]]]:
        """As ``TableReader.lookup``, without reading files on the event loop."""
        look = reader.look(entities)
        known = [reader.cached_rows(look.cold, entity) for entity in entities]
        missing = [place for place, rows in enumerate(known) if rows is None]
        if missing:

            def read() -> None:
                with storage_named(reader.name):
                    for place in missing:
                        known[place] = reader.cold_rows(look.cold, entities[place])

            await self._cold_threads.run(read)
        return look, reader.overlay(look, [rows or {} for rows in known])

    async def read_after(self, reader: TableReader, scope: Scope) -> Mapping[tuple[str, int], int]:
        """Waits, within the bound, until an answer includes the records that the request names; gives these.

        Raises:
            BadParameter: the header is wrong, or names a partition that does not feed the table.
            ReadAfterTimeout: the bound is over.
        """
        text = _header(scope, READ_AFTER)
        if text is None:
            return {}
        wanted, seconds_max = parse_read_after(text), self._read_after_seconds_max
        check_topics(reader.cold.index.definition, wanted)
        clock = asyncio.get_running_loop().time
        began_at = clock()
        while not includes((look := reader.look(())).read_point.end, wanted):
            waited_seconds = clock() - began_at
            # Read to its end since the request came: what is not there now, the log did not hold then.
            is_log_read = look.age_seconds < waited_seconds
            if is_log_read and waited_seconds > min(seconds_max, PARTITION_SECONDS_MAX):
                check_partitions(look.read_point.end, wanted)
            if waited_seconds > seconds_max:
                log_ends = ends_before(look.read_point.end, wanted) if is_log_read else ()
                raise ReadAfterTimeout(
                    table=reader.name, wanted=text, waited_seconds=seconds_max, log_ends=log_ends
                )
            await asyncio.sleep(READ_AFTER_POLL_SECONDS)
        return wanted


class _Rows:
    """The lookup of one entity or one row, as an ASGI app."""

    def __init__(self, door: _Door) -> None:
        self._door = door

    async def __call__(self, scope: Scope, _: Receive, send: Send) -> None:
        reader = self._door.table(scope).reader
        entity = entity_of_query(reader.cold.index.definition, scope["query_string"])
        wanted = await self._door.read_after(reader, scope)
        look, results = await self._door.looked_up(reader, (entity,))
        refused = reader.refused(look, wanted, results)
        body = answer_json(reader.name, look, entity, results[0], refused)
        headers = [(b"content-length", b"%d" % len(body)), (b"content-type", JSON.encode())]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})


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
                upcoming = take()
                await upcoming  # what fails with the first rows is an answer still; Arrow begins without any
                self._describe(extract)
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                while chunk is not None and not gone.done():
                    if not await _is_taken(send, chunk):
                        log.warning("extract broken off: nobody reads it", extra=fields(table=extract.table))
                        return  # without the last part, so the connection is broken off
                    chunk = await upcoming
                    upcoming = take()
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            finally:
                gone.cancel()
                await asyncio.shield(self._close(upcoming, chunks, extract))

    def _describe(self, extract: Extract) -> None:
        self.headers[READ_POINT] = extract.read_point.to_header()
        self.headers[AGE] = f"{extract.age_seconds:.3f}"
        self.headers[STALE] = str(extract.age_seconds > self._stale_after_seconds).lower()

    async def _close(
        self, upcoming: asyncio.Future[Chunk | None], chunks: Generator[Chunk], extract: Extract
    ) -> None:
        # A generator may only be closed when no thread is inside it.
        await asyncio.wait([upcoming])

        def close() -> None:
            chunks.close()
            extract.close()
            measures.EXTRACT_ROWS.labels(extract.table).inc(extract.rows)

        await asyncio.get_running_loop().run_in_executor(self._threads, close)


async def _is_taken(send: Send, chunk: Chunk) -> bool:
    """Sends a part of an answer; False when the caller does not take it in time."""
    try:
        part = {"type": "http.response.body", "body": chunk, "more_body": True}
        await asyncio.wait_for(send(part), SEND_SECONDS_MAX)
    except TimeoutError:
        return False
    return True


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _header(scope: Scope, name: str) -> str | None:
    wanted = name.lower().encode()
    for given, value in scope["headers"]:
        if given == wanted:
            text: str = value.decode("latin-1")
            return text
    return None


def _json(content: Any) -> Response:
    return Response(msgspec.json.encode(content), media_type=JSON)


def _version() -> str:
    try:
        return version("thermocline")
    except PackageNotFoundError:
        return "0+unknown"

"""The async client, for asyncio and trio."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self, TypeVar

import anyio
import anyio.from_thread
import anyio.to_thread
import httpx

from .answers import Answer, KeyValue, ReadAfter, ReadPoint, Refused
from .requests import (
    TIMEOUT_SECONDS,
    Call,
    Reply,
    Requests,
    Steps,
    Wait,
    Wanted,
    is_answer,
    timeout_of,
)
from .retries import DEFAULT, Retries
from .streams import (
    ARROW,
    Decoder,
    ExtractInfo,
    Received,
    format_of,
    to_duckdb,
    to_pandas,
    to_polars,
)

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

T = TypeVar("T")


class AsyncClient:
    """As `Client`, to be awaited."""

    def __init__(
        self,
        url: str,
        *,
        retries: Retries = DEFAULT,
        timeout_seconds: float = TIMEOUT_SECONDS,
        headers: Mapping[str, str] | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """As `Client`."""
        self._requests = Requests(url.rstrip("/"), retries)
        self._timeout_seconds = timeout_seconds
        self._http = httpx.AsyncClient(
            base_url=self._requests.url, timeout=timeout_seconds, headers=headers, transport=transport
        )

    async def lookup(
        self,
        table: str,
        entity: Mapping[str, KeyValue] | None = None,
        /,
        *,
        read_after: ReadAfter | None = None,
        **columns: KeyValue,
    ) -> Answer:
        """As `Client.lookup`."""
        return await self._run(self._requests.lookup(table, {**(entity or {}), **columns}, read_after))

    async def lookup_many(
        self, table: str, entities: Iterable[Mapping[str, KeyValue]], *, read_after: ReadAfter | None = None
    ) -> list[Answer]:
        """As `Client.lookup_many`."""
        return await self._run(self._requests.lookup_many(table, entities, read_after))

    async def extract(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        read_after: ReadAfter | None = None,
        since: ReadPoint | None = None,
    ) -> AsyncExtract:
        """As `Client.extract`: ``async with await client.extract("profiles") as extract: ...``."""
        steps = self._requests.extract(table, Wanted(columns, where, limit, read_after, since), ARROW)
        extract = AsyncExtract(table, await self._run(steps), self._requests.url)
        await extract.open()
        return extract

    async def download(  # noqa: PLR0913  (all but two have defaults)
        self,
        table: str,
        sink: BinaryIO,
        *,
        format: str = "parquet",  # noqa: A002
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        compression: str | None = None,
        read_after: ReadAfter | None = None,
        since: ReadPoint | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> ExtractInfo:
        """As `Client.download`."""
        media_type, end_mark = format_of(format)
        wanted = Wanted(columns, where, limit, read_after, since)
        response = await self._run(self._requests.extract(table, wanted, media_type, compression))
        received = Received(self._requests.url, end_mark)
        try:
            async for chunk in response.aiter_raw():
                await anyio.to_thread.run_sync(sink.write, chunk)
                received.add(chunk)
                if progress is not None:
                    progress(received.bytes)
        except httpx.TransportError as error:
            raise received.cut(str(error) or type(error).__name__) from error
        finally:
            await response.aclose()
        received.check_end()
        return ExtractInfo(table, response.headers)

    async def refused(self, table: str, *, limit: int = 100) -> Refused:
        """As `Client.refused`."""
        return await self._run(self._requests.refused(table, limit))

    async def close(self) -> None:
        """Ends the connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, steps: Steps[T]) -> T:
        reply: Reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                value: T = end.value
                return value
            reply = await self._do(step)

    async def _do(self, step: Call | Wait) -> Reply:
        if isinstance(step, Wait):
            await anyio.sleep(step.seconds)
            return None
        request = self._http.build_request(
            step.method,
            step.path,
            params=step.params or None,
            json=step.json,
            headers=step.headers,
            timeout=timeout_of(step, self._timeout_seconds),
        )
        try:
            response = await self._http.send(request, stream=step.is_streamed)
            if step.is_streamed and response.is_error:
                await response.aread()
            elif step.is_streamed and not is_answer(step, response):
                await response.aclose()
        except httpx.TransportError as error:
            return error
        return response


class AsyncExtract(ExtractInfo):
    """As `Extract`, to be awaited. Arrow decodes in a thread, which asks the event loop for bytes."""

    schema: pa.Schema

    def __init__(self, table: str, response: httpx.Response, url: str) -> None:
        """Use `AsyncClient.extract`."""
        super().__init__(table, response.headers)
        self._response = response
        self._chunks = response.aiter_bytes()
        self._decoder = Decoder(url, lambda: anyio.from_thread.run(self._next_chunk))

    async def open(self) -> None:
        """Reads the schema. Raises `StreamCut`."""
        try:
            self.schema = await anyio.to_thread.run_sync(self._decoder.open)
        except BaseException:
            await self.close()
            raise

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """As `Extract.batches`."""
        try:
            while (batch := await anyio.to_thread.run_sync(self._decoder.next)) is not None:
                yield batch
        finally:
            await self.close()

    async def to_arrow(self) -> pa.Table:
        """As `Extract.to_arrow`."""
        import pyarrow as pa

        return pa.Table.from_batches([batch async for batch in self.batches()], self.schema)

    async def to_pandas(self) -> pd.DataFrame:
        """As `Extract.to_pandas`."""
        return to_pandas(await self.to_arrow())

    async def to_polars(self) -> pl.DataFrame:
        """As `Extract.to_polars`."""
        return to_polars(await self.to_arrow())

    async def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """As `Extract.to_duckdb`."""
        return to_duckdb(await self.to_arrow(), connection)

    async def close(self) -> None:
        """Gives up what isn't read yet."""
        with anyio.CancelScope(shield=True):
            await self._response.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _next_chunk(self) -> bytes | None:
        return await anext(self._chunks, None)

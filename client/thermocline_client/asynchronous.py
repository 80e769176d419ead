"""The connection to a server, the client that sends its requests there, and the rows of an extract."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self, TypeVar

import httpx

from .access import FilePath, Key, bearer_of, context_of
from .answers import Answer, KeyValue, ReadAfter, ReadPoint, Refused
from .asynchronous_io import Http, Transport, chunk_reader, close, run_blocking, sleep
from .errors import AccessInvalid
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


class AsyncConnection:
    """Sends ``requests`` to one server, and repeats those that may succeed later."""

    def __init__(  # noqa: PLR0913  (all but one have defaults)
        self,
        url: str,
        *,
        retries: Retries = DEFAULT,
        timeout_seconds: float = TIMEOUT_SECONDS,
        headers: Mapping[str, str] | None = None,
        transport: Transport | None = None,
        key: Key | None = None,
        key_over_http: bool = False,
        ca_file: FilePath | None = None,
        certificate: tuple[FilePath, FilePath] | None = None,
    ) -> None:
        """Raises `Unreachable` if the URL is invalid, `AccessInvalid` if the key or a file can't be used."""
        self.requests = Requests(url.rstrip("/"), retries)
        self._timeout_seconds = timeout_seconds
        context = context_of(ca_file, certificate)
        if transport is not None and context is not None:
            raise AccessInvalid("transport", "give it the certificates, or leave it out")
        self.http = Http(
            base_url=self.requests.url,
            timeout=timeout_seconds,
            headers=headers,
            transport=transport,
            auth=bearer_of(key, httpx.URL(self.requests.url), may_go_unencrypted=key_over_http),
            verify=True if context is None else context,
        )

    async def run(self, steps: Steps[T]) -> T:
        """Does what the steps of a request ask for, and returns its answer. Raises `ClientError`."""
        reply: Reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                value: T = end.value
                return value
            reply = await self._do(step)

    async def download(
        self,
        table: str,
        wanted: Wanted,
        sink: BinaryIO,
        format_name: str,
        compression: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> ExtractInfo:
        """Writes an extract to ``sink`` as the server sends it. Raises as the client's ``download``."""
        media_type, end_mark = format_of(format_name)
        response = await self.run(self.requests.extract(table, wanted, media_type, compression))
        received = Received(self.requests.url, end_mark)
        try:
            async for chunk in response.aiter_raw():
                await run_blocking(sink.write, chunk)
                received.add(chunk)
                if progress is not None:
                    progress(received.bytes)
        except httpx.TransportError as error:
            raise received.cut(str(error) or type(error).__name__) from error
        finally:
            await close(response)
        received.check_end()
        return ExtractInfo(table, response.headers)

    async def close(self) -> None:
        """Closes the connections."""
        await self.http.aclose()

    async def _do(self, step: Call | Wait) -> Reply:
        if isinstance(step, Wait):
            await sleep(step.seconds)
            return None
        request = self.http.build_request(
            step.method,
            step.path,
            params=step.params or None,
            json=step.json,
            headers=step.headers,
            timeout=timeout_of(step, self._timeout_seconds),
        )
        try:
            response = await self.http.send(request, stream=step.is_streamed)
            if step.is_streamed and response.is_error:
                await response.aread()
            elif step.is_streamed and not is_answer(step, response):
                await response.aclose()
        except httpx.TransportError as error:
            return error
        return response


class AsyncClient:
    """Client for one server: lookups and extracts. Close it when done.

    All methods raise `ClientError`.
    """

    def __init__(  # noqa: PLR0913  (all but one have defaults)
        self,
        url: str,
        *,
        retries: Retries = DEFAULT,
        timeout_seconds: float = TIMEOUT_SECONDS,
        headers: Mapping[str, str] | None = None,
        transport: Transport | None = None,
        key: Key | None = None,
        key_over_http: bool = False,
        ca_file: FilePath | None = None,
        certificate: tuple[FilePath, FilePath] | None = None,
    ) -> None:
        """Connects when the first request is sent.

        ``key`` is an API key or a token, or a function that returns one, called for each request. It isn't
        sent unencrypted, except to this machine, unless you set ``key_over_http``. The server's certificate
        is verified with the CAs of ``ca_file`` (PEM), or the usual ones. ``certificate`` are the paths of
        your own certificate and its key (PEM), if the server knows you by it.

        ``timeout_seconds`` limits each attempt to connect, and each wait for the server to send more. An
        extract may wait for other extracts, or for a row that matches, so it gets at least 15 minutes for
        each wait. ``headers`` are sent with every request. Pass an httpx ``transport`` if its default isn't
        enough; ``ca_file`` and ``certificate`` are then the transport's affair.

        Raises:
            AccessInvalid: the key or one of the files can't be used.
        """
        self._connection = AsyncConnection(
            url,
            retries=retries,
            timeout_seconds=timeout_seconds,
            headers=headers,
            transport=transport,
            key=key,
            key_over_http=key_over_http,
            ca_file=ca_file,
            certificate=certificate,
        )
        self._requests = self._connection.requests

    async def lookup(
        self,
        table: str,
        entity: Mapping[str, KeyValue] | None = None,
        /,
        *,
        read_after: ReadAfter | None = None,
        **columns: KeyValue,
    ) -> Answer:
        """Returns the rows of one entity, or one row if you give all columns of the key.

        Name the columns as arguments, ``lookup("profiles", app_id=7, user_id="ada")``, or pass a mapping if
        a column's name can't be an argument.

        Raises:
            RowNotFound: you gave all columns of the key, and the table has no such row.
        """
        steps = self._requests.lookup(table, {**(entity or {}), **columns}, read_after)
        return Answer.of(await self._connection.run(steps))

    async def lookup_many(
        self, table: str, entities: Iterable[Mapping[str, KeyValue]], *, read_after: ReadAfter | None = None
    ) -> list[Answer]:
        """Returns the rows of several entities, one answer per entity, in the order given.

        The answer for an entity without rows has no rows. Each request reads up to 1,000 entities, all at
        the same read point; more entities take several requests.
        """
        bodies = await self._connection.run(self._requests.lookup_many(table, entities, read_after))
        return [answer for body in bodies for answer in Answer.all_of(body)]

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
        """Streams a table's rows, or those for which ``where`` is true, all at one read point.

        It needs pyarrow. Read the extract to its end or close it, as in
        ``async with await client.extract("profiles") as extract: ...``.
        """
        wanted = Wanted(columns, where, limit, read_after, since)
        response = await self._connection.run(self._requests.extract(table, wanted, ARROW))
        decoder = Decoder(self._requests.url, chunk_reader(response))
        try:
            schema = await run_blocking(decoder.open)
        except BaseException:
            await close(response)
            raise
        return AsyncExtract(table, response, decoder, schema)

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
        """Writes an extract to ``sink``, and returns the read point that it reflects.

        ``format`` is arrow, parquet, csv or jsonl. ``compression``, gzip or zstd, is for csv and jsonl; the
        file stays compressed. ``progress`` is called with the number of bytes received so far.

        Raises:
            StreamCut: the server or the connection failed; what was written by then is incomplete.
        """
        wanted = Wanted(columns, where, limit, read_after, since)
        return await self._connection.download(table, wanted, sink, format, compression, progress)

    async def refused(self, table: str, *, limit: int = 100) -> Refused:
        """Returns the records that the table can't take and that aren't committed yet, at most ``limit``."""
        return Refused.of(await self._connection.run(self._requests.refused(table, limit)))

    async def close(self) -> None:
        """Closes the connections."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class AsyncExtract(ExtractInfo):
    """The rows of an extract. Read them once: in batches as they arrive, or all together.

    ``schema`` is their Arrow schema. ``read_point`` says exactly what the rows reflect.
    """

    def __init__(self, table: str, response: httpx.Response, decoder: Decoder, schema: pa.Schema) -> None:
        """Call the client's ``extract`` to get one."""
        super().__init__(table, response.headers)
        self.schema = schema
        self._response = response
        self._decoder = decoder

    async def batches(self) -> AsyncIterator[pa.RecordBatch]:
        """Yields the rows as they arrive.

        Raises:
            StreamCut: the server or the connection failed; what was read by then is incomplete.
        """
        try:
            while (batch := await run_blocking(self._decoder.next)) is not None:
                yield batch
        finally:
            await self.close()

    async def to_arrow(self) -> pa.Table:
        """Returns all rows as an Arrow table. Raises as `batches`."""
        import pyarrow as pa

        return pa.Table.from_batches([batch async for batch in self.batches()], self.schema)

    async def to_pandas(self) -> pd.DataFrame:
        """Returns all rows as a pandas frame. Raises as `batches`."""
        return to_pandas(await self.to_arrow())

    async def to_polars(self) -> pl.DataFrame:
        """Returns all rows as a Polars frame. Raises as `batches`."""
        return to_polars(await self.to_arrow())

    async def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Returns all rows as a relation of a connection, by default DuckDB's own. Raises as `batches`."""
        return to_duckdb(await self.to_arrow(), connection)

    async def close(self) -> None:
        """Closes the stream; rows that weren't read are lost."""
        await close(self._response)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

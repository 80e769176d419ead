"""The blocking client."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, BinaryIO, Self, TypeVar
from uuid import uuid4

import httpx

from .answers import Answer, KeyValue, ReadAfter, ReadPoint, Refused
from .downloads import awaited, download, only_files_of
from .jobs import ExtractJob
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


class Client:
    """One server, by its URL. For any threads; to be closed.

    ``timeout_seconds`` is for each attempt to connect and for each pause within an answer; an extract, which
    may have to wait for others or for a row that matches, has at least 15 minutes for the pauses. ``headers``
    go with each request. All methods raise `ClientError`.
    """

    def __init__(
        self,
        url: str,
        *,
        retries: Retries = DEFAULT,
        timeout_seconds: float = TIMEOUT_SECONDS,
        headers: Mapping[str, str] | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """``transport``: httpx's, where its default doesn't do, as for certificates of your own."""
        self._requests = Requests(url.rstrip("/"), retries)
        self._timeout_seconds = timeout_seconds
        self._http = httpx.Client(
            base_url=self._requests.url, timeout=timeout_seconds, headers=headers, transport=transport
        )

    def lookup(
        self,
        table: str,
        entity: Mapping[str, KeyValue] | None = None,
        /,
        *,
        read_after: ReadAfter | None = None,
        **columns: KeyValue,
    ) -> Answer:
        """The rows of one entity; or one row, by the key columns after the entity's as well.

        The columns are given by name, or as a mapping where their names are no arguments:
        ``lookup("profiles", app_id=7, user_id="ada")``.

        Raises:
            RowNotFound: a whole key was given, and there is no such row.
        """
        return self._run(self._requests.lookup(table, {**(entity or {}), **columns}, read_after))

    def lookup_many(
        self, table: str, entities: Iterable[Mapping[str, KeyValue]], *, read_after: ReadAfter | None = None
    ) -> list[Answer]:
        """The rows of several entities, in their order; one that has none has an answer without rows.

        Up to 1,000 of them are read at the same read point; more take several requests.
        """
        return self._run(self._requests.lookup_many(table, entities, read_after))

    def extract(
        self,
        table: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        limit: int | None = None,
        read_after: ReadAfter | None = None,
        since: ReadPoint | None = None,
    ) -> Extract:
        """All rows, or those for which ``where`` is true, at one read point, as a stream. Needs pyarrow.

        To be read to its end or closed: ``with client.extract("profiles") as extract: ...``.
        """
        steps = self._requests.extract(table, Wanted(columns, where, limit, read_after, since), ARROW)
        return Extract(table, self._run(steps), self._requests.url)

    def download(  # noqa: PLR0913  (all but two have defaults)
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
        """Writes an extract to ``sink`` in another format: arrow, parquet, csv or jsonl; what it reflects.

        ``compression``, for text: gzip or zstd, kept in the file. ``progress`` hears the bytes so far.

        Raises:
            StreamCut: the server or the connection failed; what was written until then is incomplete.
        """
        media_type, end_mark = format_of(format)
        wanted = Wanted(columns, where, limit, read_after, since)
        response = self._run(self._requests.extract(table, wanted, media_type, compression))
        received = Received(self._requests.url, end_mark)
        try:
            for chunk in response.iter_raw():
                sink.write(chunk)
                received.add(chunk)
                if progress is not None:
                    progress(received.bytes)
        except httpx.TransportError as error:
            raise received.cut(str(error) or type(error).__name__) from error
        finally:
            response.close()
        received.check_end()
        return ExtractInfo(table, response.headers)

    def start_extract(
        self,
        table: str,
        *,
        job_id: str | None = None,
        format: str = "parquet",  # noqa: A002
        columns: Sequence[str] | None = None,
        where: str | None = None,
        compression: str | None = None,
    ) -> ExtractJob:
        """Starts an extract as files on the server, a file a bucket, all at one read point.

        A start that is repeated with the same ``job_id`` is the same job.
        """
        body = {
            "id": job_id or uuid4().hex,
            "format": format,
            "columns": columns and list(columns),
            "where": where,
            "compression": compression,
        }
        return self._run(self._requests.start_extract(table, body))

    def extract_job(self, table: str, job_id: str) -> ExtractJob:
        """How far a job is, and its files."""
        return self._run(self._requests.extract_job(table, job_id))

    def extract_jobs(self, table: str) -> list[ExtractJob]:
        """The table's jobs that the server keeps, the oldest first."""
        return self._run(self._requests.extract_jobs(table))

    def cancel_extract(self, table: str, job_id: str) -> ExtractJob:
        """Ends a job, or deletes the files of one that is over."""
        return self._run(self._requests.cancel_extract(table, job_id))

    def await_extract(
        self, table: str, job_id: str, *, progress: Callable[[ExtractJob], None] | None = None
    ) -> ExtractJob:
        """The job once it is complete.

        Raises:
            JobFailed: it failed or was cancelled.
        """
        return awaited(self, table, job_id, progress or (lambda _: None))

    def download_extract(
        self, job: ExtractJob, folder: Path, *, progress: Callable[[int], None] | None = None
    ) -> list[Path]:
        """Brings the files of a complete job into a folder, and then its manifest; where the files are.

        A broken connection is gone on with where it was, and so is an earlier call that did not end. Each
        file appears when it is whole, by its checksum. Files of another job, brought there earlier, are
        deleted first.

        Raises:
            StreamCut: the connection failed too often.
        """
        manifest = self._run(self._requests.extract_manifest(job))
        with only_files_of(manifest, folder):
            return download(self._http, job, folder, self._requests.retries, progress or (lambda _: None))

    def refused(self, table: str, *, limit: int = 100) -> Refused:
        """The records that the table can't take and that aren't committed yet."""
        return self._run(self._requests.refused(table, limit))

    def close(self) -> None:
        """Ends the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, steps: Steps[T]) -> T:
        reply: Reply = None
        while True:
            try:
                step = steps.send(reply)
            except StopIteration as end:
                value: T = end.value
                return value
            reply = self._do(step)

    def _do(self, step: Call | Wait) -> Reply:
        if isinstance(step, Wait):
            time.sleep(step.seconds)
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
            response = self._http.send(request, stream=step.is_streamed)
            if step.is_streamed and response.is_error:
                response.read()
            elif step.is_streamed and not is_answer(step, response):
                response.close()
        except httpx.TransportError as error:
            return error
        return response


class Extract(ExtractInfo):
    """The rows of an extract, read once: as batches while they come in, or all of them at once.

    ``schema`` is Arrow's. ``read_point`` says exactly what the rows reflect.
    """

    def __init__(self, table: str, response: httpx.Response, url: str) -> None:
        """Use `Client.extract`."""
        super().__init__(table, response.headers)
        self._response = response
        chunks = response.iter_bytes()
        self._decoder = Decoder(url, lambda: next(chunks, None))
        try:
            self.schema = self._decoder.open()
        except BaseException:
            response.close()
            raise

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as they come in.

        Raises:
            StreamCut: the server or the connection failed; what was read until then is incomplete.
        """
        try:
            while (batch := self._decoder.next()) is not None:
                yield batch
        finally:
            self.close()

    def to_arrow(self) -> pa.Table:
        """All rows as an Arrow table. Raises as `batches`."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self.batches()), self.schema)

    def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame. Raises as `batches`."""
        return to_pandas(self.to_arrow())

    def to_polars(self) -> pl.DataFrame:
        """All rows as a Polars frame. Raises as `batches`."""
        return to_polars(self.to_arrow())

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """All rows as a DuckDB relation, of a connection or of the default one. Raises as `batches`."""
        return to_duckdb(self.to_arrow(), connection)

    def close(self) -> None:
        """Gives up what isn't read yet."""
        self._response.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

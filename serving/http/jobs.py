"""The endpoints of extract jobs."""

from __future__ import annotations

import asyncio
import os
import re
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Header
from fastapi import Path as PathParameter
from starlette.concurrency import iterate_in_threadpool
from starlette.responses import FileResponse, Response, StreamingResponse

from thermocline.errors import (
    BadParameter,
    ExtractJobsOff,
    ExtractJobUnusable,
    NotFound,
    NotReady,
    ServerBusy,
    StorageFailed,
)
from thermocline.serving.http.dependencies import Asking, JobsTable, OfWorker
from thermocline.serving.http.extract_response import READ_POINT
from thermocline.serving.http.models import ExtractJobBody, ExtractJobCreate, ExtractJobList
from thermocline.serving.http.openapi import OF_A_TABLE, TAKING_A_BODY, problems
from thermocline.serving.http.requests import JsonRoute, header_of
from thermocline.serving.jobs.files import MANIFEST, FolderFiles
from thermocline.serving.jobs.job import Job, JobRequest
from thermocline.serving.jobs.own import OwnJobs
from thermocline.serving.read.encode import FORMATS
from thermocline.serving.read.selection import Selection
from thermocline.serving.read.wanted import Wanted
from thermocline.serving.store.storage import storage_named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path

    from starlette.types import Receive, Scope, Send

    from thermocline.serving.jobs.files import ObjectFiles
    from thermocline.serving.jobs.job import JobFile

JSON: Final = "application/json"
_JOBS: Final = "/v1/tables/{table}/extracts"
# What a download goes on with, and a reader of Parquet begins with. Any other range, and one of which the
# file has nothing, is answered with the whole file, as HTTP allows.
_REST: Final = re.compile(r"bytes=(\d{1,18})-", re.ASCII)
_PART: Final = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)

# A file of a job has the type of its format, but for one that is compressed, and the manifest is JSON.
_CONTENT: Final = {
    media_type: {
        "schema": {"type": "string", "format": "binary"} if media_type != JSON else {"type": "object"}
    }
    for media_type in ("application/octet-stream", JSON, *(one.media_type for one in FORMATS.values()))
}

jobs = APIRouter(route_class=JsonRoute)


async def _store(worker: OfWorker, caller: Asking, table: JobsTable) -> OwnJobs:
    if table.name not in worker.jobs:
        raise ExtractJobsOff(table=table.name)
    return OwnJobs(worker.jobs[table.name], caller)


Store = Annotated[OwnJobs, Depends(_store)]
JobId = Annotated[
    str, PathParameter(description="The job's id, as you gave it or as the answer to the start says.")
]


@jobs.post(
    _JOBS,
    name="start_extract",
    summary="Start an extract of {table} as files",
    status_code=202,
    response_model=ExtractJobBody,
    responses=problems(
        *OF_A_TABLE,
        BadParameter,
        ExtractJobsOff,
        ExtractJobUnusable,
        ServerBusy,
        NotReady,
        bad=TAKING_A_BODY,
    ),
)
async def start(
    caller: Asking, table: JobsTable, store: Store, body: ExtractJobCreate | None = None
) -> Response:
    """Jobs run one after another. Each writes one file per bucket, all at one read point.

    If you give an id, you can repeat the start: it is then the same job.
    """
    body = body or ExtractJobCreate()
    columns = None if body.columns is None else tuple(body.columns)
    wanted = JobRequest(
        columns=columns,
        where=body.where,
        format=body.format,
        compression=body.compression,
    )
    definition = table.reader.cold.index.definition
    await asyncio.to_thread(Selection.of, definition, Wanted(columns, body.where, caller=caller))
    return _json(await asyncio.to_thread(store.create, body.id, wanted), 202)


@jobs.get(
    _JOBS,
    name="extract_jobs",
    summary="The extract jobs of {table}, oldest first",
    response_model=ExtractJobList,
    responses=problems(*OF_A_TABLE, ExtractJobsOff),
)
async def list_jobs(store: Store) -> Response:
    """Lists the jobs that are running or waiting, and those that ended recently."""
    shown = [job.shown() for job in await asyncio.to_thread(store.jobs)]
    content = msgspec.json.encode({"extracts": shown})
    return Response(content, media_type=JSON)


@jobs.get(
    f"{_JOBS}/{{id}}",
    name="extract_job",
    summary="The progress of an extract job of {table}, and its files",
    response_model=ExtractJobBody,
    responses=problems(*OF_A_TABLE, ExtractJobsOff, NotFound),
)
async def describe_job(store: Store, id: JobId) -> Response:  # noqa: A002
    """The files can be read once the job is complete."""
    return _json(await asyncio.to_thread(store.get, id))


@jobs.delete(
    f"{_JOBS}/{{id}}",
    name="cancel_extract",
    summary="Cancel an extract job of {table}, and delete its files",
    status_code=202,
    response_model=ExtractJobBody,
    responses=problems(*OF_A_TABLE, ExtractJobsOff, NotFound),
)
async def cancel(store: Store, id: JobId) -> Response:  # noqa: A002
    """A job that is waiting or running ends within a moment. If the job is over, its files are deleted."""
    return _json(await asyncio.to_thread(store.cancel, id), 202)


@jobs.get(
    f"{_JOBS}/{{id}}/files/{{name}}",
    name="extract_file",
    summary="A file of a complete extract job of {table}",
    response_class=Response,
    responses={
        200: {"content": _CONTENT},
        206: {"description": "The part that Range asks for", "content": _CONTENT},
        **problems(*OF_A_TABLE, ExtractJobsOff, NotFound, StorageFailed),
    },
)
async def file(
    store: Store,
    id: JobId,  # noqa: A002
    name: Annotated[str, PathParameter(description=f"The file's name, as the job lists it, or {MANIFEST}.")],
    range: Annotated[str | None, Header()] = None,  # noqa: A002
    if_range: Annotated[str | None, Header()] = None,
) -> Response:
    """Supports Range and If-Range, so a download that broke off can continue. ETag is the SHA-256."""
    job, files = await asyncio.to_thread(store.file, id, name)
    found = next((one for one in job.files if one.name == name), None)
    headers = {READ_POINT: msgspec.json.encode(job.read_point).decode()}
    media_type = JSON
    if found is not None:
        headers["ETag"], media_type = f'"{found.sha256}"', _media_type(job)
    if isinstance(files, FolderFiles):
        if not await asyncio.to_thread((files.folder / name).is_file):  # cancelled just now
            raise NotFound.of_job(job.table, f"{id}/{name}")
        return _File(files.folder / name, found is not None, headers=headers, media_type=media_type)
    with storage_named(job.table):
        if found is None:
            manifest = await asyncio.to_thread(files.manifest)
            if manifest is None:  # cancelled just now
                raise NotFound.of_job(job.table, f"{id}/{name}")
            return Response(manifest, headers=headers, media_type=media_type)
        start = _start(range or "") if if_range in (None, headers["ETag"]) else 0
        return await _streamed(files, found, start, headers, media_type)


class _File(FileResponse):
    """A file of a folder, or a part of it. Starlette would answer other ranges with errors that are text."""

    def __init__(self, path: Path, may_be_part: bool, headers: Mapping[str, str], media_type: str) -> None:
        super().__init__(path, headers=headers, media_type=media_type)
        self._may_be_part = may_be_part  # of JSON it would be none

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers."""
        self.stat_result = found = await asyncio.to_thread(os.stat, self.path)
        self.set_stat_headers(found)
        if not (self._may_be_part and _has_part(header_of(scope, "Range") or "", found.st_size)):
            others = [field for field in scope["headers"] if field[0] != b"range"]
            scope = {**scope, "headers": others}
        await super().__call__(scope, receive, send)


def _has_part(wanted: str, size: int) -> bool:
    """Whether a file of that size has something of a range."""
    part = _PART.fullmatch(wanted)
    if part is None:
        return False
    first, last = part.groups()
    if not first:  # as many from its end
        return int(last or 0) > 0 and size > 0
    return int(first) < size and (not last or int(last) >= int(first))


def _start(wanted: str) -> int:
    """The first byte that a Range asks for, 0 for one of another form than clients use to continue."""
    rest = _REST.fullmatch(wanted)
    return int(rest[1]) if rest else 0


async def _streamed(
    files: ObjectFiles, file: JobFile, start: int, headers: dict[str, str], media_type: str
) -> Response:
    """A file of an object store from ``start`` on, or all of it if it ends before. Raises `OSError`."""
    is_part = 0 < start < file.bytes
    if is_part:
        headers["Content-Range"] = f"bytes {start}-{file.bytes - 1}/{file.bytes}"
    else:
        start = 0
    headers |= {"Accept-Ranges": "bytes", "Content-Length": str(file.bytes - start)}
    parts = files.parts(file.name, start)
    # What can't be read is an error of ours, as long as no part of the file has been sent.
    first = await asyncio.to_thread(next, parts, b"")
    content: AsyncIterator[bytes] = iterate_in_threadpool(chain((first,), parts))
    return StreamingResponse(content, 206 if is_part else 200, headers, media_type)


def _media_type(job: Job) -> str:
    """A compressed file is sent as it is, and not as a coding that a client undoes."""
    return "application/octet-stream" if job.request.compression else FORMATS[job.request.format].media_type


def _json(job: Job, status: int = 200) -> Response:
    content: Any = msgspec.json.encode(job.shown())
    return Response(content, status, media_type=JSON)

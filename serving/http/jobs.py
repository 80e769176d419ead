"""The endpoints of extract jobs."""

from __future__ import annotations

import asyncio
import re
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Header, Path
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
    UnknownTable,
)
from thermocline.serving.http.dependencies import Asking, JobsTable, OfWorker
from thermocline.serving.http.extract_response import READ_POINT
from thermocline.serving.http.models import ExtractJobBody, ExtractJobCreate, ExtractJobList
from thermocline.serving.http.openapi import TAKING_A_BODY, problems
from thermocline.serving.http.requests import JsonRoute
from thermocline.serving.jobs.files import MANIFEST, FolderFiles
from thermocline.serving.jobs.job import Job, JobRequest
from thermocline.serving.jobs.own import OwnJobs
from thermocline.serving.read.encode import FORMATS
from thermocline.serving.read.selection import Selection
from thermocline.serving.read.wanted import Wanted
from thermocline.serving.store.storage import storage_named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from thermocline.serving.jobs.files import ObjectFiles
    from thermocline.serving.jobs.job import JobFile

JSON: Final = "application/json"
_JOBS: Final = "/v1/tables/{table}/extracts"
# What a download goes on with. Any other range is answered with the whole file, as HTTP allows.
_REST: Final = re.compile(r"bytes=(\d{1,18})-")

jobs = APIRouter(route_class=JsonRoute)


async def _store(worker: OfWorker, caller: Asking, table: JobsTable) -> OwnJobs:
    if table.name not in worker.jobs:
        raise ExtractJobsOff(table=table.name)
    return OwnJobs(worker.jobs[table.name], caller)


Store = Annotated[OwnJobs, Depends(_store)]
JobId = Annotated[str, Path(description="The job's id, as you gave it or as the answer to the start says.")]


@jobs.post(
    _JOBS,
    name="start_extract",
    summary="Start an extract of {table} as files",
    status_code=202,
    response_model=ExtractJobBody,
    responses=problems(
        UnknownTable,
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
    responses=problems(UnknownTable, ExtractJobsOff),
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
    responses=problems(UnknownTable, ExtractJobsOff, NotFound),
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
    responses=problems(UnknownTable, ExtractJobsOff, NotFound),
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
        200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}},
        206: {"description": "The part that Range asks for"},
        **problems(UnknownTable, ExtractJobsOff, NotFound, StorageFailed),
    },
)
async def file(
    store: Store,
    id: JobId,  # noqa: A002
    name: Annotated[str, Path(description=f"The file's name, as the job lists it, or {MANIFEST}.")],
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
        return FileResponse(files.folder / name, headers=headers, media_type=media_type)
    with storage_named(job.table):
        if found is None:
            manifest = await asyncio.to_thread(files.manifest)
            if manifest is None:  # cancelled just now
                raise NotFound.of_job(job.table, f"{id}/{name}")
            return Response(manifest, headers=headers, media_type=media_type)
        start = _start(range or "") if if_range in (None, headers["ETag"]) else 0
        return await _streamed(files, found, start, headers, media_type)


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

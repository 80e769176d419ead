"""Runs a server's extract jobs, one at a time, in a process of its own at the lowest priority."""

from __future__ import annotations

import hashlib
import logging
import math
import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import msgspec
import pyarrow as pa

from thermocline.errors import NotReady, StateDirUnusable, StorageFailed, ThermoclineError
from thermocline.process.clock import SystemClock
from thermocline.process.logs import fields
from thermocline.process.private_folder import make_private
from thermocline.serving.hot.disk import try_lock
from thermocline.serving.jobs.job import Job, JobFile, Manifest, State
from thermocline.serving.jobs.store import JobStore
from thermocline.serving.read.encode import encoded
from thermocline.serving.store.storage import STORAGE_ERRORS, storage_failed
from thermocline.serving.tail.refreshing import refresh_until

if TYPE_CHECKING:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    from thermocline.process.clock import Clock
    from thermocline.rules.definition import Column
    from thermocline.serving.read.extract import Extract
    from thermocline.serving.read.tables import Tables
    from thermocline.settings import ServingSettings

# New jobs and cancellations are noticed within this; each look reads a few small files.
POLL_SECONDS: Final = 0.2
# As a worker's: what this process leases follows the newest snapshot, also while a job runs.
REFRESH_SECONDS: Final = 0.5
# After a job could not read the table: once, as the store may be back by then.
AGAIN_SECONDS: Final = 60.0
# The lowest: lookups have the cores to themselves whenever they want them. No lookup waits for a lock of it.
NICE: Final = 19
LOCK: Final = "runner.lock"

log = logging.getLogger(__name__)


class _Interrupted(Exception):
    """The job is not wanted any more, or the server is told to stop."""


@dataclass(frozen=True, slots=True)
class _Part:
    """The rows of one bucket, to be encoded."""

    schema: pa.Schema
    columns: Sequence[Column]
    rows: Iterable[pa.RecordBatch]

    def batches(self) -> Iterable[pa.RecordBatch]:
        return self.rows


def stores(
    settings: ServingSettings, tables: Iterable[str], clock: Clock, io: PyArrowFileIO
) -> dict[str, JobStore]:
    """By table, where its jobs are; empty where there are to be none. ``io`` reaches object stores."""
    if settings.extract_jobs_dir is None:
        return {}
    root, unfinished_max = settings.extract_jobs_dir, settings.extracts_waiting_max + 1
    objects = settings.extract_jobs_store
    return {table: JobStore(root, table, clock, unfinished_max, io, objects) for table in tables}


def run_jobs(tables: Tables, settings: ServingSettings, io: PyArrowFileIO, stop: threading.Event) -> None:
    """Runs the jobs of all tables until it is told to stop.

    Raises:
        StateDirUnusable: the folder can't be written, or another server uses it.
    """
    os.setpriority(os.PRIO_PROCESS, 0, NICE)
    clock = SystemClock()
    root = settings.extract_jobs_dir
    assert root is not None
    by_table = stores(settings, (table.name for table in tables), clock, io)
    with _held(root):
        for table in tables:  # a thread each: a store that does not answer holds up its tables alone
            work = (stop, table.name, table.refresh, REFRESH_SECONDS)
            threading.Thread(target=refresh_until, args=work, name="refresh", daemon=True).start()
        retention_ms = round(settings.extract_jobs_retention_hours * 3_600_000)
        runner = JobRunner(tables, by_table, clock, retention_ms, stop)
        while not stop.is_set():
            try:
                is_idle = not runner.step()
            except OSError as error:  # the folder's disk: tried again, as others may make room
                log.warning("extract jobs are held up", extra=fields(detail=os.strerror(error.errno or 0)))
                is_idle = True
            if is_idle:
                stop.wait(POLL_SECONDS)


class JobRunner:
    """Runs the oldest job that waits, and clears away what is not wanted any more."""

    def __init__(
        self,
        tables: Tables,
        by_table: Mapping[str, JobStore],
        clock: Clock,
        retention_ms: int,
        stop: threading.Event,
    ) -> None:
        self._tables = tables
        self._stores = by_table
        self._clock = clock
        self._retention_ms = retention_ms
        self._stop = stop
        self._again_at: dict[tuple[str, str], float] = {}  # of jobs that could not read the table once

    def step(self) -> bool:
        """Clears away, and runs one job; whether there was one that could be run.

        A job that runs by its own account is one of a process that died, or whose end could not be written.
        """
        for store in self._stores.values():
            store.recover()
        self._clear_away()
        unready: set[str] = set()
        for store, job in self._waiting():
            again_at = self._again_at.get((job.table, job.id), -math.inf)
            if job.table in unready or again_at > self._clock.monotonic():
                continue
            if self._is_run(store, job):
                return True
            unready.add(job.table)
        return False

    def _clear_away(self) -> None:
        """What is not wanted any more, but for a job that is being run: that ends by itself."""
        for store in self._stores.values():
            store.expire(self._clock.now_ms() - self._retention_ms)
            for job in store.jobs():
                is_done_with = job.state in {State.RUNNING, State.CANCELLED}
                if not is_done_with and store.is_cancelled(job):
                    store.end(job, State.CANCELLED)

    def _waiting(self) -> list[tuple[JobStore, Job]]:
        waiting = (
            (store, job)
            for store in self._stores.values()
            for job in store.jobs()
            if job.state is State.QUEUED
        )
        return sorted(waiting, key=lambda one: one[1].created_ms)

    def _is_run(self, store: JobStore, job: Job) -> bool:
        """Runs a job; False where its table can't be read yet, so that it waits on."""
        try:
            table = self._tables[job.table]
            extract = table.extract(job.request.wanted(job.table), table.reader.end())
        except NotReady:
            return False
        except ThermoclineError as error:
            store.end(job, State.FAILED, f"[{error.code}] {error.what}")
            return True
        with closing(extract):
            job = store.save(
                msgspec.structs.replace(
                    job,
                    state=State.RUNNING,
                    read_point=extract.read_point.to_dict(),
                    buckets=table.definition.buckets,
                    location=store.new_location(job),
                )
            )
            self._end(store, job, extract)
        return True

    def _end(self, store: JobStore, job: Job, extract: Extract) -> None:
        """Writes the files, and says what came of it."""
        started_at = self._clock.monotonic()
        try:
            job = self._written(store, job, extract)
            job = store.publish(job, _manifest(job, extract))
        except _Interrupted:
            # An orderly stop is no fault of the job: the next server makes it, at a read point of its own.
            store.end(job, State.CANCELLED if store.is_cancelled(job) else State.QUEUED)
        except ThermoclineError as error:
            place = job.table, job.id
            if isinstance(error, StorageFailed) and place not in self._again_at:
                # What the catalog granted of the store may have ended; it is granted again meanwhile.
                self._again_at[place] = self._clock.monotonic() + AGAIN_SECONDS
                store.end(job, State.QUEUED)
            else:
                store.end(job, State.FAILED, f"[{error.code}] {error.what}")
        except STORAGE_ERRORS as error:
            failed = storage_failed(job.table, error)
            extra = fields(table=job.table, job=job.id, location=job.location, detail=str(error))
            log.warning("extract job failed", extra=extra)
            store.end(job, State.FAILED, f"[{failed.code}] {failed.what}")
        seconds = round(self._clock.monotonic() - started_at, 3)
        ended = store.get(job.id)
        extra = fields(table=job.table, job=job.id, state=ended.state, rows=extract.rows, seconds=seconds)
        log.info("extract job ended", extra=extra)

    def _written(self, store: JobStore, job: Job, extract: Extract) -> Job:
        for bucket, batches in extract.by_bucket():
            self._check_wanted(store, job)
            with suppress(OSError):  # the next step meets it again
                self._clear_away()
            rows = iter(batches)
            first = next(rows, None)
            files = job.files
            if first is not None:
                files = (*files, self._file(store, job, bucket, extract, chain((first,), rows)))
            job = store.save(msgspec.structs.replace(job, files=files, buckets_done=bucket + 1))
        return msgspec.structs.replace(job, buckets_done=job.buckets)

    def _check_wanted(self, store: JobStore, job: Job) -> None:
        if self._stop.is_set() or store.is_cancelled(job):
            raise _Interrupted

    def _file(
        self, store: JobStore, job: Job, bucket: int, extract: Extract, batches: Iterator[pa.RecordBatch]
    ) -> JobFile:
        name = f"bucket-{bucket:05}{job.request.extension}"
        rows = size = 0

        def counted() -> Iterator[pa.RecordBatch]:
            nonlocal rows
            for batch in batches:
                rows += batch.num_rows
                yield batch

        digest = hashlib.sha256()
        part = _Part(extract.schema, extract.columns, counted())
        with store.files(job).sink(name) as sink:
            for chunk in encoded(part, job.request.format, job.request.compression):
                self._check_wanted(store, job)
                sink.write(chunk)
                digest.update(chunk)
                size += len(chunk)
        return JobFile(name=name, bucket=bucket, rows=rows, bytes=size, sha256=digest.hexdigest())


def _manifest(job: Job, extract: Extract) -> Manifest:
    return Manifest(
        id=job.id,
        table=job.table,
        read_point=extract.read_point.to_dict(),
        columns=tuple({"name": field.name, "type": str(field.type)} for field in extract.schema),
        format=job.request.format,
        compression=job.request.compression,
        rows=sum(one.rows for one in job.files),
        bytes=sum(one.bytes for one in job.files),
        files=job.files,
    )


def _held(root: Path) -> IO[bytes]:
    """The folder, for this server's runner alone."""
    try:
        make_private(root)
        lock = try_lock(root / LOCK)
    except OSError as error:
        raise StateDirUnusable(path=str(root), detail=str(error)) from error
    if lock is None:
        raise StateDirUnusable(path=str(root), detail="another server is using it")
    return lock

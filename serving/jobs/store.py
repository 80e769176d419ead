"""The records of extract jobs, and their files: ``<root>/<table>/<id>``, with ``job.json``.

API workers create jobs and ask for their cancellation; the runner alone changes a job after that. Whatever is
read by others appears whole: a job's folder and each JSON file are renamed into place.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec

from thermocline.errors import BadParameter, ExtractJobUnusable, NotFound, ServerBusy
from thermocline.process.logs import fields
from thermocline.serving.hot.file_version import file_version
from thermocline.serving.jobs.files import CANCEL, JOB, MANIFEST, FolderFiles, ObjectFiles, replace_file
from thermocline.serving.jobs.job import STORED_ID_FORM, Job, JobRequest, Manifest, State

if TYPE_CHECKING:
    from pyiceberg.io.pyarrow import PyArrowFileIO

    from thermocline.process.clock import Clock

_NEW: Final = ".new-"

log = logging.getLogger(__name__)


class JobStore:
    """The jobs of one table."""

    def __init__(
        self,
        root: Path,
        table: str,
        clock: Clock,
        unfinished_max: int,
        io: PyArrowFileIO,
        objects: str | None = None,
    ) -> None:
        """``unfinished_max``: more jobs than that are not taken while none of them ends.

        ``objects`` is the URI below which new jobs put their files, by ``io``; without it they put them
        beside their records.
        """
        self.table = table
        self._root = root / table
        self._io = io
        self._objects = objects
        self._clock = clock
        self._unfinished_max = unfinished_max
        self._read: dict[Path, tuple[object, Job]] = {}  # records, with their files' versions

    def create(self, job_id: str | None, request: JobRequest) -> Job:
        """A new job, or the one that has this id already and asks for the same.

        Raises:
            BadParameter: the id or the format is none.
            ExtractJobUnusable: a job of that id asks for something else.
            ServerBusy: too many jobs are not over yet.
        """
        request.check()
        job_id = job_id or uuid4().hex
        if STORED_ID_FORM.fullmatch(job_id) is None:  # safety: job-id-form
            raise BadParameter(name="id", problem=f"it must match {STORED_ID_FORM.pattern}")
        if not self._folder(job_id).exists():
            self._check_room()
            now_ms = self._clock.now_ms()
            job = Job(id=job_id, table=self.table, request=request, created_ms=now_ms, changed_ms=now_ms)
            if self._is_placed(job):
                return job
        existing = self.get(job_id)
        if existing.request != request:
            raise ExtractJobUnusable(table=self.table, job=job_id)
        return existing

    def get(self, job_id: str) -> Job:
        """Raises `NotFound`."""
        if STORED_ID_FORM.fullmatch(job_id) is not None:
            with suppress(FileNotFoundError):
                return msgspec.json.decode((self._folder(job_id) / JOB).read_bytes(), type=Job)
        raise NotFound.of_job(self.table, job_id)

    def jobs(self) -> list[Job]:
        """All of them, the oldest first."""
        return sorted(self._jobs(), key=lambda job: (job.created_ms, job.id))

    def file(self, job_id: str, name: str) -> tuple[Job, FolderFiles | ObjectFiles]:
        """A complete job that has this file, and where its files are. Raises `NotFound`."""
        job = self.get(job_id)
        names = {MANIFEST, *(one.name for one in job.files)}
        # safety: job-files-when-complete
        if job.state is not State.COMPLETE or name not in names:
            raise NotFound.of_job(self.table, f"{job_id}/{name}")
        return job, self.files(job)

    def cancel(self, job_id: str) -> Job:
        """Asks for an end of the job, and for its files to be deleted; the job as it still is."""
        job = self.get(job_id)
        try:
            (self._folder(job_id) / CANCEL).touch()
        except FileNotFoundError as error:  # expired just now
            raise NotFound.of_job(self.table, job_id) from error
        return job

    def is_cancelled(self, job: Job) -> bool:
        """Whether somebody asked for its end."""
        return (self._folder(job.id) / CANCEL).exists()

    def new_location(self, job: Job) -> str | None:
        """Where an attempt at the job puts its files, if that is an object store.

        No other attempt has it, also of a server that has a job of the same name: neither overwrites or
        deletes files of the other.
        """
        # safety: job-own-location
        return self._objects and f"{self._objects.rstrip('/')}/{self.table}/{job.id}-{uuid4().hex[:12]}"

    def files(self, job: Job) -> FolderFiles | ObjectFiles:
        """Where the job's files are."""
        if job.location is None:
            return FolderFiles(self._folder(job.id))
        return ObjectFiles(self._io, job.location)

    def save(self, job: Job) -> Job:
        """What has become of a job."""
        changed = msgspec.structs.replace(job, changed_ms=self._clock.now_ms())
        replace_file(self._folder(job.id) / JOB, msgspec.json.encode(changed))
        return changed

    def publish(self, job: Job, manifest: Manifest) -> Job:
        """Completes a job whose files are all stored."""
        self.files(job).publish(msgspec.json.format(msgspec.json.encode(manifest), indent=2))
        return self.save(msgspec.structs.replace(job, state=State.COMPLETE))

    def end(self, job: Job, state: State, problem: str | None = None) -> Job:
        """Ends a job without a result, and deletes its files; as ``queued`` it is made again from nothing."""
        left = () if self._are_deleted(job) else job.locations
        emptied = msgspec.structs.replace(job, files=(), buckets=0, buckets_done=0, read_point=None)
        ended = msgspec.structs.replace(emptied, state=state, problem=problem, location=None, left=left)
        return self.save(ended)

    def recover(self) -> None:
        """Ends the jobs of a process that died: complete where there is a manifest, else failed."""
        for job in self._jobs():
            if job.state is not State.RUNNING:
                continue
            try:
                content = self.files(job).manifest()
            except OSError as error:
                if job.location is None:
                    raise
                self._warn("the manifest of an extract job can't be read; trying again", job, error)
                continue
            if content is None:
                # safety: job-half-written
                self.end(job, State.FAILED, "the server ended while it ran; start it again under another id")
                continue
            try:
                files = msgspec.json.decode(content, type=Manifest).files
            except msgspec.MsgspecError as error:  # such as one that names what is no file of a job
                self.end(job, State.FAILED, f"its manifest can't be read: {error}; start it under another id")
                continue
            self.save(
                msgspec.structs.replace(job, state=State.COMPLETE, files=files, buckets_done=job.buckets)
            )

    def expire(self, before_ms: int) -> None:
        """Deletes jobs that were over before then, and what processes that died left half made or deleted."""
        for job in self._jobs():
            if job.state.is_over and job.changed_ms < before_ms:
                if self._are_deleted(job):
                    self._remove(self._folder(job.id))
                else:
                    self.save(job)  # it is tried again once as much time has passed
        for folder in self._root.glob(f"{_NEW}*"):
            if folder.stat().st_mtime * 1000 < before_ms:
                shutil.rmtree(folder)

    def _remove(self, folder: Path) -> None:
        """Deletes a folder, of which no part is ever left where a job's folder is."""
        removed = self._root / f"{_NEW}{uuid4().hex}"
        folder.rename(removed)
        shutil.rmtree(removed)

    def _are_deleted(self, job: Job) -> bool:
        """Deletes the job's files; False if the object store fails, which must not hold up other jobs."""
        try:
            for location in job.locations:
                ObjectFiles(self._io, location).delete()
        except OSError as error:
            self._warn("files of an extract job can't be deleted", job, error)
            return False
        if job.location is None:
            self.files(job).delete()
        return True

    def _warn(self, message: str, job: Job, error: OSError) -> None:
        detail = fields(table=self.table, job=job.id, locations=list(job.locations), detail=str(error))
        log.warning(message, extra=detail)

    def _jobs(self) -> Iterator[Job]:
        read: dict[Path, tuple[object, Job]] = {}
        for path in self._root.glob(f"[!.]*/{JOB}"):
            with suppress(FileNotFoundError):  # expired meanwhile
                version = file_version(path)
                known = self._read.get(path)
                if known is None or known[0] != version:
                    known = version, msgspec.json.decode(path.read_bytes(), type=Job)
                if known[1].state.is_over:  # the many; others are changed all the time
                    read[path] = known
                yield known[1]
        self._read = read

    def _check_room(self) -> None:
        unfinished = sum(not job.state.is_over for job in self._jobs())
        if unfinished >= self._unfinished_max:
            raise ServerBusy.of_extracts(self.table, 1, self._unfinished_max - 1)

    def _is_placed(self, job: Job) -> bool:
        """Puts a new job's folder in its place; False where another one has come first."""
        new = self._root / f"{_NEW}{uuid4().hex}"
        new.mkdir(parents=True)
        replace_file(new / JOB, msgspec.json.encode(job))
        try:
            new.rename(self._folder(job.id))
        except OSError:
            shutil.rmtree(new)
            if self._folder(job.id).exists():
                return False
            raise
        return True

    def _folder(self, job_id: str) -> Path:
        return self._root / job_id

"""The folder of extract jobs: ``<root>/<table>/<id>``, with ``job.json``, files and ``manifest.json``.

API workers create jobs and ask for their cancellation; the runner alone changes a job after that. Whatever is
read by others appears whole: a job's folder and each JSON file are renamed into place.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import msgspec

from serving.jobs.job import ID_FORM, Job, JobRequest, Manifest, State
from thermocline.errors import BadParameter, ExtractJobDiffers, ExtractJobNotFound, ExtractsBusy

if TYPE_CHECKING:
    from thermocline.process.clock import Clock

JOB: Final = "job.json"
MANIFEST: Final = "manifest.json"
CANCEL: Final = "cancel"
_NEW: Final = ".new-"


class JobStore:
    """The jobs of one table."""

    def __init__(self, root: Path, table: str, clock: Clock, unfinished_max: int) -> None:
        """``unfinished_max``: more jobs than that are not taken while none of them ends."""
        self.table = table
        self._root = root / table
        self._clock = clock
        self._unfinished_max = unfinished_max

    def create(self, job_id: str | None, request: JobRequest) -> Job:
        """A new job, or the one that has this id already and asks for the same.

        Raises:
            BadParameter: the id or the format is none.
            ExtractJobDiffers: a job of that id asks for something else.
            ExtractsBusy: too many jobs are not over yet.
        """
        request.check()
        job_id = job_id or uuid4().hex
        if ID_FORM.fullmatch(job_id) is None:  # safety: job-id-form
            raise BadParameter(name="id", problem=f"it must match {ID_FORM.pattern}")
        if not self._folder(job_id).exists():
            self._check_room()
            now_ms = self._clock.now_ms()
            job = Job(id=job_id, table=self.table, request=request, created_ms=now_ms, changed_ms=now_ms)
            if self._is_placed(job):
                return job
        existing = self.get(job_id)
        if existing.request != request:
            raise ExtractJobDiffers(table=self.table, job=job_id)
        return existing

    def get(self, job_id: str) -> Job:
        """Raises `ExtractJobNotFound`."""
        if ID_FORM.fullmatch(job_id) is not None:
            with suppress(FileNotFoundError):
                return msgspec.json.decode((self._folder(job_id) / JOB).read_bytes(), type=Job)
        raise ExtractJobNotFound(table=self.table, job=job_id)

    def jobs(self) -> list[Job]:
        """All of them, the oldest first."""
        return sorted(self._jobs(), key=lambda job: (job.created_ms, job.id))

    def file(self, job_id: str, name: str) -> tuple[Job, Path]:
        """A file of a complete job, or its manifest. Raises `ExtractJobNotFound`."""
        job = self.get(job_id)
        names = {MANIFEST, *(one.name for one in job.files)}
        # safety: job-files-when-complete
        if job.state is not State.COMPLETE or name not in names:
            raise ExtractJobNotFound(table=self.table, job=f"{job_id}/{name}")
        return job, self._folder(job_id) / name

    def cancel(self, job_id: str) -> Job:
        """Asks for an end of the job, and for its files to be deleted; the job as it still is."""
        job = self.get(job_id)
        try:
            (self._folder(job_id) / CANCEL).touch()
        except FileNotFoundError as error:  # expired just now
            raise ExtractJobNotFound(table=self.table, job=job_id) from error
        return job

    def is_cancelled(self, job: Job) -> bool:
        """Whether somebody asked for its end."""
        return (self._folder(job.id) / CANCEL).exists()

    def path(self, job: Job, name: str) -> Path:
        """Where the runner writes a file of the job."""
        return self._folder(job.id) / name

    def save(self, job: Job) -> Job:
        """What has become of a job."""
        changed = msgspec.structs.replace(job, changed_ms=self._clock.now_ms())
        _replace(self._folder(job.id) / JOB, msgspec.json.encode(changed))
        return changed

    def publish(self, job: Job, manifest: Manifest) -> Job:
        """Completes a job whose files are all on disk."""
        content = msgspec.json.format(msgspec.json.encode(manifest), indent=2)
        _replace(self._folder(job.id) / MANIFEST, content)
        return self.save(msgspec.structs.replace(job, state=State.COMPLETE))

    def end(self, job: Job, state: State, problem: str | None = None) -> Job:
        """Ends a job without a result, and deletes its files; as ``queued`` it is made again from nothing."""
        # The manifest first: without it, what a kill leaves of the others is no result.
        (self._folder(job.id) / MANIFEST).unlink(missing_ok=True)
        for path in self._folder(job.id).iterdir():
            if path.name not in {JOB, CANCEL}:
                path.unlink()
        emptied = msgspec.structs.replace(job, files=(), buckets=0, buckets_done=0, read_point=None)
        return self.save(msgspec.structs.replace(emptied, state=state, problem=problem))

    def recover(self) -> None:
        """Ends the jobs of a process that died: complete where there is a manifest, else failed."""
        for job in self._jobs():
            if job.state is not State.RUNNING:
                continue
            try:
                content = (self._folder(job.id) / MANIFEST).read_bytes()
            except FileNotFoundError:
                # safety: job-half-written
                self.end(job, State.FAILED, "the server ended while it ran; start it again under another id")
                continue
            files = msgspec.json.decode(content, type=Manifest).files
            self.save(
                msgspec.structs.replace(job, state=State.COMPLETE, files=files, buckets_done=job.buckets)
            )

    def expire(self, before_ms: int) -> None:
        """Deletes jobs that were over before then, and what creators that died left."""
        for job in self._jobs():
            if job.state.is_over and job.changed_ms < before_ms:
                # The manifest first: without it, what a kill leaves of the folder is no result.
                (self._folder(job.id) / MANIFEST).unlink(missing_ok=True)
                shutil.rmtree(self._folder(job.id))
        for folder in self._root.glob(f"{_NEW}*"):
            if folder.stat().st_mtime * 1000 < before_ms:
                shutil.rmtree(folder)

    def _jobs(self) -> Iterator[Job]:
        for path in self._root.glob(f"[!.]*/{JOB}"):
            with suppress(FileNotFoundError):  # expired meanwhile
                yield msgspec.json.decode(path.read_bytes(), type=Job)

    def _check_room(self) -> None:
        unfinished = sum(not job.state.is_over for job in self._jobs())
        if unfinished >= self._unfinished_max:
            raise ExtractsBusy(table=self.table, running_max=1, waiting_max=self._unfinished_max - 1)

    def _is_placed(self, job: Job) -> bool:
        """Puts a new job's folder in its place; False where another one has come first."""
        new = self._root / f"{_NEW}{uuid4().hex}"
        new.mkdir(parents=True)
        (new / JOB).write_bytes(msgspec.json.encode(job))
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


def _replace(path: Path, content: bytes) -> None:
    """Writes a file that appears whole, also after a power failure."""
    partial = path.with_name(f".{path.name}.partial")
    with partial.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)

"""A caller's jobs: ids are theirs alone, so that nobody learns which ones others chose."""

from __future__ import annotations

import hashlib
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import msgspec

from thermocline.errors import BadParameter, ExtractJobUnusable, NotFound
from thermocline.serving.jobs.job import ID_FORM

if TYPE_CHECKING:
    from thermocline.serving.jobs.files import FolderFiles, ObjectFiles
    from thermocline.serving.jobs.job import Job, JobRequest
    from thermocline.serving.jobs.store import JobStore
    from thermocline.serving.read.caller import Caller, Part

__all__ = ["OwnJobs"]

_DIGITS: Final = 16
"""Of a caller's digest, before the ids that they choose."""


class OwnJobs:
    """The jobs of a table as one caller has them.

    Their own have the ids that they gave them. Who operates the table also sees those of others, by the ids
    that the store has. Asks the disk.
    """

    def __init__(self, store: JobStore, caller: Caller) -> None:
        self.table = store.table
        self._store = store
        self._caller = caller
        # Without credentials there is one caller, whose ids are as they are.
        is_known = caller.grants is not None
        digest = hashlib.sha256(caller.name.encode()).hexdigest()[:_DIGITS]
        self._prefix = f"{digest}-" if is_known else ""

    def create(self, job_id: str | None, request: JobRequest) -> Job:
        """As `JobStore.create`, for the caller's part of the table."""
        wanted = msgspec.structs.replace(request, caller=self._caller.name, part=self._part)
        if job_id is None:
            return self._store.create(None, wanted)
        if ID_FORM.fullmatch(job_id) is None:  # safety: job-own-id-form
            raise BadParameter(name="id", problem=f"it must match {ID_FORM.pattern}")
        try:
            return self._shown(self._store.create(self._prefix + job_id, wanted))
        except ExtractJobUnusable as error:
            raise ExtractJobUnusable(table=self.table, job=job_id, detail=error.detail) from error

    def get(self, job_id: str) -> Job:
        """A job that the caller may see; as if there were none for those of others. Raises `NotFound`."""
        return self._shown(self._found(job_id))

    def jobs(self) -> list[Job]:
        """Those that the caller may see, the oldest first."""
        return [self._shown(job) for job in self._store.jobs() if self._may_see(job)]

    def file(self, job_id: str, name: str) -> tuple[Job, FolderFiles | ObjectFiles]:
        """As `JobStore.file`, of a job that the caller may see."""
        try:
            job, files = self._store.file(self._found(job_id).id, name)
        except NotFound as error:
            raise NotFound.of_job(self.table, f"{job_id}/{name}") from error
        return self._shown(job), files

    def cancel(self, job_id: str) -> Job:
        """As `JobStore.cancel`, of a job that the caller may see."""
        return self._shown(self._store.cancel(self._found(job_id).id))

    @property
    def _part(self) -> Part:
        return self._caller.grant(self.table).part

    def _found(self, job_id: str) -> Job:
        for stored in dict.fromkeys((self._prefix + job_id, job_id)):
            with suppress(NotFound):
                job = self._store.get(stored)
                if self._may_see(job):
                    return job
        raise NotFound.of_job(self.table, job_id)

    def _may_see(self, job: Job) -> bool:
        asked = job.request
        return self._caller.may_see(self.table, asked.caller, asked.part)  # safety: caller-own-jobs

    def _shown(self, job: Job) -> Job:
        """With the id that its caller gave it."""
        if not self._prefix or not job.id.startswith(self._prefix):
            return job
        return msgspec.structs.replace(job, id=job.id.removeprefix(self._prefix))

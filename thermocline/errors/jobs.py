"""Errors of a server with too much to do, and of extract jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from thermocline.errors.request import RequestError
from thermocline.errors.root import ExitCode


class ServerBusy(RequestError):
    """Too many requests of this kind are waiting already.

    Each API process lets a limited number of entities wait for files of the same disk or bucket; lookups
    whose rows are in memory are still answered. It also limits how many engines wait for a snapshot of a live
    table. A server streams serving.extracts_max extracts at once, runs one extract job at a time, and lets
    serving.extracts_waiting_max of each kind wait. A longer queue would only delay every answer, including
    those that nobody waits for any more.

    Nothing was read. Ask again in a moment. If it keeps happening, raise the setting that the message names
    (serving.workers for lookups), or add servers.
    """

    code = "server-busy"
    http_status = 503
    exit_code = ExitCode.UNAVAILABLE
    retryable = True
    _what = "table {table} was not read: {full}."
    _next = "ask again in a moment; if it keeps happening, raise {setting}"

    table: str
    full: str
    setting: str

    @classmethod
    def of_lookups(cls, table: str, waiting_max: int) -> Self:
        """Entities that wait for files."""
        full = f"{waiting_max} entities are already waiting for rows in files"
        return cls(table=table, full=full, setting="serving.workers")

    @classmethod
    def of_loads(cls, table: str, waiting_max: int) -> Self:
        """Engines that wait for a snapshot of the live catalog."""
        full = f"{waiting_max} engines are already waiting for a snapshot of it"
        return cls(table=table, full=full, setting="serving.workers")

    @classmethod
    def of_extracts(cls, table: str, running_max: int, waiting_max: int) -> Self:
        """Extracts, or jobs, that run and wait."""
        full = f"{running_max} extracts are running and {waiting_max} waiting"
        return cls(table=table, full=full, setting="serving.extracts_max or serving.extracts_waiting_max")


class ExtractJobsOff(RequestError):
    """The server takes no extract jobs.

    serving.extract_jobs_dir is not set, so there is no folder for their files.

    Nothing was changed. Set it and start the server again, or stream the extract instead.
    """

    code = "extract-jobs-off"
    _what = "this server takes no extract jobs: serving.extract_jobs_dir is not set."
    _next = "set serving.extract_jobs_dir, or: thermocline extract {table} --url URL"

    table: str


class NotFound(RequestError):
    """The table has no such extract job or file, or its quarantine no such record.

    Jobs are deleted serving.extract_jobs_retention_hours after they are over. The files of a job can be read
    once it is complete; those of a failed or cancelled one are deleted.

    A quarantined record is named by its place in the log, TOPIC/PARTITION@OFFSET. It was never bad, or it was
    replayed or purged.

    Nothing was changed. The command that the message names lists what there is.
    """

    code = "not-found"
    http_status = 404
    exit_code = ExitCode.BAD_ANSWER
    _what = "table {table} has no {wanted}."
    _state = "nothing was changed."
    _next = "{listing}"

    table: str
    wanted: str
    listing: str

    @classmethod
    def of_job(cls, table: str, job: str) -> Self:
        """An extract job, or a file of one."""
        listing = f"thermocline jobs list {table}"
        return cls(table=table, wanted=f"extract job or finished file {job}", listing=listing)

    @classmethod
    def of_quarantine(cls, table: str, records: Sequence[str]) -> Self:
        """Records that are not in quarantine."""
        listing = f"thermocline quarantine list {table}"
        return cls(table=table, wanted=f"quarantined record {', '.join(records)}", listing=listing)


class ExtractJobUnusable(RequestError):
    """The extract job failed or was cancelled, or asks for something else.

    The files of a job that failed or was cancelled are deleted. The job says why, even if it was running when
    the server was killed.

    A job that is started again under its id is the same job, so its columns, condition, format and
    compression must be the same.

    The table is unharmed, and the other job is unchanged. Start the extract under another id, or without one.
    """

    code = "extract-job-unusable"
    http_status = 409
    exit_code = ExitCode.UNAVAILABLE
    _what = "the extract job {job} of table {table} {problem}."
    _cause = "{detail}"
    _next = "thermocline jobs start {table}      (under another id, or without one)"

    table: str
    job: str
    problem: str = "asks for something else"
    detail: str = ""

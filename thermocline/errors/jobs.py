"""Errors of extracts that wait, and of extract jobs."""

from __future__ import annotations

from thermocline.errors.request import RequestError
from thermocline.errors.root import ExitCode


class ExtractsBusy(RequestError):
    """Too many extracts are waiting for their turn.

    A server streams serving.extracts_max extracts at once, and runs one extract job at a time. In addition,
    serving.extracts_waiting_max of each kind may wait.

    Nothing was read. Ask again later, or raise the setting.
    """

    code = "extracts-busy"
    http_status = 503
    exit_code = ExitCode.UNAVAILABLE
    retryable = True
    _what = "table {table} was not extracted: {running_max} extracts are running and {waiting_max} waiting."
    _next = "ask again later, or raise serving.extracts_max or serving.extracts_waiting_max"

    table: str
    running_max: int
    waiting_max: int


class ExtractJobsOff(RequestError):
    """The server takes no extract jobs.

    serving.extract_jobs_dir is not set, so there is no folder for their files.

    Nothing was changed. Set it and start the server again, or stream the extract instead.
    """

    code = "extract-jobs-off"
    _what = "this server takes no extract jobs: serving.extract_jobs_dir is not set."
    _next = "set serving.extract_jobs_dir, or: thermocline extract {table} --url URL"

    table: str


class ExtractJobNotFound(RequestError):
    """The server has no such extract job, or no such file of a complete one.

    Jobs are deleted serving.extract_jobs_retention_hours after they are over. The files of a job can be read
    once it is complete; those of a failed or cancelled one are deleted.
    """

    code = "extract-job-not-found"
    http_status = 404
    exit_code = ExitCode.BAD_ANSWER
    _what = "table {table} has no extract job or finished file {job}."
    _next = "thermocline jobs list {table}"

    table: str
    job: str


class ExtractJobDiffers(RequestError):
    """An extract job with this id asks for something else.

    A job that is started again under its id is the same job, so its columns, condition, format and
    compression must be the same.

    Nothing was changed. Use another id, or none.
    """

    code = "extract-job-differs"
    http_status = 409
    _what = "the extract job {job} of table {table} asks for something else."
    _next = "start it under another id; thermocline jobs status {table} {job}"

    table: str
    job: str


class ExtractJobFailed(RequestError):
    """The extract job failed or was cancelled.

    Its files are deleted. The job says why, even if it was running when the server was killed.

    The table is unharmed. Start the extract again, under another id or without one.
    """

    code = "extract-job-failed"
    exit_code = ExitCode.UNAVAILABLE
    _what = "the extract job {job} of table {table} is {ended}."
    _cause = "{problem}"
    _next = "thermocline jobs start {table}"

    table: str
    job: str
    ended: str
    problem: str

"""The blocking client with extract jobs, which it alone has."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from uuid import uuid4

from .blocking import BlockingClient
from .downloads import awaited, download, only_files_of
from .jobs import ExtractJob


class Client(BlockingClient):
    """Client for one server: lookups, extracts and jobs. Thread-safe; close it when done.

    All methods raise `ClientError`.
    """

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
        """Starts an extract to files on the server, one file per bucket, all at one read point.

        Starting again with the same ``job_id`` returns the same job.
        """
        body = {
            "id": job_id or uuid4().hex,
            "format": format,
            "columns": columns and list(columns),
            "where": where,
            "compression": compression,
        }
        return self._connection.run(self._requests.start_extract(table, body))

    def extract_job(self, table: str, job_id: str) -> ExtractJob:
        """Returns a job: its state, its progress and its files."""
        return self._connection.run(self._requests.extract_job(table, job_id))

    def extract_jobs(self, table: str) -> list[ExtractJob]:
        """Returns the table's jobs that the server still has, oldest first."""
        return self._connection.run(self._requests.extract_jobs(table))

    def cancel_extract(self, table: str, job_id: str) -> ExtractJob:
        """Cancels a job, or deletes the files of one that is over."""
        return self._connection.run(self._requests.cancel_extract(table, job_id))

    def await_extract(
        self, table: str, job_id: str, *, progress: Callable[[ExtractJob], None] | None = None
    ) -> ExtractJob:
        """Waits until a job is complete, and returns it. ``progress`` is called with each state of the job.

        Raises:
            JobFailed: the job failed or was cancelled.
        """
        return awaited(lambda: self.extract_job(table, job_id), progress or (lambda _: None))

    def download_extract(
        self, job: ExtractJob, folder: Path, *, progress: Callable[[int], None] | None = None
    ) -> list[Path]:
        """Downloads the files of a complete job into a folder, then its manifest; returns the files' paths.

        A download resumes where its connection broke, and so does a call after an earlier one that didn't
        finish. Each file appears when it is complete and its checksum is right. Files of another job that
        were downloaded into the folder before are deleted first. ``progress`` is called with the number of
        bytes so far.

        Raises:
            StreamCut: the connection failed too often.
        """
        manifest = self._connection.run(self._requests.extract_manifest(job))
        with only_files_of(manifest, folder):
            retries = self._requests.retries
            return download(self._connection.http, job, folder, retries, progress or (lambda _: None))

"""Downloads the files of an extract job into a folder, and resumes where a connection broke."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final
from urllib.parse import quote

import httpx

from .errors import ClientError, StreamCut, problem_of
from .jobs import JOB_OVER, MANIFEST, ExtractJob, JobFailed, JobFile, is_plain_name
from .requests import BUSY
from .retries import Retries, retry_after_seconds
from .streams import READ_POINT

CHUNK_BYTES: Final = 1 << 20
# A job takes seconds to minutes; a look at it is one small request.
POLL_SECONDS: Final = 0.5


def awaited(ask: Callable[[], ExtractJob], progress: Callable[[ExtractJob], None]) -> ExtractJob:
    """Asks for a job until it is complete, and returns it. Raises `JobFailed`.

    ``progress`` is called with each state of the job.
    """
    while (job := ask()).state not in JOB_OVER:
        progress(job)
        time.sleep(POLL_SECONDS)
    progress(job)
    if job.state != "complete":
        raise JobFailed(job)
    return job


def download(
    http: httpx.Client,
    job: ExtractJob,
    folder: Path,
    retries: Retries,
    progress: Callable[[int], None],
) -> list[Path]:
    """Downloads the files of a complete job into a folder, and returns their paths.

    A file appears when it is complete and its checksum is the job's. A file that is already there is kept,
    and one that an earlier attempt left incomplete is resumed. ``progress`` is called with the number of
    bytes so far.

    Raises:
        StreamCut: the connection failed too often in a row without a byte in between.
    """
    url = f"/v1/tables/{quote(job.table, safe='')}/extracts/{quote(job.id, safe='')}/files/"
    done = 0
    for file in job.files:
        _File(http, url, file, folder, retries).fetch(lambda so_far, done=done: progress(done + so_far))  # type: ignore[misc]
        done += file.bytes
    return [folder / file.name for file in job.files]


@contextmanager
def only_files_of(manifest: bytes, folder: Path) -> Iterator[None]:
    """Prepares a folder for the files of this manifest, and puts the manifest there at the end.

    Files that an earlier download brought are deleted if their manifest was another one, so that none of them
    is taken for a file of this one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    complete, partial = folder / MANIFEST, _partial(folder, MANIFEST)
    if complete.exists() and complete.read_bytes() != manifest:
        complete.replace(partial)
    if partial.exists() and (other := partial.read_bytes()) != manifest:
        for name in _names(other):
            (folder / name).unlink(missing_ok=True)  # safety: download-one-job
            _partial(folder, name).unlink(missing_ok=True)
    partial.write_bytes(manifest)
    yield
    partial.replace(complete)


def _names(manifest: bytes) -> list[str]:
    """Returns the files that a manifest names; none if it is incomplete, or no job's."""
    try:
        # safety: download-plain-names-deleted
        return [one["name"] for one in json.loads(manifest)["files"] if is_plain_name(one["name"])]
    except (ValueError, LookupError, TypeError):
        return []


def _partial(folder: Path, name: str) -> Path:
    return folder / f".{name}.partial"


class _Refused(Exception):
    """The server refused now, and may answer later."""

    def __init__(self, failure: ClientError, retry_after: float | None) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.retry_after = retry_after


class _File:
    """The download of one file."""

    def __init__(self, http: httpx.Client, url: str, file: JobFile, folder: Path, retries: Retries) -> None:
        self._http = http
        self._url = url + file.name
        self._file = file
        self._path = folder / file.name
        self._partial = _partial(folder, file.name)
        self._retries = retries

    def fetch(self, progress: Callable[[int], None]) -> None:
        """Returns when the file is there."""
        if _digest(self._path) == self._file.sha256:
            progress(self._file.bytes)
            return
        failures = count(1)
        started = time.monotonic()
        while self._size() < self._file.bytes:
            before = self._size()
            try:
                self._go_on(progress)
                if self._size() <= before:
                    raise self._cut("the server sends no more")
            except (httpx.TransportError, _Refused) as error:
                if self._size() > before:  # it gets on, however often it breaks off
                    failures, started = count(1), time.monotonic()
                asked = error.retry_after if isinstance(error, _Refused) else None
                wait = self._retries.wait_seconds(next(failures), time.monotonic() - started, asked)
                if wait is None and isinstance(error, _Refused):
                    raise error.failure from None
                if wait is None:
                    raise self._cut(str(error) or type(error).__name__) from error
                time.sleep(wait)
        if _digest(self._partial) != self._file.sha256:  # safety: download-checksum
            self._partial.unlink()
            raise self._cut("its checksum is another one")
        self._partial.replace(self._path)

    def _go_on(self, progress: Callable[[int], None]) -> None:
        size = self._size()
        headers = {"Accept-Encoding": "identity"}
        if size:
            headers |= {"Range": f"bytes={size}-", "If-Range": f'"{self._file.sha256}"'}
        with self._http.stream("GET", self._url, headers=headers) as response:
            if not response.is_success or READ_POINT not in response.headers:
                response.read()
                failure = self._failure(response)
                if failure.retryable:
                    raise _Refused(failure, retry_after_seconds(response.headers.get("Retry-After")))
                raise failure
            # A server that sends all of it is taken at its word.
            with self._partial.open(
                "ab" if response.status_code == httpx.codes.PARTIAL_CONTENT else "wb"
            ) as sink:
                # As they come: chunks of a size would be lost with what was gathered of them.
                for chunk in response.iter_raw():
                    sink.write(chunk)
                    progress(sink.tell())

    def _failure(self, response: httpx.Response) -> ClientError:
        if response.headers.get("Content-Type", "").startswith("application/problem+json"):
            return problem_of(response.json())
        stranger = self._cut(f"it answered {response.status_code}, and not as a Thermocline server does")
        stranger.retryable = response.status_code in BUSY
        return stranger

    def _size(self) -> int:
        return self._partial.stat().st_size if self._partial.exists() else 0

    def _cut(self, detail: str) -> StreamCut:
        place = f"{self._file.name} broke off after {self._size()} of {self._file.bytes} bytes"
        return StreamCut(str(self._http.base_url), f"{place}: {detail}")


def _digest(path: Path) -> str | None:
    """Returns the SHA-256 of a file; None if there is no such file."""
    if not path.exists():
        return None
    digest = hashlib.sha256()
    for chunk in _chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk

"""Extract jobs, as the server describes them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from .answers import ReadPoint
from .errors import ClientError, UnsafeName

JOB_OVER: Final = frozenset({"complete", "failed", "cancelled"})
MANIFEST: Final = "manifest.json"
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
"""A file name that is not a path, not hidden, and valid on any system."""


@dataclass(frozen=True, slots=True)
class JobFile:
    """A file of a job. All its rows are of one bucket.

    Raises `UnsafeName` for a name that would lead out of a download's folder, or to its manifest.
    """

    name: str
    bucket: int
    rows: int
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if not is_plain_name(self.name):  # safety: download-plain-names
            raise UnsafeName(self.name)


@dataclass(frozen=True, slots=True)
class ExtractJob:
    """An extract to files on the server.

    ``state`` is queued, running, complete, failed or cancelled. ``read_point`` is None until the job has one.
    ``problem`` says why a job failed. ``location`` is the URI of the files' folder if the server puts them
    into an object store.
    """

    id: str
    table: str
    state: str
    read_point: ReadPoint | None
    buckets: int
    buckets_done: int
    files: tuple[JobFile, ...]
    rows: int
    bytes: int
    problem: str | None
    location: str | None

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Self:
        """Reads a job from the JSON of an answer."""
        point = body["read_point"]
        return cls(
            id=body["id"],
            table=body["table"],
            state=body["state"],
            read_point=None if point is None else ReadPoint.of(point),
            buckets=body["buckets"],
            buckets_done=body["buckets_done"],
            files=tuple(
                JobFile(one["name"], one["bucket"], one["rows"], one["bytes"], one["sha256"])
                for one in body["files"]
            ),
            rows=body["rows"],
            bytes=body["bytes"],
            problem=body["problem"],
            location=body.get("location"),
        )


def is_plain_name(name: object) -> bool:
    """Returns whether a file of a job may have this name."""
    return isinstance(name, str) and _PLAIN_NAME.fullmatch(name) is not None and name != MANIFEST


class JobFailed(ClientError):
    """An extract job failed or was cancelled; ``job.problem`` says why."""

    def __init__(self, job: ExtractJob) -> None:
        super().__init__(f"extract job {job.id} of {job.table} {_outcome(job)}")
        self.job = job


def _outcome(job: ExtractJob) -> str:
    return f"failed: {job.problem}" if job.state == "failed" else f"is {job.state}"

"""An extract job: what was asked for, how far it is, and its files."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Any, Final

import msgspec

from thermocline.errors import BadParameter
from thermocline.serving.read.caller import EVERYONE, WHOLE, Action, Caller, Grant, Part
from thermocline.serving.read.encode import CODINGS, FORMATS
from thermocline.serving.read.wanted import Wanted

# A name in a folder on any system, and in a URL as it is.
ID_FORM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
# A caller's own begins with 17 characters more, which tell callers apart.
STORED_ID_FORM: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,116}")
# What the runner calls files; a manifest that is read back may come from a store that others can write to.
_FILE_FORM: Final = re.compile(r"bucket-[0-9]{5,}(\.[a-z0-9]+)+")
_EXTENSIONS: Final = {"gzip": ".gz", "zstd": ".zst"}


class State(StrEnum):
    """How far a job is. One that is over stays so."""

    QUEUED = "queued"
    RUNNING = "running"
    COMPLETE = "complete"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """Whether nothing more is made of it."""
        return self not in {State.QUEUED, State.RUNNING}


class JobRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a job's files are to hold, and their format."""

    columns: tuple[str, ...] | None = None
    where: str | None = None
    format: str = "parquet"
    compression: str | None = None
    caller: str = EVERYONE.name
    part: Part = WHOLE
    """Of the table, which the caller saw when they asked."""

    def wanted(self, table: str) -> Wanted:
        """As an extract of the table takes it: what the caller could see when they asked."""
        grant = Grant(frozenset({Action.JOBS}), self.part)
        return Wanted(self.columns, self.where, caller=Caller(self.caller, {table: grant}))

    @property
    def extension(self) -> str:
        """How the files' names end."""
        return f".{self.format}{_EXTENSIONS[self.compression] if self.compression else ''}"

    def check(self) -> None:
        """Raises `BadParameter` for a format that there is not, or that isn't compressed."""
        if self.format not in FORMATS:
            raise BadParameter(name="format", problem=f'"{self.format}" is not one of {", ".join(FORMATS)}')
        if self.compression is None:
            return
        if self.compression not in CODINGS:
            problem = f'"{self.compression}" is not one of {", ".join(CODINGS)}'
            raise BadParameter(name="compression", problem=problem)
        if not FORMATS[self.format].is_text:
            raise BadParameter(name="compression", problem="it is for csv and jsonl only")


class JobFile(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a job: all its rows are of one bucket."""

    name: str
    bucket: int
    rows: int
    bytes: int
    sha256: str

    def __post_init__(self) -> None:
        if _FILE_FORM.fullmatch(self.name) is None:  # safety: job-file-form
            raise ValueError("a file of a job has the name of no such file")


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job. ``files`` are those written so far; they can be read once it is complete.

    ``location`` is the URI of their folder if they are in an object store. In the folders ``left``, earlier
    attempts have files there that are still to be deleted.
    """

    id: str
    table: str
    request: JobRequest
    created_ms: int
    state: State = State.QUEUED
    changed_ms: int = 0
    read_point: dict[str, Any] | None = None
    buckets: int = 0
    buckets_done: int = 0
    files: tuple[JobFile, ...] = ()
    location: str | None = None
    problem: str | None = None
    left: tuple[str, ...] = ()

    @property
    def locations(self) -> tuple[str, ...]:
        """All folders in an object store where it may have files."""
        return self.left if self.location is None else (*self.left, self.location)

    def shown(self) -> dict[str, Any]:
        """As the API has it."""
        shown: dict[str, Any] = msgspec.to_builtins(self)
        del shown["left"], shown["request"]["caller"], shown["request"]["part"]
        totals = {"rows": sum(one.rows for one in self.files), "bytes": sum(one.bytes for one in self.files)}
        return {**shown, **totals}


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a complete job says of itself, in its folder; its being there is what makes a job complete."""

    id: str
    table: str
    read_point: dict[str, Any]
    columns: tuple[dict[str, str], ...]
    format: str
    compression: str | None
    rows: int
    bytes: int
    files: tuple[JobFile, ...]

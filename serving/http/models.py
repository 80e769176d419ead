"""The bodies of requests and answers, as FastAPI reads and describes them."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from thermocline.rules.read_point import ReadPoint
from thermocline.serving.http.requests import ENTITIES_MAX, LIMIT_DEFAULT, LIMIT_MAX
from thermocline.serving.jobs.job import ID_FORM
from thermocline.serving.read.wanted import Wanted
from thermocline.serving.where.sql import LENGTH_MAX

Offsets = Annotated[
    dict[str, dict[str, int]], Field(description="topic → partition → next offset", title="Offsets")
]


# Of a job's formats, lines of text alone are compressed.
_COMPRESSED_TEXT: Final[dict[str, Any]] = {
    "if": {"properties": {"compression": {"type": "string"}}, "required": ["compression"]},
    "then": {"properties": {"format": {"enum": ["csv", "jsonl"]}}, "required": ["format"]},
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class BatchBody(_Strict):
    """Several entities or rows, by their key columns: integers are JSON numbers, all others strings."""

    entities: Annotated[list[dict[str, Any]], Field(max_length=ENTITIES_MAX)]


class ReadPointBody(BaseModel):
    """What an answer reflects: the snapshot, and each partition's records in [seam, end)."""

    snapshot_id: str
    seam: Offsets
    end: Offsets


class ExtractBody(_Strict):
    """Which columns and rows an extract contains; without a body, all of them."""

    columns: Annotated[
        list[str] | None, Field(description="Names of the columns; if missing or null, all declared columns.")
    ] = None
    where: Annotated[
        str | None,
        Field(
            description="Only rows for which this condition is true. As in SQL, it consists of columns, "
            "values, comparisons, AND, OR, NOT, IN, BETWEEN, LIKE and IS [NOT] NULL.",
            max_length=LENGTH_MAX,
        ),
    ] = None
    limit: Annotated[int | None, Field(description="At most this many rows, any of them.", ge=0)] = None
    since: Annotated[
        ReadPointBody | None,
        Field(
            description="Only the keys that had a record since this read point. _change_type says "
            '"upsert" for a key that comes with its row as of now, and "delete" for one that has no row.'
        ),
    ] = None

    def wanted(self) -> Wanted:
        """The same, for an extract. Raises `BadParameter`."""
        since = None if self.since is None else ReadPoint.parse(self.since.model_dump_json())
        return Wanted(self.columns, self.where, self.limit, since)


class ExtractJobCreate(_Strict):
    """What an extract as files contains; without a body, the whole table as Parquet."""

    model_config = ConfigDict(extra="forbid", json_schema_extra=_COMPRESSED_TEXT)
    id: Annotated[
        str | None,
        Field(
            description="Letters, digits, - and _. Another start with the same id is the same job.",
            json_schema_extra={"pattern": f"^{ID_FORM.pattern}$"},
        ),
    ] = None
    columns: list[str] | None = None
    where: Annotated[str | None, Field(description="As in an extract.", max_length=LENGTH_MAX)] = None
    format: Literal["arrow", "parquet", "csv", "jsonl"] = "parquet"
    compression: Annotated[Literal["gzip", "zstd"] | None, Field(description="For csv and jsonl.")] = None


class ExtractJobRequest(BaseModel):
    """What the job was asked for."""

    columns: list[str] | None
    where: str | None
    format: str
    compression: str | None


class ExtractJobFile(BaseModel):
    """A file of a job."""

    name: str
    bucket: int
    rows: int
    bytes: int
    sha256: str


class RefusedQuery(_Strict):
    """How many refused records to list."""

    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] = LIMIT_DEFAULT


class ExtractJobBody(BaseModel):
    """An extract job. Its files can be read once it is complete."""

    id: str
    table: str
    state: Literal["queued", "running", "complete", "failed", "cancelled"]
    request: ExtractJobRequest
    created_ms: int
    changed_ms: int
    read_point: ReadPointBody | None
    buckets: int
    buckets_done: int
    files: list[ExtractJobFile]
    rows: int
    bytes: int
    location: Annotated[str | None, Field(description="URI of the files' folder in the object store.")]
    problem: Annotated[str | None, Field(description="Why the job failed.")]


class ExtractJobList(BaseModel):
    """The extract jobs of a table, oldest first."""

    extracts: list[ExtractJobBody]


class RefusedRecord(BaseModel):
    """A record that the table can't take."""

    topic: str
    partition: int
    offset: int
    stage: Literal["key", "decode", "contract"]
    reason: str
    key: Annotated[
        dict[str, Any] | None, Field(description="Its key columns; null if they could not be read.")
    ] = None
    timestamp_ms: Annotated[
        int | None, Field(description="The record's own time; null if an earlier release noted it.")
    ] = None


class UnlistedRange(BaseModel):
    """Offsets between which more records were refused than the server keeps, both included."""

    topic: str
    partition: int
    offset_first: int
    offset_last: int


class _AnswerBody(BaseModel):
    table: str
    read_point: ReadPointBody
    age_seconds: Annotated[
        float | None,
        Field(description="Seconds since every partition was last read up to its end; null if it never was."),
    ]
    stale: bool


class _ReadAnswer(_AnswerBody):
    refused: Annotated[
        list[RefusedRecord],
        Field(
            description="Records that the table can't take, the newest of each partition first. With "
            "Thermocline-Read-After: the records that it names, and those before them that may be of the "
            "keys in the request. Without it, and if an entity has no rows: those that may be of its keys, "
            "and are not committed yet. Absent if there are none."
        ),
    ] = []
    refused_unlisted: Annotated[
        list[UnlistedRange],
        Field(
            description="Where further records were refused, too many to list. A record between these "
            "offsets may be refused although it is not in the list. Absent if there are none."
        ),
    ] = []


class RowsAnswer(_ReadAnswer):
    """The rows of one entity."""

    rows: list[dict[str, Any]]


class EntityRows(BaseModel):
    """The rows of one of several entities."""

    rows: list[dict[str, Any]]


class BatchAnswer(_ReadAnswer):
    """The rows of several entities, in the order of the request."""

    results: list[EntityRows]


class RecordPlaceBody(BaseModel):
    """A record's place in the log, and its time in milliseconds since 1970."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int


class ColdPlaceBody(BaseModel):
    """A row's place in the snapshot."""

    file: str
    row_group: int
    position: Annotated[int, Field(description="Of the row in the file, from 0.")]
    commit: Annotated[
        int | None,
        Field(
            description="Iceberg's sequence number of the commit that added the file; null in tables of "
            "format version 2."
        ),
    ]
    record: Annotated[
        RecordPlaceBody | None, Field(description="The record that the row was made of, if the file says it.")
    ]


class ExplainedRow(BaseModel):
    """A row, and where it came from."""

    row: Annotated[
        dict[str, Any] | None,
        Field(description="As in a lookup; null if it was deleted, and the deletion is not committed yet."),
    ]
    hot: Annotated[
        RecordPlaceBody | None,
        Field(
            description="The record that decided about the row and is not committed yet. Null if the row "
            "is that of the snapshot, or a tombstone deleted it."
        ),
    ]
    cold: Annotated[
        ColdPlaceBody | None,
        Field(
            description="The place of the row in the snapshot, or of the row there that was replaced; null "
            "for those who see only a part of the table."
        ),
    ]
    replaced: Annotated[
        dict[str, Any] | None,
        Field(description="The row of the snapshot in whose place this one is; null if there is none."),
    ]


class StepSeconds(BaseModel):
    """The seconds that each step took.

    ``look``: the records in the hot tier; ``cold_rows``: the rows of the snapshot; ``overlay``: the records
    laid over them; ``places``: where the rows are in files, which only an explained lookup asks for.
    """

    look: float
    cold_rows: float
    overlay: float
    places: float


class ExplainedAnswer(_ReadAnswer):
    """The rows of one entity, also those whose deletion is not committed yet, and where they came from."""

    rows: list[ExplainedRow]
    seconds: StepSeconds


class RefusedAnswer(_AnswerBody):
    """Refused records, the newest of each partition first; ``more`` if there are more than those."""

    refused: list[RefusedRecord]
    more: bool
    refused_unlisted: Annotated[
        list[UnlistedRange],
        Field(description="Where further records were refused, too many to keep. Absent if there are none."),
    ] = []


class TableNames(BaseModel):
    """The tables of a server."""

    tables: list[str]


class TableBody(BaseModel):
    """A table's definition."""

    name: str
    definition: dict[str, Any]


class HealthAnswer(BaseModel):
    """The health of the process, or of its tables.

    ``not_served`` names the tables that can't be read from the catalog, with the reason of each: they are not
    waited for, since no other server could answer for them either.
    """

    status: str
    not_served: dict[str, str] = {}


class VersionAnswer(BaseModel):
    """The version of the server."""

    version: str


class Problem(BaseModel):
    """An error."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: Annotated[str, Field(description="A stable code; `thermocline explain CODE` explains it.")]
    state: str
    next: str
    retryable: bool
    facts: dict[str, Any] = {}

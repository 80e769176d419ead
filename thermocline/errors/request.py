"""A request that is wrong, or that cannot be answered now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thermocline.errors.root import ExitCode, Misnaming, ThermoclineError
from thermocline.process.masking import mask_password


class RequestError(ThermoclineError):
    """The request is wrong, or cannot be answered now."""

    http_status = 422
    exit_code = ExitCode.USAGE


class UnknownTable(Misnaming, RequestError):
    """The server has no table of that name.

    TABLE is the name of a [tables.NAME] section of the server's configuration. GET /v1/tables lists them.
    """

    code = "unknown-table"
    http_status = 404
    _what = 'there is no table "{table}" here{_suggestion}'
    _next = "use one of: {known}"

    table: str
    known: tuple[str, ...]


class UnknownColumn(Misnaming, RequestError):
    """The table has no column of that name.

    GET /v1/tables/TABLE and `thermocline table show TABLE` list the columns. Provenance columns
    (_kafka_topic, _kafka_partition, _kafka_offset, _kafka_timestamp) are given only when asked for by name.
    """

    code = "unknown-column"
    _what = 'table {table} has no column "{column}"{_suggestion}'
    _misnamed = "column"
    _next = "use some of: {known}"

    table: str
    column: str
    known: tuple[str, ...]


class NotKeyColumn(RequestError):
    """A lookup names a column that is not in the table's key.

    Rows are looked up by key only: by the entity's columns, and optionally the key columns that follow them.
    Other columns are part of the answer, but can't be searched.

    Look up by key columns, or extract the table and filter the result.
    """

    code = "not-a-key-column"
    _what = 'column "{column}" of table {table} is not a key column; the key is {key}.'
    _next = "look up by key columns, or filter the result of: thermocline extract {table}"

    table: str
    column: str
    key: tuple[str, ...]


class BadParameter(RequestError):
    """A parameter of the request cannot be used.

    It is missing, unknown, of the wrong type, out of range, or not in the form that it must have.
    """

    code = "bad-parameter"
    _what = "{name}: {problem}"
    _next = "correct it; the forms are in /docs of the server and in thermocline COMMAND --help"

    name: str
    problem: str


class RequestMalformed(RequestError):
    """The request is not valid UTF-8.

    Text must be UTF-8, percent-encoded in a URL. Invalid bytes are refused rather than replaced: replacing
    them would look up another key.
    """

    code = "request-malformed"
    http_status = 400
    _what = "{part} can't be read: {detail}."
    _next = "send UTF-8; binary key columns are given in base64"

    part: str
    detail: str


class UnknownEnding(RequestError):
    """The output file's extension is not a known extract format.

    Without --format, the extension decides: .arrow and .arrows mean an Arrow stream, .parquet and .pq a
    Parquet file, and no extension means Arrow. Any other extension is refused, since the file would not be
    what its name says.

    Nothing was read or written. Use a known extension, or give --format.
    """

    code = "unknown-ending"
    _what = '{path} ends in "{ending}", which is not a known extract format.'
    _state = "nothing was read or written."
    _cause = "known: {known}."
    _next = "{command}      (or use a known extension)"

    path: str
    ending: str
    known: tuple[str, ...]
    command: str


class NoKey(RequestError):
    """The table has no key, so that none of its rows can be looked up.

    Its definition says `key = []`: every record adds a row, and nothing but the record's place in the log
    tells one row from another.

    The rows are there, and an extract gives them, those that are not committed yet included.
    """

    code = "no-key"
    _what = "table {table} has no key, so that none of its rows can be looked up."
    _next = "thermocline extract {table}"

    table: str


class RowNotFound(RequestError):
    """The table has no row with that key.

    It was never written, or it was deleted, or its record was refused, which the answer then says. The answer
    is exact as of the read point that it names. To read your own write, send its place in the log as
    Thermocline-Read-After (--read-after).

    A refused record is one that the table's definition can't take: its key or value is not as declared. Kafka
    acknowledged it all the same. GET /v1/tables/TABLE/refused and `thermocline refused TABLE` list those
    that are not committed yet, `thermocline quarantine list TABLE` the others.
    """

    code = "row-not-found"
    http_status = 404
    exit_code = ExitCode.BAD_ANSWER
    members = ("read_point", "age_seconds", "stale", "refused")
    _what = "table {table} has no row {key}, {_as_of}."
    _cause = "{_refusals}"

    table: str
    key: str
    read_point: Mapping[str, Any]
    age_seconds: float | None
    stale: bool
    refused: tuple[Mapping[str, Any], ...] = ()

    @property
    def _as_of(self) -> str:
        snapshot_id, age = self.read_point["snapshot_id"], _age(self.age_seconds, self.stale)
        return f"as of snapshot {snapshot_id} and the log {age}"

    @property
    def _refusals(self) -> str:
        if not self.refused:
            return ""
        return "\n".join(["records were refused:", *(f"  - {refusal(**one)}" for one in self.refused)])


class NotQuarantined(RequestError):
    """The quarantine of the table holds no such record.

    It was never bad, or it was replayed or purged. A record is named by its place in the log, as `thermocline
    quarantine list` shows it: TOPIC/PARTITION@OFFSET.

    Nothing was changed.
    """

    code = "not-quarantined"
    http_status = 404
    exit_code = ExitCode.BAD_ANSWER
    _what = "the quarantine of table {table} does not hold {records}."
    _state = "nothing was changed."
    _next = "thermocline quarantine list {table}"

    table: str
    records: tuple[str, ...]


class RouteNotFound(RequestError):
    """The server has nothing at that path.

    The paths are listed at /docs and in /openapi.json.
    """

    code = "route-not-found"
    http_status = 404
    _what = "there is nothing at {path}."
    _next = "the paths are listed at /docs"

    path: str


class MethodNotAllowed(RequestError):
    """The path exists, but not for that method.

    The Allow header of the answer and /docs say which methods it takes.
    """

    code = "method-not-allowed"
    http_status = 405
    _what = "{path} does not take {method}."
    _next = "use one of: {allowed}"

    method: str
    path: str
    allowed: tuple[str, ...]


class NotAcceptable(RequestError):
    """The server cannot answer in any format of the Accept header.

    Leave the header out to get the first of those that are offered.
    """

    code = "not-acceptable"
    http_status = 406
    _what = 'none of the formats in "{accept}" is offered here.'
    _next = "ask for one of: {offered}"

    accept: str
    offered: tuple[str, ...]


class ReadAfterTimeout(RequestError):
    """The records that the request wants to see had not been read in time.

    Thermocline-Read-After names records, and the server waits until its answer includes them, at most
    serving.read_after_seconds_max. Either they do not exist (yet), or the server lags behind the log.

    Ask again, or ask without it for an answer that says how old it is.
    """

    code = "read-after-timeout"
    http_status = 503
    exit_code = ExitCode.AWAY
    retryable = True
    _what = "{wanted} had not reached table {table} after {waited_seconds:.1f} s{_end}."
    _state = "nothing is lost; the server goes on reading."
    _cause = "the record does not exist yet, or its transaction is open, or the server lags behind the log."
    _next = "ask again, or without Thermocline-Read-After; thermocline status shows the lag"

    table: str
    wanted: str
    waited_seconds: float
    log_ends: tuple[str, ...] = ()  # TOPIC/PARTITION@OFFSET, where the log is known to end before

    @property
    def _end(self) -> str:
        return f": the log ends at {', '.join(self.log_ends)}" if self.log_ends else ""


class NotReady(RequestError):
    """The table cannot be answered for yet.

    A server that starts first reads the log from the seam up to the end that it found, and the index of the
    table's files; before that its answers would be old. It also refuses when its hot data does not reach back
    to the seam of the snapshot, since the answer would have a gap.

    Ask again in a moment. GET /readyz says when it is ready, GET /status how far it is.
    """

    code = "not-ready"
    http_status = 503
    exit_code = ExitCode.AWAY
    retryable = True
    _what = "table {table} is not ready: {detail}"
    _next = "ask again in a moment; thermocline status shows how far it is"

    table: str
    detail: str


class StorageFailed(RequestError):
    """A disk or a store failed under the table.

    The disk of serving.state_dir, or of the temporary folder of a command, is full or fails; or the store of
    the table's files did not answer. A tailer that says so in `thermocline status` stands still: what it
    holds stays readable and grows old.

    Nothing was lost, and nothing was answered from half of the data: the table and the log are as they were.
    Free the disk, or mend it, and ask again: a server goes on by itself. Its log has the path.
    """

    code = "storage-failed"
    http_status = 503
    exit_code = ExitCode.AWAY
    retryable = True
    _what = "a disk or a store failed under table {table}: {detail}."
    _state = "nothing is lost; the table and the log are as they were."
    _next = "free the disk, or mend it, and ask again; a server goes on by itself"

    table: str
    detail: str


class ReadPointGone(RequestError):
    """A read point can no longer be read.

    Its snapshot was expired, or the log no longer reaches back to its seam, or compaction may have dropped
    records of it: once a later record of the same key exists, and min.compaction.lag.ms (0 by default) has
    passed, Kafka keeps the later one alone.

    Nothing is wrong with the table: read it at a newer read point, which every answer carries.
    """

    code = "read-point-gone"
    http_status = 410
    exit_code = ExitCode.AWAY
    _what = "table {table} can no longer be read there: {detail}"
    _next = "{_again}"

    table: str
    detail: str
    again: str = ""

    @property
    def _again(self) -> str:
        """What to do; an extract, where nothing else was asked for."""
        return self.again or f"thermocline extract {self.table}      (without --at: reads it as of now)"


class HotBytesExceeded(RequestError):
    """What is not committed yet is more than may be held for reading.

    A command without --url reads the uncommitted records into a temporary folder of its own, up to
    serving.hot_bytes_max. More than that is uncommitted: ingest is far behind, or not running.

    Nothing was changed, and the temporary folder is gone. Ask a running server, let ingest catch up, or raise
    serving.hot_bytes_max.
    """

    code = "hot-bytes-exceeded"
    http_status = 503
    exit_code = ExitCode.AWAY
    _what = "more than {limit_bytes:,} bytes of table {table} are not committed yet."
    _cause = "ingest is far behind or not running, and serving.hot_bytes_max is reached."
    _next = "repeat with --url URL to ask a server, or: thermocline ingest run {table} --once"

    table: str
    limit_bytes: int


class ServerUnreachable(RequestError):
    """No Thermocline server answers at the URL.

    It is not running, the URL is wrong, or something else listens there.

    No data was touched. Start one with `thermocline serve`, or leave --url out: the command then reads the
    table and the log by itself.
    """

    code = "server-unreachable"
    http_status = 503
    exit_code = ExitCode.AWAY
    retryable = True
    _what = "no Thermocline server answers at {url}."
    _cause = "{detail}"
    _next = "thermocline serve      (or leave --url out)"

    url: str
    detail: str

    def __post_init__(self) -> None:
        self.url, self.detail = mask_password(self.url), mask_password(self.detail)


def refusal(topic: str, partition: int, offset: int, stage: str, reason: str) -> str:
    """A refused record in words: where it stands in the log, and why it was refused."""
    return f"{topic}/{partition}@{offset} ({stage}): {reason}"


def _age(age_seconds: float | None, is_stale: bool) -> str:
    if age_seconds is None:
        return "of unknown age"
    return f"{age_seconds:.2f} s ago{' (stale)' if is_stale else ''}"

"""A request that is wrong, or that cannot be answered now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

from thermocline.errors.root import ExitCode, Misnaming, ThermoclineError, did_you_mean
from thermocline.process.masking import mask_password


class RequestError(ThermoclineError):
    """The request is wrong, or cannot be answered now."""

    http_status = 422
    exit_code = ExitCode.USAGE


class UnknownTable(Misnaming, RequestError):
    """No table of that name is configured.

    TABLE is the name of a [tables.NAME] section of the configuration, not the identifier in the catalog. A
    server lists its tables at GET /v1/tables.

    Nothing was read or written. Use one of the names that exist, or add a section.
    """

    code = "unknown-table"
    http_status = 404
    _what = 'no table "{table}" is configured{_suggestion}'
    _cause = "configured: {known}."
    _next = "thermocline config show      (or add a section [tables.{table}])"

    table: str
    known: tuple[str, ...]


class BadParameter(RequestError):
    """A parameter of the request cannot be used.

    It is missing, unknown, of the wrong type, out of range, or not in the form that it must have.

    Rows are looked up by key columns only: by those of the entity, and optionally the key columns that follow
    them. GET /v1/tables/TABLE and `thermocline table show TABLE` list the columns; those of provenance
    (_kafka_topic, _kafka_partition, _kafka_offset, _kafka_timestamp) are given only when asked for by name.
    Text must be UTF-8, percent-encoded in a URL: invalid bytes are refused, since replacing them would look
    up another key. Without --format, the extension of an extract's file decides its format.

    Nothing was read or written.
    """

    code = "bad-parameter"
    _what = "{name}: {problem}"
    _next = "{_correction}"

    name: str
    problem: str
    correction: str = ""

    @property
    def _correction(self) -> str:
        forms = "correct it; the forms are in /docs of the server and in thermocline COMMAND --help"
        return self.correction or forms

    @classmethod
    def unknown_column(cls, table: str, column: str, known: Sequence[str]) -> Self:
        """A column that a table does not have, with those that would do."""
        suggestion = did_you_mean(column, known) or "."
        return cls(
            name=column, problem=f"table {table} has no such column{suggestion} It has {', '.join(known)}."
        )


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
    exit_code = ExitCode.UNAVAILABLE
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
    exit_code = ExitCode.UNAVAILABLE
    retryable = True
    _what = "table {table} is not ready: {detail}"
    _next = "ask again in a moment; thermocline status shows how far it is"

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
    exit_code = ExitCode.UNAVAILABLE
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
    exit_code = ExitCode.UNAVAILABLE
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
    exit_code = ExitCode.UNAVAILABLE
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

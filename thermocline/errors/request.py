"""A request that is wrong, or that cannot be answered now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Self

from thermocline.errors.root import ExitCode, Misnaming, ThermoclineError, did_you_mean
from thermocline.process.masking import mask_password
from thermocline.text.shown import Columns


class RequestError(ThermoclineError):
    """The request is wrong, or can't be answered now."""

    http_status = 422
    exit_code = ExitCode.USAGE


_SERVED_SHOWN_MAX: Final = 20
"""Tables that a server names to somebody who asked for another one."""


class UnknownTable(Misnaming, RequestError):
    """No table of that name is configured.

    TABLE is the name of a [tables.NAME] section of the configuration, not the identifier in the catalog. A
    server lists its tables at GET /v1/tables, to a client those that it may ask for. It knows those that its
    configuration had when it started, or when it last got SIGHUP.

    Nothing was read or written. Use one of the existing names, or add a section. A running server takes it up
    on SIGHUP: `kill -HUP PID`, or `systemctl reload` of its unit.
    """

    code = "unknown-table"
    http_status = 404
    _what = 'no table "{table}" is {_there}{_suggestion}{_served}'
    _cause = "configured: {known}."
    _next = "{_step}"

    table: str
    known: tuple[str, ...]
    since: str = ""
    """Of a server: from when on these are its tables."""
    of_client: bool = False
    """Whether a client of a server asks, who has some of its tables and configures none."""

    @property
    def _there(self) -> str:
        return "one that you may ask for" if self.of_client else "configured"

    @property
    def _step(self) -> str:
        if self.of_client:
            return "GET /v1/tables lists those that you may ask for; for others, ask whoever runs the server"
        return f"thermocline config show      (or add a section [tables.{self.table}]{self._taken_up})"

    @property
    def _served(self) -> str:
        if not self.since:
            return ""
        more = len(self.known) - _SERVED_SHOWN_MAX
        names = ", ".join(self.known[:_SERVED_SHOWN_MAX]) or "none"
        names += f" and {more} more" if more > 0 else ""
        whose = "your tables" if self.of_client else "the tables"
        return f" Since {self.since}, {whose} of this server are {names}."

    @property
    def _taken_up(self) -> str:
        return ", and send the server SIGHUP" if self.since else ""


class Unauthenticated(RequestError):
    """The request does not say who asks, or not so that it can be believed.

    A server with a clients file (serving.clients_file) takes an API key, as `Authorization: Bearer KEY` or as
    the password of Basic, or what else its file names. A key that is wrong, expired or revoked gets the same
    answer, so that nobody learns anything by guessing.

    Nothing was read or written. `thermocline client list` shows which keys there are and until when they
    count, `thermocline client create NAME` makes one. Give it to commands and the Python client as
    THERMOCLINE_KEY.
    """

    code = "unauthenticated"
    http_status = 401
    _what = "the server does not know who asks: {detail}"
    _next = (
        "export THERMOCLINE_KEY=KEY      (thermocline client list, where the server runs, says which count)"
    )

    detail: str
    keys_awaited: bool = False
    """Whether it may know soon: it has not read the keys yet that the token's issuer signs with."""

    def to_problem(self, instance: str) -> dict[str, object]:
        """As of any error; what to do next is said to somebody who asks over HTTP."""
        advice = (
            'send "Authorization: Bearer KEY"; thermocline client list, where the server runs, lists keys'
        )
        return {**super().to_problem(instance), "next": advice}

    @property
    def is_retryable(self) -> bool:
        """While keys are awaited."""
        return self.keys_awaited


class TooManyRequests(RequestError):
    """The caller asks for more than it may.

    A client has limits: requests per second, of which some may come at once; bytes of answers per minute;
    extracts at once. They are counted over all API processes of a server. If an answer was larger than the
    bytes of a minute, further requests are refused until they would have sufficed. An address from which
    credentials failed several times is refused for up to half a minute, whatever it brings. Nor may an
    address have more connections open to a process than serving.connections_per_address_max.

    Nothing was read or written. Ask again after Retry-After; the Python client, and commands that ask a
    server, do so by themselves. If the limits are too low, ask whoever runs the server for others.
    """

    code = "too-many-requests"
    http_status = 429
    exit_code = ExitCode.UNAVAILABLE
    retryable = True
    _what = "{client} has reached a limit: {detail}."
    _state = "nothing was read."
    _next = "ask again in {retry_after_seconds} s, or ask whoever runs the server for higher limits"

    client: str
    detail: str
    retry_after_seconds: float


class NotPermitted(RequestError):
    """The caller may not do that with the table.

    Who asks is told at the connection. What they may do is in their grants (`thermocline client check NAME
    TABLE` shows them), and so is which rows and columns they see: a read that can't leave out the others is
    refused.

    Nothing was read or written. Ask for another grant, or as somebody else.
    """

    code = "not-permitted"
    http_status = 403
    _what = "{caller} may not {detail}"
    _cause = "it concerns the table {table}."
    _next = "ask whoever runs the server for a grant"

    caller: str
    table: str
    detail: str


class BadParameter(RequestError):
    """A request parameter is invalid.

    It is missing, unknown, malformed, of the wrong type or out of range.

    Rows are looked up by key columns only: those of the entity, and optionally the key columns after them.
    GET /v1/tables/TABLE and `thermocline table show TABLE` list the columns. The provenance columns
    (_kafka_topic, _kafka_partition, _kafka_offset, _kafka_timestamp) are returned only if requested by name.
    Text must be UTF-8, percent-encoded in a URL: invalid bytes are refused, since replacing them would look
    up another key. A table without a key (`key = []`) has no lookups; extracts include all of its rows, also
    those not committed yet. Without --format, an extract's format follows from the file's extension.

    The `where` of an extract can contain columns, values, comparisons, AND, OR, NOT, IN, BETWEEN, LIKE and
    IS [NOT] NULL. Values must have the column's type, and are spelled as in the rows of a lookup
    (docs/extracts.md).

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
        return self.correction or "correct it; see thermocline COMMAND --help"

    def to_problem(self, instance: str) -> dict[str, object]:
        """As of any error; what to do next is said to somebody who asks over HTTP."""
        problem = super().to_problem(instance)
        return problem if self.correction else {**problem, "next": "correct it; see /docs of the server"}

    @classmethod
    def without_key(cls, table: str) -> Self:
        """A lookup in a table without a key: every record adds a row, known only by its place in the log."""
        return cls(
            name=table,
            problem="the table has no key, so its rows can't be looked up.",
            correction=f"thermocline extract {table}",
        )

    @classmethod
    def unknown_column(
        cls, table: str, column: str, known: Sequence[str], unlisted: Sequence[str] = ()
    ) -> Self:
        """A column that a table does not have, with those that would do; ``unlisted`` ones if close."""
        suggestion = did_you_mean(column, (*known, *unlisted)) or "."
        return cls(
            name=column, problem=f"table {table} has no such column{suggestion} It has {', '.join(known)}."
        )


class RowNotFound(RequestError):
    """The table has no row with that key.

    It was never written, it was deleted, or its record was refused (the answer then says so). The answer is
    exact as of the read point that it names. To read your own write, pass its place in the log as
    Thermocline-Read-After (--read-after).

    A refused record doesn't match the table's definition: its key or value is not as declared. Kafka accepted
    it nevertheless. GET /v1/tables/TABLE/refused and `thermocline refused TABLE` list refused records that
    are not committed yet, `thermocline quarantine list TABLE` the others.
    """

    code = "row-not-found"
    http_status = 404
    exit_code = ExitCode.BAD_ANSWER
    members = ("read_point", "age_seconds", "stale", "refused", "refused_unlisted")
    _what = "table {table} has no row {key}, {_as_of}."
    _cause = "{_refusals}"

    table: str
    key: str
    read_point: Mapping[str, Any]
    age_seconds: float | None
    stale: bool
    refused: tuple[Mapping[str, Any], ...] = ()
    refused_unlisted: tuple[Mapping[str, str | int], ...] = ()

    @property
    def _as_of(self) -> str:
        snapshot_id, age = self.read_point["snapshot_id"], _age(self.age_seconds, self.stale)
        return f"as of snapshot {snapshot_id} and the log {age}"

    @property
    def _refusals(self) -> str:
        told = [
            *(refusal(**one) for one in self.refused),
            *(unlisted(**one) for one in self.refused_unlisted),
        ]
        return "\n".join(["records were refused:", *(f"  - {one}" for one in told)]) if told else ""


class ReadAfterTimeout(RequestError):
    """The requested records weren't read in time.

    With Thermocline-Read-After, the server waits until its answer includes the named records, for at most
    serving.read_after_seconds_max. Either they don't exist (yet), or the server lags behind the log.

    Ask again, or ask without the header for an answer that says how old it is.
    """

    code = "read-after-timeout"
    http_status = 503
    exit_code = ExitCode.UNAVAILABLE
    retryable = True
    _what = "{wanted} had not reached table {table} after {waited_seconds:.1f} s{_end}."
    _state = "nothing is lost; the server continues reading."
    _cause = "the record doesn't exist yet, its transaction is open, or the server lags behind the log."
    _next = "ask again, or without Thermocline-Read-After; thermocline status shows the lag"

    table: str
    wanted: str
    waited_seconds: float
    log_ends: tuple[str, ...] = ()  # TOPIC/PARTITION@OFFSET, where the log is known to end before

    @property
    def _end(self) -> str:
        return f": the log ends at {', '.join(self.log_ends)}" if self.log_ends else ""


class LoadTimeout(RequestError):
    """A live table wasn't loaded in time.

    Whoever loads a table from the live catalog gets a snapshot that the server makes, which takes several
    requests to the table's store. They weren't done within serving.catalog.load_seconds_max: the store or the
    catalog doesn't answer or is slow, or very much has come since the last commit.

    Nothing is lost: no engine is told of a snapshot before all of it is stored. The server goes on with it,
    so a later load takes less. Lookups and extracts don't wait for it. Ask again in a moment. If it keeps
    happening, `thermocline config check --connect` tries catalog and store.
    """

    code = "load-timeout"
    http_status = 503
    exit_code = ExitCode.UNAVAILABLE
    retryable = True
    _what = "table {table} was not loaded within {seconds:g} s."
    _state = "nothing is lost; the server goes on, and names no snapshot before all of it is stored."
    _cause = "the table's store or catalog doesn't answer or is slow, or very much isn't committed yet."
    _next = "ask again in a moment; thermocline config check --connect      (tries catalog and store)"

    table: str
    seconds: float


class NotReady(RequestError):
    """The table is not ready.

    After its start, a server first reads the log from the seam to its end, and indexes the table's files;
    until then, its answers would be old. It also refuses if its hot data doesn't reach back to the snapshot's
    seam, since the answer would have a gap.

    Ask again in a moment. GET /readyz says when the server is ready, and GET /status how much it still has to
    read.
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
    """The read point can't be read any more.

    Its snapshot has expired, the log no longer reaches back to its seam, or compaction may have dropped some
    of its records: once a newer record of the same key exists, and min.compaction.lag.ms (0 by default) has
    passed, Kafka keeps only the newer one. Or the registry no longer has the schema of one of its uncommitted
    records, which may have been readable then.

    For the changes since a read point, the log must still hold all records from its seam on, including the
    tombstones that compaction drops in time; its snapshot must be in the table's history, which outlives its
    expiry; and nothing else may have gone into the table since: no replay of quarantined records, no
    alteration of the definition, no accepted loss, no other topic or cluster, no rows by another program, no
    rollback. Topics that a pattern finds may come; one that is deleted must have had all of its records
    committed at the read point. Each record must also be as readable as it was: if its schema was deleted
    from the registry after ingest applied it, nothing says any more which key it changed.

    A load of the live catalog can be loaded again by its name for a quarter to half of
    serving.catalog.files_seconds.

    No rows were returned, and the table is fine. Use a newer read point, such as that of any recent answer;
    after changes, take a full extract, whose read point is where the next changes begin.
    """

    code = "read-point-gone"
    http_status = 410
    exit_code = ExitCode.UNAVAILABLE
    _what = "table {table} can't be read {which} that read point any more: {detail}"
    _next = "{_again}"

    table: str
    detail: str
    which: str = "at"
    """``since``, where changes are wanted."""
    again: str = ""

    @property
    def _again(self) -> str:
        """What to do; an extract, where nothing else was asked for."""
        return (
            self.again
            or f"thermocline extract {self.table}      (without --at or --since: all rows, as of now)"
        )


class HotBytesExceeded(RequestError):
    """There are too many uncommitted records to read them here.

    Without --url, a command reads the uncommitted records into a temporary folder of its own, up to
    serving.hot_bytes_max. More than that is uncommitted: ingest is far behind, or not running.

    Nothing was changed, and the temporary folder was deleted. Ask a running server, let ingest catch up, or
    raise serving.hot_bytes_max.
    """

    code = "hot-bytes-exceeded"
    http_status = 503
    exit_code = ExitCode.UNAVAILABLE
    _what = "more than {limit_bytes:,} bytes of table {table} are not committed yet."
    _cause = "ingest is far behind or not running, and serving.hot_bytes_max is reached."
    _next = "repeat with --url URL to ask a server, or: thermocline ingest run {table} --once"

    table: str
    limit_bytes: int


class SqlRefused(RequestError):
    """The SQL statement can't be run.

    It isn't valid SQL for DuckDB, it names a table or a column that doesn't exist, or it fails on a value.
    The message says where: line and column of the statement, counted from 1.

    `thermocline sql` only reads: one SELECT at a time (also FROM, VALUES, WITH, DESCRIBE, SUMMARIZE and
    EXPLAIN). SQL opens no files and no connections, loads no extensions and changes no settings; use -o to
    write the result to a file.

    Nothing was changed.
    """

    code = "sql-refused"
    _what = "{problem}{_place}"
    _next = "correct the statement; thermocline table list      (the tables)"

    problem: str
    line_and_column: tuple[int, ...] = ()  # empty where DuckDB doesn't say

    @property
    def _place(self) -> str:
        return " (line {}, column {})".format(*self.line_and_column) if self.line_and_column else ""


class SqlTooLarge(RequestError):
    """The SQL statement needs more memory than it may use.

    DuckDB spills to sql.temp_dir what joins, sorts and groupings need beyond sql.memory_bytes_max, but some
    statements need much of it in memory at once.

    Nothing was changed. Select fewer columns or rows, or raise sql.memory_bytes_max.
    """

    code = "sql-too-large"
    exit_code = ExitCode.UNAVAILABLE
    _what = "the statement needs more than sql.memory_bytes_max ({limit_bytes:,} bytes)."
    _cause = "{detail}"
    _next = "select fewer columns or rows, or raise sql.memory_bytes_max"

    limit_bytes: int
    detail: str


class ServerUnreachable(RequestError):
    """No Thermocline server answers at the URL.

    It is not running, the URL is wrong, or something else listens there: a proxy that asks for credentials,
    another program, or somebody who changes a server's answers (plain HTTP protects nothing). The files of an
    extract job have plain names (bucket-00000.parquet); a server that names one with a slash or a leading dot
    is none of ours, and nothing is written for it.

    No data was touched. Check the URL and who answers there. A server with a certificate is asked by https,
    by a name in its certificate, and THERMOCLINE_CA_FILE names the certificate of who signed it. Start a
    server with `thermocline serve`, or leave --url out: the command then reads the table and the log itself.
    """

    code = "server-unreachable"
    http_status = 503
    exit_code = ExitCode.UNAVAILABLE
    retryable = True
    _what = "no Thermocline server answers at {url}."
    _cause = "{detail}"
    _next = "{_correction}"

    url: str
    detail: str

    @property
    def _correction(self) -> str:
        if "Hostname mismatch" in self.detail or "IP address mismatch" in self.detail:
            return "ask by a name that is in the server's certificate"
        if "CERTIFICATE_VERIFY_FAILED" in self.detail:
            return "export THERMOCLINE_CA_FILE=ca.pem      (the certificate of who signed the server's)"
        if self.url.startswith("http:") and "disconnected without" in self.detail:
            return "ask by https, if the server has a certificate"
        return "thermocline serve      (or leave --url out)"

    def __post_init__(self) -> None:
        self.url, self.detail = mask_password(self.url), mask_password(self.detail)


def refusal(
    topic: str,
    partition: int,
    offset: int,
    stage: str,
    reason: str,
    key: Mapping[str, Any] | None = None,
    **_: object,
) -> str:
    """A refused record in words: where it is in the log, its key if known, and why it is refused."""
    of_key = f", {Columns(key)}" if key else ""
    return f"{topic}/{partition}@{offset} ({stage}{of_key}): {reason}"


def unlisted(topic: object, partition: object, offset_first: object, offset_last: object, **_: object) -> str:
    """In words, where records were refused that the server doesn't keep."""
    return (
        f"more in {topic}/{partition} from offset {offset_first} to {offset_last}, which are not listed: "
        "too many were refused"
    )


def _age(age_seconds: float | None, is_stale: bool) -> str:
    if age_seconds is None:
        return "of unknown age"
    return f"{age_seconds:.2f} s ago{' (stale)' if is_stale else ''}"

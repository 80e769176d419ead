"""Errors between us and Trino."""

from __future__ import annotations

from thermocline.errors.root import ExitCode, ThermoclineError


class QueryError(ThermoclineError):
    """Trino, which runs queries on the views."""

    http_status = 503
    exit_code = ExitCode.UNAVAILABLE


class TrinoUnreachable(QueryError):
    """Trino didn't answer.

    Its address or the network is wrong, or it is down or still starting. If an embedded Trino has exited, the
    message ends with the last lines of its log.

    No data is affected: tables, lookups and extracts don't need Trino. The views are as last published.
    """

    code = "trino-unreachable"
    retryable = True
    _what = "Trino did not answer at {url}."
    _state = "tables and views are as last committed and published."
    _cause = "{detail}"
    _next = "start Trino or correct its address, then repeat the command"

    url: str
    detail: str


class TrinoRefused(QueryError):
    """Trino answered a statement with an error.

    Usually the publishing user (`views.user`) lacks a privilege, or a catalog or a topic's table is missing.
    `thermocline views config` writes the files that provide all of these, and `thermocline views check` says
    what is wrong.

    No data is affected: tables, lookups and extracts don't need Trino. The views are as last published:
    older, but correct until they expire.
    """

    code = "trino-refused"
    _what = "Trino at {url} answered {name}: {detail}"
    _state = "the views are as last published."
    _next = "thermocline views check {_of_table}"

    url: str
    name: str  # Trino's name of the error, such as PERMISSION_DENIED
    detail: str
    table: str = ""  # the one whose views were asked for; empty where it was none of them

    @property
    def _of_table(self) -> str:
        return self.table or "TABLE"


class ViewContended(QueryError):
    """Another process kept replacing the same view at the same moment.

    The catalog replaces a view only if nobody else has changed it meanwhile. Only one process at a time
    should publish a table's views: the owner, or `thermocline views publish --watch`.

    The view is intact, as one of the publishers left it.
    """

    code = "view-contended"
    retryable = True
    _what = "view {view} could not be replaced: another process changed it at the same moment."
    _state = "the view is as another publisher left it, or unchanged."
    _cause = "{detail}"
    _next = "thermocline views publish {_of_table}      (if no other process publishes; safe to repeat)"

    view: str
    detail: str
    table: str = ""  # the one whose view it is, where that is known

    @property
    def _of_table(self) -> str:
        return self.table or "TABLE"


class ViewForeign(QueryError):
    """A view name is taken by something that Thermocline didn't publish.

    A table's views are next to it, named TABLE_live, TABLE_live_by_key, TABLE_cold and TABLE_at_NAME. Views
    that Thermocline publishes carry their read point in the comment. This one doesn't, so it is not replaced.

    Nothing was changed. Rename or drop it in Trino, or leave that view out of the table's `views`.
    """

    code = "view-foreign"
    exit_code = ExitCode.STOPPED
    _what = "{view} exists, and Thermocline didn't publish it."
    _state = "it was not changed."
    _next = "rename or drop it in Trino, then: thermocline views publish {table}"

    table: str
    view: str


class ViewsUnreadable(QueryError):
    """A live view can't be made of the table's records since the table was altered.

    The SQL of a live view reads records exactly as ingest does, or there is no such view: for example, not if
    a column comes from a header, or if topics are found by a pattern. The view that was published before
    shows the columns of the definition before. So it is withdrawn. The view of the table as last committed is
    published as usual.

    No data is affected. Live views that read the server have no such limits: set `views.hot = "server"`. Or
    drop the table's views, or alter the table again; then publish.
    """

    code = "views-unreadable"
    exit_code = ExitCode.STOPPED
    _what = "a live view of table {table} can't be made any more: {because}."
    _state = "tables, lookups and extracts are not affected; the view refuses to answer."
    _next = 'set views.hot = "server", or: thermocline views drop {table}\nthermocline views publish {table}'

    table: str
    because: str


class ViewsLate(QueryError):
    """The log may have dropped records that a live view needs.

    A view needs its part of the log for as long as it answers. Kafka may drop a record once it is older than
    the topic's retention, a tombstone of a compacted topic after delete.retention.ms, and a superseded record
    after min.compaction.lag.ms (0 unless set). A view without such a record would silently show the previous
    row.

    So the view fails with this reason instead; the view of the table as last committed keeps answering. If
    ingest is behind, run it. If the topic guarantees too little, `thermocline views check` prints the command
    that sets it: views with literal end offsets and pinned views of a compacted topic need
    min.compaction.lag.ms.
    """

    code = "views-late"
    exit_code = ExitCode.STOPPED
    _what = "a live view of table {table} could be wrong: {because} has been over since {until}."
    _state = "nothing is known to be lost; the view refuses to answer."
    _next = (
        "thermocline views check {table}      (prints the command for a topic that promises too little)\n"
        "thermocline ingest run {table}      (if ingest is behind)"
    )

    table: str
    because: str
    until: str

"""What can fail between us and Trino."""

from __future__ import annotations

from thermocline.errors.root import ExitCode, ThermoclineError


class QueryError(ThermoclineError):
    """Trino, which answers queries on the views."""

    http_status = 503
    exit_code = ExitCode.UNAVAILABLE


class TrinoUnreachable(QueryError):
    """Trino did not answer.

    Its address or the network is wrong, or it is down or still starting. An embedded Trino that ended by
    itself says so with the end of its log.

    No data is concerned: tables, lookups and extracts do not need Trino. The views stand in the catalog as
    they were last published.
    """

    code = "trino-unreachable"
    retryable = True
    _what = "Trino did not answer at {url}."
    _state = "tables and views are as last committed and published."
    _cause = "{detail}"
    _next = "start Trino, or correct its address, then repeat the command"

    url: str
    detail: str


class TrinoRefused(QueryError):
    """Trino took a statement and answered with an error.

    Most often the user that publishes (`views.user`) lacks a right, or a catalog or a topic's table is
    missing: `thermocline views config` writes the files that give all of these, and `thermocline views check`
    says what is not as it must be.

    No data is concerned: tables, lookups and extracts do not need Trino. The views stand in the catalog as
    they were last published: older, and right until they expire.
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
    """A view was replaced by somebody else at the same moment, again and again.

    The catalog swaps a view's definition for another one only if nobody did so meanwhile. One process at a
    time should publish a table's views: the owner, or `thermocline views publish --watch`.

    The view is whole, and as one of the publishers made it.
    """

    code = "view-contended"
    retryable = True
    _what = "view {view} could not be replaced: others changed the catalog at the same moment."
    _state = "the view is as another publisher made it, or as it was."
    _cause = "{detail}"
    _next = "thermocline views publish {_of_table}      (where no other process publishes; safe to repeat)"

    view: str
    detail: str
    table: str = ""  # the one whose view it is, where that is known

    @property
    def _of_table(self) -> str:
        return self.table or "TABLE"


class ViewForeign(QueryError):
    """Something that Thermocline did not publish has the name of one of its views.

    The views of a table stand beside it, by the names TABLE_live, TABLE_live_by_key, TABLE_cold and
    TABLE_at_NAME. What Thermocline publishes carries its read point in the comment; this one does not, so it
    is somebody else's, and is not replaced.

    Nothing was changed. Rename or drop it in Trino, or leave that view out of the table's `views`.
    """

    code = "view-foreign"
    exit_code = ExitCode.STOPPED
    _what = "{view} is there and is no view that Thermocline published."
    _state = "it was not changed."
    _next = "rename or drop it in Trino, then: thermocline views publish {table}"

    table: str
    view: str


class ViewsLate(QueryError):
    """The log may have dropped what a live view shows of it.

    What a view shows of the log must be there for as long as the view answers. Kafka may drop a record once
    it is older than the topic keeps it, a tombstone of a compacted topic after delete.retention.ms, and a
    record that a later one replaced after min.compaction.lag.ms, which is 0 unless it is set. A view without
    such a record would show the row of before, and could not know.

    Such a view fails with this reason; the one with the table as last committed goes on to answer. Where
    ingest is behind, run it. Where a topic promises too little, `thermocline views check` prints the command
    that sets it: views with literal ends and pinned views of a compacted topic need min.compaction.lag.ms.
    """

    code = "views-late"
    exit_code = ExitCode.STOPPED
    _what = "a live view of table {table} could be wrong: {because} is over since {until}."
    _state = "nothing is lost, as far as the log shows; the view refuses to answer."
    _next = (
        "thermocline views check {table}      (prints the command for a topic that promises too little)\n"
        "thermocline ingest run {table}      (if ingest is behind)"
    )

    table: str
    because: str
    until: str

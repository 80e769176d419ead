"""What can fail between us and Trino."""

from __future__ import annotations

from thermocline.errors.root import ExitCode, ThermoclineError


class QueryError(ThermoclineError):
    """Trino, which answers queries on the views."""

    http_status = 503
    exit_code = ExitCode.AWAY


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
    """A table is so far behind its log that its views can no longer be trusted.

    What a view shows of the log must be there for as long as the view answers. The log may drop any moment
    what the table has not read: it was appended longer ago than the topic keeps its records, or tombstones of
    a compacted topic. A view would show such rows as they were before, and not say so.

    The views that read the log fail with this reason until ingest has caught up; the one with the table as
    last committed answers on. Nothing is lost as long as ingest can still read it: run it now.
    """

    code = "views-late"
    exit_code = ExitCode.STOPPED
    _what = "table {table} is too far behind its log for live views: {because} is over since {until}."
    _state = "nothing is lost yet, as far as the log shows; its live views refuse to answer."
    _next = "thermocline ingest run {table}"

    table: str
    because: str
    until: str

"""Publish a table's views: make Trino show its newest snapshot, and the log beyond that one's seam.

A round looks at the views first, then at the table, then at its log, and replaces what is not as it should
be. So what it finds published was committed before the table was loaded, and an older view never replaces a
newer one knowingly; should one do so, its publisher finds the table moved on, and goes round again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import TYPE_CHECKING, Final

from thermocline.errors import (
    LogReplaced,
    OffsetsGone,
    ThermoclineError,
    TombstonesGone,
    TopicMissing,
    TrinoRefused,
    ViewContended,
    ViewForeign,
    ViewsUnreadable,
)
from thermocline.failpoints import failpoint, failstep
from thermocline.iceberg.catalog import current_state, definition_of, load_table
from thermocline.iceberg.foreign_schema import check_schema
from thermocline.views.facts import look
from thermocline.views.leases import RENEWED_SECONDS, hold
from thermocline.views.noting import ViewNoter, published_notes, withdrawn_notes
from thermocline.views.plan import PlannedView, cold_view, live_views, modes_of
from thermocline.views.published import PublishedView, ViewAction, verdict
from thermocline.views.readable import unreadable_in_sql
from thermocline.views.render import Mode
from thermocline.views.render_view import view_name, withdrawn_view

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

    from thermocline.kafka.log import Log
    from thermocline.process.clock import Clock
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings
    from thermocline.views.facts import TableFacts
    from thermocline.views.trino_client import Trino

__all__ = ["PublishRound", "ViewPublisher", "find_all_views", "find_views"]

ROUNDS_MAX: Final = 5
"""Of one publication. A second publisher, or a commit meanwhile, costs one round; more of them in a row mean
that somebody else is at it all the time."""
PAUSE_SECONDS: Final = 0.2  # a replacement takes about as long
STOPS: Final = (
    LogReplaced,
    OffsetsGone,
    TombstonesGone,
    TopicMissing,
)
"""After these nobody can say what the log holds beyond the seam, so views that read it must not answer."""


@dataclass(frozen=True, slots=True)
class PublishRound:
    """What was done, by the views' names without the catalog.

    ``stop`` is why views that read the log are withdrawn; ``newer`` are views that another publisher made
    of a state that we did not see. With ``has_ends`` one of them shows nothing newer until it is replaced.
    """

    snapshot_id: int
    replaced: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()
    newer: tuple[str, ...] = ()
    stop: ThermoclineError | None = None
    has_ends: bool = False


@dataclass(frozen=True, slots=True)
class _LeaseWritten:
    """For which snapshot a lease was written, and when (monotonic seconds)."""

    snapshot_id: int
    at: float


@dataclass(slots=True)
class ViewPublisher:
    """Publishes the views of one table. Not for several threads at once."""

    settings: Settings
    name: str
    catalog: Catalog
    log: Log
    trino: Trino
    clock: Clock
    _held: dict[str, _LeaseWritten] = field(default_factory=dict)
    _transactional_at: int | None = None
    _noter: ViewNoter | None = None

    def publish(self) -> PublishRound:
        """Make the views those of the table as it is now; what was done for it. Safe to repeat.

        Where the log can't be trusted any more, the views that read it are withdrawn, and ``stop`` says why.

        Raises:
            ThermoclineError: Trino, the catalog, the store or Kafka is down, or refuses. Views that were not
                replaced are older, and right until they end.
        """
        replaced: dict[str, None] = {}
        rounds = 0
        while True:
            rounds += 1
            try:
                done = self._round()
            except ViewContended:
                if rounds == ROUNDS_MAX:
                    raise
                self.clock.sleep(PAUSE_SECONDS)
                continue
            replaced |= dict.fromkeys(done.replaced)
            # safety: views-after-replacing
            if rounds == ROUNDS_MAX or not done.replaced or self._newest() == done.snapshot_id:
                kept = tuple(view for view in done.kept if view not in replaced)
                return replace(done, replaced=tuple(replaced), kept=kept)

    def _round(self) -> PublishRound:
        failpoint("views.look")
        # safety: views-look-first
        found = find_views(self.settings, self.name, self.trino)  # before the table: see the module
        table = self._table()
        definition, state = definition_of(table, self.name), current_state(table, self.name)
        check_schema(table, definition)
        modes = list(modes_of(self.settings.table(self.name), definition, self.settings.views.hot))
        planned = [cold_view(self.settings, definition, state.snapshot_id)] if Mode.COLD in modes else []
        live, stops_of_log, failure = self._live_views(
            table, [mode for mode in modes if mode is not Mode.COLD]
        )
        planned += live
        stops = {**stops_of_log, **self._unreadable(definition, found)}
        # safety: views-withdrawn
        withdrawn, left = self._withdraw(definition, stops, found)  # before all else, which may fail
        verdicts = {one: self._judge(found, one, table) for one in planned}
        names: dict[ViewAction, list[str]] = {what: [] for what in ViewAction}
        for one, what in verdicts.items():
            refused = self._settle(one, what, table, found)
            if refused is None:
                names[what].append(_name(one))
            else:
                stops[one.plan.mode] = refused
                withdrawn.append(_name(one))
        if failure is not None:
            raise failure
        self._noter = self._noter or ViewNoter(self.name, self.clock)
        made = {one: what for one, what in verdicts.items() if _name(one) not in withdrawn}
        notes = withdrawn_notes(definition, stops, (*withdrawn, *left))
        self._noter.note(table, (*published_notes(made, found), *notes))
        return PublishRound(
            state.snapshot_id,
            replaced=(*names[ViewAction.REPLACE], *withdrawn),
            kept=(*names[ViewAction.KEEP], *left),
            newer=tuple(names[ViewAction.NEWER]),
            stop=next(iter(stops.values()), None),
            has_ends=any(one.plan.window.end is not None for one in planned),
        )

    def _live_views(
        self, table: Table, modes: Sequence[Mode]
    ) -> tuple[list[PlannedView], Mapping[Mode, ThermoclineError], ThermoclineError | None]:
        """The views that read the log; why others of them must stop; and why none can be made now."""
        if not modes:
            return [], {}, None
        try:
            live = live_views(self.settings, self._look(table))
        except STOPS as error:
            return [], dict.fromkeys(modes, error), None
        except ThermoclineError as error:  # the log is unavailable: the cold view does not need it
            return [], {}, error
        planned = [one for one in live.values() if isinstance(one, PlannedView)]
        stops = {mode: one for mode, one in live.items() if isinstance(one, ThermoclineError)}
        return planned, stops, None

    def _unreadable(
        self, definition: LiveTable, found: Mapping[str, PublishedView | None]
    ) -> Mapping[Mode, ThermoclineError]:
        """Why live views that are there can't be made any more: they are of a definition before this one."""
        because = unreadable_in_sql(definition)
        if because is None or self.settings.views.hot == "server":
            return {}
        stop = ViewsUnreadable(table=self.name, because=because)
        live = (Mode.LIVE, Mode.LIVE_BY_KEY)
        # safety: views-unreadable-withdrawn
        return {one: stop for one in live if found.get(view_name(definition, one)[1].lower()) is not None}

    def _look(self, table: Table) -> TableFacts:
        """A transaction that was open counts until the next commit, which shows it itself."""
        facts = look(table, self.name, self.log, self.clock)
        if facts.shows_transactions:
            self._transactional_at = facts.state.snapshot_id
        # safety: views-transaction-ended
        return replace(facts, shows_transactions=self._transactional_at == facts.state.snapshot_id)

    def _judge(self, found: Mapping[str, PublishedView | None], one: PlannedView, table: Table) -> ViewAction:
        def number_of(snapshot_id: int) -> int | None:
            snapshot = table.snapshot_by_id(snapshot_id)
            return None if snapshot is None else snapshot.sequence_number

        existing = self._ours(found, *one.schema_and_name)
        return verdict(existing, one, self.clock.now_ms(), number_of)

    def _settle(
        self, one: PlannedView, what: ViewAction, table: Table, found: Mapping[str, PublishedView | None]
    ) -> TrinoRefused | None:
        """Does what is to be done; why Trino refuses the view, if it was withdrawn for that."""
        name, snapshot_id = _name(one), one.plan.snapshot_id
        # safety: views-lease-first
        if what is ViewAction.REPLACE or (what is ViewAction.KEEP and self._is_lease_due(name, snapshot_id)):
            self._hold(one, table, found)
        if what is not ViewAction.REPLACE:
            return None
        try:
            with failstep("views.replace"):
                self.trino.rows(one.statement, name)
        except TrinoRefused as refused:
            existing = self._ours(found, *one.schema_and_name)
            if existing is None or not _is_of_before(existing, one):
                raise
            self._withdraw_one(one.plan.definition, one.plan.mode, refused)
            return refused
        return None

    def _hold(self, one: PlannedView, table: Table, found: Mapping[str, PublishedView | None]) -> None:
        """Keep the view's snapshot, before the view is there: whoever expires snapshots must find it.

        One of a live table names none, and the server keeps those that it gives.
        """
        if one.plan.live is not None:
            return
        name, snapshot_id = _name(one), one.plan.snapshot_id
        existing = self._ours(found, *one.schema_and_name)
        standing_id = existing.snapshot_id if existing else None
        hold(table, name, snapshot_id, one.until_ms, self.clock.now_ms(), standing_id)
        self._held[name] = _LeaseWritten(snapshot_id, self.clock.monotonic())

    def _is_lease_due(self, name: str, snapshot_id: int) -> bool:
        """Where this publisher has not written it yet, or not for a while."""
        held = self._held.get(name, _LeaseWritten(snapshot_id, -inf))
        # safety: views-lease-of-another, views-lease-again
        return held.snapshot_id != snapshot_id or self.clock.monotonic() - held.at >= RENEWED_SECONDS

    def _withdraw(
        self,
        definition: LiveTable,
        stops: Mapping[Mode, ThermoclineError],
        found: Mapping[str, PublishedView | None],
    ) -> tuple[list[str], list[str]]:
        """Makes the views fail with their reasons; those that it replaced, and those that did so already.

        What is not ours is left out: it does not read the log for us.
        """
        replaced, left = [], []
        for mode, stop in stops.items():
            schema, view = view_name(definition, mode)
            existing = found.get(view.lower())
            if existing is None and view.lower() in found:
                continue  # safety: views-withdrawn-each
            if existing is not None and (existing.withdrawn or "").startswith(f"[{stop.code}] "):
                left.append(f"{schema}.{view}")
                continue
            self._withdraw_one(definition, mode, stop)
            replaced.append(f"{schema}.{view}")
        return replaced, left

    def _withdraw_one(self, definition: LiveTable, mode: Mode, stop: ThermoclineError) -> None:
        reason = f"[{stop.code}] {stop.what} next: {'; '.join(stop.next.splitlines())}"
        view = ".".join(view_name(definition, mode))
        self.trino.rows(withdrawn_view(definition, self.settings.views.lake, mode, reason), view)

    def _ours(
        self, found: Mapping[str, PublishedView | None], schema: str, view: str
    ) -> PublishedView | None:
        """The view that stands there; None where there is none. Raises `ViewForeign`."""
        name = view.lower()
        if name in found and found[name] is None:  # safety: views-foreign
            raise ViewForeign(table=self.name, view=f"{self.settings.views.lake}.{schema}.{view}")
        return found.get(name)

    def _newest(self) -> int:
        snapshot = self._table().current_snapshot()
        return snapshot.snapshot_id if snapshot else -1

    def _table(self) -> Table:
        return load_table(self.catalog, self.name, self.settings.table(self.name).identifier)


def find_all_views(settings: Settings, name: str, trino: Trino) -> Mapping[str, PublishedView | None]:
    """As `find_views`, of all that stands in the table's schema."""
    schema = settings.table(name).identifier.rpartition(".")[0]
    comments = trino.comments(settings.views.lake, schema)
    return {view: PublishedView.parse(comment) for view, comment in comments.items()}


def find_views(
    settings: Settings, name: str, trino: Trino, names: Sequence[str] | None = None
) -> Mapping[str, PublishedView | None]:
    """What stands beside the table in Trino, by name in lower case; None for what is no view of ours.

    By default what may be one of the table's views that are not pinned.
    """
    schema, _, table = settings.table(name).identifier.rpartition(".")
    if names is None:
        names = [f"{table}_{mode}" for mode in Mode if mode is not Mode.PINNED]
    comments = trino.comments(settings.views.lake, schema, [one.lower() for one in names])
    return {view: PublishedView.parse(comment) for view, comment in comments.items()}


def _is_of_before(existing: PublishedView, planned: PlannedView) -> bool:
    """Whether a view shows columns as they were before an alteration, dropped ones too.

    One of a live table names columns of the table as it is now, and fails by itself where it lacks them.
    """
    # safety: views-of-before-withdrawn
    is_other = existing.definition_version != planned.plan.definition.version
    return is_other and existing.withdrawn is None and planned.plan.live is None


def _name(one: PlannedView) -> str:
    return ".".join(one.schema_and_name)

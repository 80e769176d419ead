"""The plan of a table's views, from what is known of table and log. Decides, does nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from thermocline.errors import ViewsLate
from thermocline.process.clock import iso_time
from thermocline.rules.seam import Seam
from thermocline.views.lifetime import lifetime
from thermocline.views.readable import unreadable_in_sql
from thermocline.views.render import Mode, ViewPlan, query
from thermocline.views.render_view import create_view, view_comment, view_name
from thermocline.views.render_window import LogWindow
from thermocline.views.sql import comment

if TYPE_CHECKING:
    from thermocline.kafka.facts import TopicConfig
    from thermocline.rules.definition import LiveTable
    from thermocline.settings import Settings, TableSettings, ViewsSettings
    from thermocline.views.facts import TableFacts

__all__ = ["PlannedView", "cold_view", "has_append_times", "is_bounded", "live_views", "modes_of"]

_DIGEST_CHARACTERS: Final = 16
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PlannedView:
    """One view as it should be now.

    ``until_ms`` is when it ends, None where nothing ends it, and ``because`` why then. ``pinned`` tells
    pinned views apart.
    """

    plan: ViewPlan
    until_ms: int | None
    because: str
    pinned: str = ""

    @property
    def schema_and_name(self) -> tuple[str, str]:
        """Where it stands in Trino's catalog of the tables."""
        return view_name(self.plan.definition, self.plan.mode, self.pinned)

    @property
    def digest(self) -> str:
        """Equal for views that give the same rows, whenever they end."""
        text = query(replace(self.plan, expires_at=None))
        return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARACTERS]

    @property
    def comment(self) -> str:
        """What the view reflects, as JSON, with what its publishers compare."""
        document = json.loads(view_comment(self.plan))
        document["thermocline"] |= {
            "table": self.plan.definition.identifier,
            "digest": self.digest,
            "ends": self.because,
        }
        return json.dumps(document, separators=(",", ":"))

    @property
    def statement(self) -> str:
        """What creates or replaces it, with its lifetime in a comment."""
        ends = "does not end" if self.until_ms is None else f"ends at {iso_time(self.until_ms)}"
        head = comment(f"{'.'.join(self.schema_and_name)} {ends}: {self.because}.")
        return f"{head}\n{create_view(self.plan, self.pinned, self.comment)}"


def live_views(settings: Settings, facts: TableFacts) -> dict[Mode, PlannedView | ViewsLate]:
    """The views of table and log together that the table should have now.

    Of one that would have ended already, the error that says so: it must not answer.
    """
    table = settings.table(facts.definition.name)
    hot = settings.views.hot
    modes = [mode for mode in modes_of(table, facts.definition, hot) if mode is not Mode.COLD]
    if hot == "server":
        return {mode: _served_view(settings.views, table, facts, mode) for mode in modes}
    return {mode: _live_view(settings.views, table, facts, mode) for mode in modes}


def cold_view(settings: Settings, definition: LiveTable, snapshot_id: int) -> PlannedView:
    """The view of the rows as last committed, which needs no log."""
    table = settings.table(definition.name)
    window = LogWindow(settings.views.kafka, definition.topics, Seam())
    plan = ViewPlan(
        Mode.COLD, definition, settings.views.lake, snapshot_id, window, row_filter=table.view_filter
    )
    return PlannedView(plan, None, "it shows the table alone")


def modes_of(table: TableSettings, definition: LiveTable, hot: str = "kafka") -> Iterator[Mode]:
    """The kinds of view that the table should have: those configured that its key and its records allow.

    ``hot`` is where live views read hot rows, as `ViewsSettings.hot` says it.
    """
    problem = None if hot == "server" else unreadable_in_sql(definition)
    for word in dict.fromkeys(table.views):
        mode = Mode(word)
        if mode is not Mode.COLD and problem is not None:  # safety: views-unreadable
            continue
        if mode is not Mode.LIVE_BY_KEY or definition.has_key:
            yield mode


def is_bounded(table: TableSettings, facts: TableFacts) -> bool:
    """Whether the view that reads the log twice needs literal ends, as times can't bound it.

    Producers' times say nothing of when a record came, and of a transaction's records all come with its end.
    """
    by_times = has_append_times(facts.configs)
    # safety: views-bounded-by-producers-times, views-bounded-by-transactions
    return table.views_bounded or facts.is_transactional or not by_times


def has_append_times(configs: Mapping[str, TopicConfig]) -> bool:
    """Whether the broker gives all records their times."""
    return all(config.is_log_append_time for config in configs.values())


def _live_view(
    views: ViewsSettings, table: TableSettings, facts: TableFacts, mode: Mode
) -> PlannedView | ViewsLate:
    definition = facts.definition
    reads_twice = mode is Mode.LIVE and definition.has_key
    has_end = reads_twice and is_bounded(table, facts)
    window = LogWindow(
        views.kafka,
        definition.topics,
        facts.state.seam,
        end=facts.ends if has_end else None,
        margin_ms=round(views.margin_seconds * 1000) if reads_twice and not has_end else None,
    )
    interval_ms = round(table.commit_interval_seconds * 1000)
    life = lifetime(facts, interval_ms, facts.looked_at_ms if has_end else None)
    if life.until_ms is not None and life.until_ms <= facts.looked_at_ms:  # safety: views-late
        return ViewsLate(table=definition.name, because=life.because, until=iso_time(life.until_ms))
    plan = ViewPlan(
        mode,
        definition,
        views.lake,
        facts.state.snapshot_id,
        window,
        expires_at=instant_of(life.until_ms),
        row_filter=table.view_filter,
        has_append_times=has_append_times(facts.configs),
    )
    return PlannedView(plan, life.until_ms, life.because)


def _served_view(views: ViewsSettings, table: TableSettings, facts: TableFacts, mode: Mode) -> PlannedView:
    """Nothing ends it: it names no snapshot and no offset, and the server gives its table as of now."""
    definition, state = facts.definition, facts.state
    window = LogWindow(views.kafka, definition.topics, state.seam)
    plan = ViewPlan(
        mode,
        definition,
        views.lake,
        state.snapshot_id,
        window,
        row_filter=table.view_filter,
        live=views.live,
    )
    return PlannedView(plan, None, "the server gives its rows as of now")


def instant_of(epoch_ms: int | None) -> datetime | None:
    """A time as the renderer has it, exact to the millisecond."""
    return None if epoch_ms is None else _EPOCH + timedelta(milliseconds=epoch_ms)

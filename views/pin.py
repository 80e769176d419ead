"""A pinned view: one read point for as long as the log keeps what it shows."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Final

from thermocline.errors import BadParameter, OffsetsGone, ReadPointGone, ViewForeign
from thermocline.iceberg.catalog import definition_of, state_of
from thermocline.kafka.facts import TIMESTAMP_MS_MAX
from thermocline.process.clock import iso_time
from thermocline.rules.identity import beyond_since_ms, check_source
from thermocline.views.facts import TableFacts
from thermocline.views.leases import hold
from thermocline.views.lifetime import lifetime
from thermocline.views.plan import PlannedView, has_append_times, instant_of
from thermocline.views.publish import find_views
from thermocline.views.readable import unreadable_in_sql
from thermocline.views.render import Mode, ViewPlan
from thermocline.views.render_window import LogWindow
from thermocline.views.transactions import shows_transactions

if TYPE_CHECKING:
    from pyiceberg.table import Table

    from thermocline.iceberg.catalog import SnapshotState
    from thermocline.kafka.log import Log
    from thermocline.process.clock import Clock
    from thermocline.rules.read_point import ReadPoint
    from thermocline.settings import Settings
    from thermocline.views.trino_client import Trino

__all__ = ["pin_view", "pinned_view"]

_NAME: Final = re.compile(r"[a-z0-9_]{1,64}")
_DIGEST_CHARACTERS: Final = 8


def pin_view(
    settings: Settings,
    name: str,
    table: Table,
    point: ReadPoint,
    log: Log,
    trino: Trino,
    clock: Clock,
    called: str = "",
) -> PlannedView:
    """Make the view of a read point in Trino.

    Raises what `pinned_view` raises, and `ViewForeign` where its name is taken by something else.
    """
    planned = pinned_view(settings, name, table, point, log, clock, called)
    view, standing = ".".join(planned.schema_and_name), planned.schema_and_name[1].lower()
    found = find_views(settings, name, trino, [standing])
    if standing in found and found[standing] is None:
        raise ViewForeign(table=name, view=f"{settings.views.lake}.{view}")
    before = found.get(standing)
    standing_id = before.snapshot_id if before else None
    hold(table, view, point.snapshot_id, planned.until_ms, clock.now_ms(), standing_id)
    trino.rows(planned.statement, view)
    # Again, now that there is the view: a drop may have taken it for gone. Nobody renews one without an end.
    until_ms = TIMESTAMP_MS_MAX if planned.until_ms is None else planned.until_ms
    hold(table, view, point.snapshot_id, until_ms, clock.now_ms())
    return planned


def pinned_view(
    settings: Settings, name: str, table: Table, point: ReadPoint, log: Log, clock: Clock, called: str = ""
) -> PlannedView:
    """The view of a table at a read point, called TABLE_at_CALLED.

    Raises:
        BadParameter: it can't be called so, or the read point is of another table.
        ReadPointGone: its snapshot is expired, or of another definition, or the log has lost some of it.
        ThermoclineError: the log is another one (`thermocline.rules.identity.check_identity`).
    """
    called = called or _called(point)
    if _NAME.fullmatch(called) is None:
        raise BadParameter(name="--name", problem="small letters, digits and _ only, at most 64 of them")
    definition, state = definition_of(table, name), _state(table, name, point)
    unreadable = unreadable_in_sql(definition)
    if unreadable is not None:  # safety: pin-unreadable
        raise BadParameter(name="TABLE", problem=f"{unreadable}: extract it at that read point instead")
    if state.definition_version != definition.version:  # safety: pin-definition
        raise _gone(name, "the table's definition was altered since")
    now_ms = clock.now_ms()
    try:
        _, ends = check_source(name, state, log, definition.topics)  # safety: pin-log
    except OffsetsGone as error:
        raise _gone(name, error.what) from error
    if not ends.at_least(point.end) or not point.end.at_least(point.seam):
        raise BadParameter(
            name="--at", problem="the log does not reach to its end, or it ends before it begins"
        )
    topics = definition.topics
    configs = log.configs(topics)
    shows = shows_transactions(table, name, log, configs)
    facts = TableFacts(definition, state, ends, configs, log.retentions(topics), now_ms, shows)
    interval_ms = round(settings.table(name).commit_interval_seconds * 1000)
    since_ms = min(beyond_since_ms(state, config, now_ms) for config in facts.configs.values())
    life = lifetime(facts, interval_ms, reads_to=since_ms)
    until_ms = None if point.end == point.seam else life.until_ms
    if until_ms is not None and until_ms <= now_ms:
        raise _gone(name, f"{life.because} has been over since {iso_time(until_ms)}")
    window = LogWindow(settings.views.kafka, topics, point.seam, end=point.end)
    plan = ViewPlan(
        Mode.PINNED,
        definition,
        settings.views.lake,
        point.snapshot_id,
        window,
        expires_at=instant_of(until_ms),
        row_filter=settings.table(name).view_filter,
        has_append_times=has_append_times(configs),
    )
    return PlannedView(plan, until_ms, life.because, pinned=called)


def _called(point: ReadPoint) -> str:
    digest = hashlib.sha256(point.to_header().encode()).hexdigest()[:_DIGEST_CHARACTERS]
    return f"{point.snapshot_id}_{digest}"


def _state(table: Table, name: str, point: ReadPoint) -> SnapshotState:
    snapshot = table.snapshot_by_id(point.snapshot_id)
    if snapshot is None:
        raise _gone(name, f"its snapshot {point.snapshot_id} was expired")
    state = state_of(snapshot, name)
    if state.seam != point.seam:  # safety: pin-seam
        raise BadParameter(name="--at", problem=f"it is not the seam of snapshot {point.snapshot_id}")
    return state


def _gone(name: str, detail: str) -> ReadPointGone:
    again = f"thermocline extract {name}      (its read point is one that can be pinned)"
    return ReadPointGone(table=name, detail=detail, again=again)

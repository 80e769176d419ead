"""The states of a table's views in Trino, by what their publisher noted and the table's newest snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from thermocline.serving.status.document import ViewStatus

if TYPE_CHECKING:
    from thermocline.serving.tail.table_facts import TableFacts, ViewFact

__all__ = ["view_states"]

State = Literal["now", "newest", "older", "ended", "withdrawn"]


def view_states(facts: TableFacts, now_ms: int) -> tuple[ViewStatus, ...]:
    """Each view that is noted, in the order of the notes."""
    newest_id = facts.recent[0].snapshot_id if facts.recent else None
    version = facts.versions[-1].version if facts.versions else None
    return tuple(
        ViewStatus(
            view=one.view,
            mode=one.mode,
            state=_state_of(one, newest_id, version, now_ms),
            snapshot_id=one.snapshot_id,
            ends_ms=one.ends_ms,
            reason=one.withdrawn,
        )
        for one in facts.views
    )


def _state_of(view: ViewFact, newest_id: str | None, version: int | None, now_ms: int) -> State:
    if view.withdrawn:
        return "withdrawn"
    if view.ends_ms is not None and view.ends_ms <= now_ms:
        return "ended"
    if view.snapshot_id is None:
        return "now" if version is None or view.definition_version == version else "older"
    return "newest" if view.snapshot_id == newest_id else "older"

"""The values that a route knows at its seam: those that have a table, and those whose table can't be made."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Self

from thermocline.rules.partition_time import PartitionTimes
from thermocline.rules.routes.names import is_denied, name_of, problem_of_value
from thermocline.rules.routes.own_columns import FirstSchema, OwnColumns
from thermocline.rules.seam import Seam, packed, unpacked

__all__ = ["Admission", "Beginning", "Directory", "Failed", "Outcome"]

REASON_CHARACTERS_MAX: Final = 300
"""Of why a table couldn't be made: enough for a sentence, for the directory is in each metadata file."""
PLAIN_CHARACTERS_MAX: Final = 4_000

Outcome = Literal["routed", "new", "denied", "beyond", "unusable"]
"""Of a record: its value has a table, gets one, is denied, is one too many, or can't be a table's."""


@dataclass(frozen=True, slots=True)
class Beginning:
    """A place in the log from which a table is to be read, and what held there.

    The offsets are those of this cluster and of the topics with these ids. A directory of an earlier release
    doesn't say them.
    """

    seam: Seam
    partition_times: PartitionTimes = field(default_factory=PartitionTimes)
    drained_ms: int = 0
    cluster_id: str = ""
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The form that `from_dict` reads."""
        times = self.partition_times.to_json()
        return {
            "seam": self.seam.to_dict(),
            "times": times,
            "drained_ms": self.drained_ms,
            "cluster": self.cluster_id,
            "topics": dict(self.topic_ids),
        }

    def knowing(self, later: Beginning) -> Self:
        """The same, with the topics that came by ``later``, each from where it was read first.

        ``later`` has read nothing of a topic that is new in it.
        """
        new = [topic for topic in later.topic_ids if topic not in self.topic_ids]
        if not new and self.cluster_id:
            return self
        starts = later.seam.only([topic for topic in new if topic not in self.seam.topics])
        return replace(
            self,
            seam=self.seam.merged_max(starts),
            # What came may have records that are older than when the log was drained.
            drained_ms=min(self.drained_ms, later.drained_ms),
            cluster_id=self.cluster_id or later.cluster_id,
            topic_ids={**later.topic_ids, **self.topic_ids},  # safety: routed-topic-of-then
        )

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Self:
        """Raises `ValueError`, `KeyError` or `TypeError` for what `to_dict` did not give."""
        times = PartitionTimes.from_json(found["times"])
        topics = {str(topic): str(id_) for topic, id_ in found.get("topics", {}).items()}
        cluster_id = str(found.get("cluster", ""))
        return cls(Seam.from_dict(found["seam"]), times, int(found["drained_ms"]), cluster_id, topics)


@dataclass(frozen=True, slots=True)
class Failed:
    """A value without its table: why, and from where its records are to be read once there is one.

    ``first`` is for routes whose tables have their own columns; None: no record named a known schema yet.
    """

    reason: str
    since: Beginning
    first: FirstSchema | None = None

    def to_dict(self) -> dict[str, Any]:
        """The form that `from_dict` reads."""
        first = {} if self.first is None else {"first": self.first.to_dict()}
        return {"reason": self.reason, "since": self.since.to_dict(), **first}

    @classmethod
    def from_dict(cls, found: Mapping[str, Any]) -> Self:
        """Raises `ValueError`, `KeyError` or `TypeError` for what `to_dict` did not give."""
        first = FirstSchema.from_dict(found["first"]) if "first" in found else None
        return cls(str(found["reason"]), Beginning.from_dict(found["since"]), first)


@dataclass(frozen=True, slots=True)
class Admission:
    """Which values a route's records may have, as its next batch is read.

    ``known`` are those that have a table, or wait for one. Once it ``is_full``, there is no room for others.
    ``unnamed`` are those that are known, and of which no record named a known schema yet.
    """

    known: frozenset[str] = frozenset()
    denied: tuple[str, ...] = ()
    is_full: bool = False
    tables_max: int = 0
    unnamed: frozenset[str] = frozenset()

    def of(self, value: str) -> Outcome:
        """What becomes of records with that value."""
        if problem_of_value(value):
            return "unusable"
        if is_denied(value, self.denied):
            return "denied"
        if value in self.known:
            return "routed"
        return "beyond" if self.is_full else "new"  # safety: route-full

    def reason(self, value: str, outcome: Outcome) -> str:
        """Why records with that value have no table; empty where they have one, or are denied."""
        if outcome == "beyond":
            return f"its value has no table: the route has {self.tables_max:,}, which is tables_max"
        return problem_of_value(value) if outcome == "unusable" else ""


@dataclass(frozen=True, slots=True)
class Directory:
    """The values that came before the seam: the name of each one's table, or why it has none.

    Values that are denied or beyond the limit are not in it. A value stays in it for good. ``columns`` are
    those that tables began with which have their own.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    failed: Mapping[str, Failed] = field(default_factory=dict)
    columns: Mapping[str, OwnColumns] = field(default_factory=dict)

    @classmethod
    def from_json(cls, text: str | None) -> Self:
        """From what `to_json` wrote; empty from nothing. Raises `ValueError` for any other text."""
        try:
            found = json.loads(unpacked(text or "{}"))
            names = {str(value): str(name) for value, name in found.get("names", {}).items()}
            failed = {str(value): Failed.from_dict(one) for value, one in found.get("failed", {}).items()}
            columns = {
                str(value): OwnColumns.from_dict(one) for value, one in found.get("columns", {}).items()
            }
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"it is no directory of a route: {error}") from error
        return cls(names, failed, columns)

    def to_json(self) -> str:
        """JSON; packed where it is long."""
        failed = {value: one.to_dict() for value, one in self.failed.items()}
        found: dict[str, Any] = {"names": dict(self.names), "failed": failed}
        if self.columns:
            found["columns"] = {value: own.to_dict() for value, own in self.columns.items()}
        text = json.dumps(found, sort_keys=True)
        return text if len(text) <= PLAIN_CHARACTERS_MAX else packed(text)

    def __contains__(self, value: object) -> bool:
        return value in self.names or value in self.failed

    def __len__(self) -> int:
        return len(self.names) + len(self.failed)

    def admission(self, denied: Sequence[str], tables_max: int, chosen: Iterable[str] = ()) -> Admission:
        """What a batch is read by; ``chosen`` are the new values that were found to take the last places."""
        chosen = frozenset(chosen)
        known = frozenset({*self.names, *self.failed, *chosen})
        waiting = {value for value, one in self.failed.items() if one.first is None}
        return Admission(known, tuple(denied), len(known) >= tables_max, tables_max, chosen | waiting)

    def admitted(self, values: Iterable[str], tables_max: int, before: Iterable[str] = ()) -> tuple[str, ...]:
        """Which of the values that came become known: all new ones that there is room for, sorted.

        New ones ``before`` them, which have a table already, take their places first, also where none came.
        """
        # safety: route-made-before-first
        sought = (*sorted(set(before)), *sorted(set(values)))
        new = [value for value in dict.fromkeys(sought) if value not in self]
        return tuple(new[: max(tables_max - len(self), 0)])  # safety: route-tables-max

    def with_table(self, value: str, own: OwnColumns | None = None) -> Self:
        """The same, once the value has its table, maybe with columns of its own."""
        failed = {one: why for one, why in self.failed.items() if one != value}
        columns = self.columns if own is None else {**self.columns, value: own}
        return replace(self, names={**self.names, value: name_of(value)}, failed=failed, columns=columns)

    def knowing(self, now: Beginning) -> Self:
        """The same, where each value without a table knows the topics that came since; see `Beginning`."""
        failed = {value: replace(one, since=one.since.knowing(now)) for value, one in self.failed.items()}
        return self if failed == self.failed else replace(self, failed=failed)

    def without_table(
        self, value: str, reason: str, since: Beginning, first: FirstSchema | None = None
    ) -> Self:
        """The same, where its table couldn't be made; it was first seen at ``since``, or later.

        So was ``first``: what was noted of it before stays.
        """
        before = self.failed.get(value, Failed("", since, first))
        failed = Failed(
            reason[:REASON_CHARACTERS_MAX],
            before.since,  # safety: route-failed-since
            before.first or first,
        )
        return replace(self, failed={**self.failed, value: failed})

"""Sums up a status report: its exit code, the lag of a table, and how long asking may take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from thermocline.errors import DependencyMissing, ExitCode, all_errors
from thermocline.process.clock import iso_time
from thermocline.text.typed import command
from thermocline.text.unread import each_field

if TYPE_CHECKING:
    from thermocline.iceberg.alterations import NotedAlteration
    from thermocline.kafka.facts import OpenTransaction
    from thermocline.rules.seam import Seam

SOURCES_SHARE: Final = 0.6  # of it; the rest is for what is asked of each table then
TABLES_MANY: Final = 10
UNREAD_SHOWN_MAX: Final = 5
_UNITS: Final = (("d", 86_400), ("h", 3_600), ("min", 60))
TABLE_SECONDS: Final = 0.1  # for each beyond so many; it takes some 30 ms of the processor


class StatusSource(StrEnum):
    """What a status asks."""

    KAFKA = "kafka"
    CATALOG = "catalog"
    SERVER = "server"
    TRINO = "trino"


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a status may take, in seconds: the sources, and then the tables."""

    timeout: float
    tables: int

    @property
    def sources(self) -> float:
        """For all sources together."""
        return self.timeout * SOURCES_SHARE

    @property
    def all(self) -> float:
        """For all that is asked, from the beginning."""
        return self.timeout + TABLE_SECONDS * max(0, self.tables - TABLES_MANY)


def exit_code_of(report: dict[str, Any]) -> int:
    """The worst of what a report says; see `thermocline status --help`."""
    tables = report["tables"]
    problems = _problems_of(tables)
    has_unavailable = any(
        is_unavailable(source, report[source]) for source in StatusSource if source in report
    )
    if has_unavailable or ExitCode.UNAVAILABLE in problems or any("unanswered" in entry for entry in tables):
        return ExitCode.UNAVAILABLE
    if problems:
        return max(problems)
    is_gone = any(entry.get("owner", {}).get("is_gone") for entry in tables)
    return ExitCode.BAD_ANSWER if is_gone or not _is_served(report) else ExitCode.DONE


def _problems_of(tables: Sequence[dict[str, Any]]) -> list[int]:
    """The exit codes of what is wrong with the tables, and of what stopped their owners."""
    problems: list[int] = [entry["error"]["exit_code"] for entry in tables if "error" in entry]
    stopped = {entry.get("owner", {}).get("stopped_by") for entry in tables if "error" not in entry}
    return problems + [error.exit_code for code, error in all_errors().items() if code in stopped]


def _is_served(report: dict[str, Any]) -> bool:
    """Whether the server, if it was asked, has all tables ready and none stale."""
    if "server" not in report:
        return True
    served = served_tables(report["server"])
    answers = [served.get(entry["table"], {}) for entry in report["tables"]]
    return all(answer.get("ready") and not answer.get("stale") for answer in answers)


def is_unavailable(source: StatusSource, answer: dict[str, Any]) -> bool:
    """Whether it is down. A Trino that can't be asked from here, for want of its client, may be well."""
    is_asked = (
        source is not StatusSource.TRINO or answer.get("error", {}).get("code") != DependencyMissing.code
    )
    return "error" in answer and is_asked


def served_tables(server: dict[str, Any]) -> dict[str, Any]:
    """What the server says of each of its tables; empty where what listens there is no server of ours."""
    match server:
        case {"status": {"tables": dict(tables)}}:
            return tables
    return {}


def remarks_on_serving(report: Mapping[str, Any]) -> Iterator[str]:
    """Why a server that answers does not have all tables ready, and what to do."""
    server: Mapping[str, Any] = report.get("server", {})
    status = server.get("status")
    if not isinstance(status, dict) or not isinstance(status.get("tables"), dict):
        return
    served, hidden = status["tables"], status.get("not_operated", ())
    for name, answer in served.items():
        if problem := answer.get("problem"):
            yield f"{name}: {problem}"
    for name in (entry["table"] for entry in report["tables"] if entry["table"] not in served):
        if name in hidden:
            why = "whether it is ready is told to clients with the verb admin; each answer says how old it is"
            # Not a verb more for who asks: with a scope or columns, there is no admin.
            operator = command(f"client create NAME --table {name} --verb admin")
            yield f"{name}: {why}  next: whoever runs the server can make such a client: {operator}"
        else:
            why = "the server does not serve it, or you have no verb for it"
            there = f"{command('config check')} on its machine, or {command('client list')} there"
            yield f"{name}: {why}  next: {there}"


def lag_of(seam: Seam, starts: Seam, ends: Seam, held: Sequence[OpenTransaction]) -> dict[str, Any]:
    """Offsets between seam and end, and the partitions where the two do not fit or where something waits.

    Those are the partitions whose seam the log does not hold any more, or yet, those that are new (the topic
    gained them, so they will be read from their first offset), and those that an open transaction holds back.
    """
    known = {(topic, partition): offset for topic, partition, offset in seam.items()}
    logged = {(topic, partition): starts.get((topic, partition)) for topic, partition, _ in ends.items()}
    outside = [place for place, offset in known.items() if not starts.get(place) <= offset <= ends.get(place)]
    return {
        "offsets": sum(max(ends.get(place) - offset, 0) for place, offset in (logged | known).items()),
        "log_start": starts.to_dict(),
        "log_end": ends.to_dict(),
        "outside_log": _places(outside),
        "new_partitions": _places(place for place in logged if place not in known),
        "open_transactions": [
            {
                "partition": f"{one.topic}/{one.partition}",
                "begins_at": one.begins_at,
                "held_back": one.held_back,
            }
            for one in held
        ],
    }


def shown_lag(entry: dict[str, Any]) -> str:
    """How old a table's oldest record is that is not committed, for a person; what gave its time, too."""
    seconds = entry.get("ingest_lag_seconds")
    if seconds is None:
        return "unknown"
    origin = ", by producer" if seconds and entry["lag_time_from"] == "producer" else ""
    return f"{seconds:.1f}{origin}"


def shown_headroom(entry: dict[str, Any]) -> str:
    """How long the log keeps what a table has not committed, and by which limit, for a person."""
    limit, seconds = entry.get("headroom_limit", "unknown"), entry.get("headroom_seconds")
    if seconds is None:
        return "unlimited" if limit == "none" else "unknown"
    for unit, size in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit} ({limit})"
    return f"{seconds:.0f} s ({limit})"


def _places(places: Iterable[tuple[str, int]]) -> list[str]:
    return [f"{topic}/{partition}" for topic, partition in places]


def shown_unread(entry: Mapping[str, Any]) -> str:
    """The fields of a table's records that no column is read from, and what to do."""
    names, counted = entry["unread_fields"], entry["unread"]
    shown = each_field(counted["fields"], counted["others"], counted["values"], UNREAD_SHOWN_MAX)
    if not counted["values"]:  # noted by an earlier release, which did not count
        shown = iter(names[:UNREAD_SHOWN_MAX])
    next_step = command(f"table alter {entry['table']}")
    return f"no column is read from: {', '.join(shown)}  next: declare what you want, then {next_step}"


def schema_change_document(change: NotedAlteration | None) -> dict[str, Any] | None:
    """The last change that a table took up by its contract, for JSON output."""
    if change is None:
        return None
    return {
        "at": iso_time(change.at_ms),
        "version": change.version,
        "changes": list(change.changes),
        "causes": [asdict(one) for one in change.causes],
    }


def shown_schema_change(change: Mapping[str, Any]) -> str:
    """The same, for a person."""
    from thermocline.iceberg.alterations import NotedCause

    words = (*change["changes"], *(str(NotedCause(**one)) for one in change["causes"]))
    return f"changed by its contract {change['at']}: {'; '.join(words)}"

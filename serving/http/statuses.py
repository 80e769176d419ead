"""The status of the tables that a caller operates, for ``/status`` and the pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from thermocline.errors import UnknownTable
from thermocline.serving.read.caller import Action
from thermocline.serving.status.bad_records import without_reasons

if TYPE_CHECKING:
    from thermocline.serving.http.worker import Worker
    from thermocline.serving.read.caller import Caller
    from thermocline.serving.read.tables import ServedTable
    from thermocline.serving.status.document import ServerStatus

__all__ = ["looked_up", "not_operated", "operated", "operates_all", "server_status", "shared_status"]

SHARED_SECONDS: Final = 1.0
"""How old a table's status may be, which says when it was made: programs ask more closely than people."""


def operated(worker: Worker, caller: Caller) -> list[ServedTable]:
    """The tables that a caller operates."""
    return [
        table for table in worker.tables if caller.may(Action.ADMIN, table.name)
    ]  # safety: status-granted


def not_operated(worker: Worker, caller: Caller) -> tuple[str, ...]:
    """The tables that a caller knows otherwise."""
    known = worker.tables.known_to(caller)
    return tuple(table.name for table in known if not caller.may(Action.ADMIN, table.name))


def looked_up(worker: Worker, caller: Caller) -> tuple[str, ...]:
    """Those of them whose rows a caller may look up."""
    return tuple(name for name in not_operated(worker, caller) if caller.may(Action.LOOKUP, name))


def operates_all(worker: Worker, caller: Caller) -> bool:
    """Whether those are all that there are."""
    return all(caller.may(Action.ADMIN, table.name) for table in worker.tables)


async def shared_status(worker: Worker, caller: Caller, name: str) -> str:
    """Of one table, as JSON, made once for all who see the same of it. Raises as `server_status`."""
    known = tuple(table.name for table in operated(worker, caller))
    if name not in known:  # nothing is shared for names that somebody makes up
        raise UnknownTable(table=name, known=known, of_client=not caller.is_operator)

    async def make() -> str:
        return (await server_status(worker, caller, name)).model_dump_json(exclude_unset=True)

    # safety: statuses-shared-by-grants
    key = "status", name, operates_all(worker, caller), caller.reads_all(name)
    return await worker.pages.get(key, SHARED_SECONDS, make)


async def server_status(worker: Worker, caller: Caller, name: str | None = None) -> ServerStatus:
    """Of the tables that the caller operates, or of one of them in all details.

    Raises `UnknownTable`, also where there is one of that name that is not theirs.
    """
    shown = operated(worker, caller)
    if name is not None:
        known = tuple(table.name for table in shown)
        shown = [table for table in shown if table.name == name]
        if not shown:  # safety: status-of-a-table-granted
            raise UnknownTable(table=name, known=known, of_client=not caller.is_operator)
    # Disk, clients file and audit log are everybody's.
    is_all = operates_all(worker, caller)
    disk, problems = (worker.disk_room(), worker.guard.all_problems()) if is_all else ({}, ())
    status = await worker.statuses.of(shown, disk, problems, name is not None)
    if name is None or caller.reads_all(name):  # safety: bad-reasons-to-readers
        return status
    return without_reasons(status)

"""The parts of a request that endpoints ask for: the worker, the caller, and the table that it names."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Depends, Header, Request

from thermocline.rules.read_point import HEADER as READ_AFTER
from thermocline.rules.read_point import READ_AFTER as READ_AFTER_FORM
from thermocline.serving.http.noted import Noted, noted_in
from thermocline.serving.http.problems import CALLER
from thermocline.serving.http.worker import Worker
from thermocline.serving.read.caller import Action, Caller
from thermocline.serving.read.tables import ServedTable

__all__ = [
    "AdminTable",
    "Asking",
    "JobsTable",
    "KnownTable",
    "LookupTable",
    "Noting",
    "OfWorker",
    "ReadAfter",
]


async def _worker(request: Request) -> Worker:
    worker: Worker = request.app.state.worker
    return worker


async def _caller(request: Request) -> Caller:
    caller: Caller = request.scope[CALLER]
    return caller


OfWorker = Annotated[Worker, Depends(_worker)]
Asking = Annotated[Caller, Depends(_caller)]


async def _table(worker: OfWorker, caller: Asking, table: str) -> ServedTable:
    return worker.tables.read_by(caller, table)


async def _noted(request: Request) -> Noted:
    return noted_in(request.scope)


Noting = Annotated[Noted, Depends(_noted)]


def _for(action: Action) -> Any:
    async def permitted(caller: Asking, table: Annotated[ServedTable, Depends(_table)]) -> ServedTable:
        caller.check(action, table.name)
        return table

    return Depends(permitted)


KnownTable = Annotated[ServedTable, Depends(_table)]
"""A table with which the caller may do anything."""
LookupTable = Annotated[ServedTable, _for(Action.LOOKUP)]
JobsTable = Annotated[ServedTable, _for(Action.JOBS)]
AdminTable = Annotated[ServedTable, _for(Action.ADMIN)]

_RECORD: Final = READ_AFTER_FORM.pattern.replace("(", "(?:")
ReadAfter = Annotated[
    str | None,
    Header(
        alias=READ_AFTER,
        # One record at least; how many are too many, and which there are, no pattern can say.
        json_schema_extra={"pattern": f"^ *{_RECORD}( *, *{_RECORD})* *$"},
        description="topic/partition@offset, ...: wait until these records are included, for a limited time.",
    ),
]

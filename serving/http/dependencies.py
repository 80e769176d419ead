"""The parts of a request that endpoints ask for: the worker, the caller, and the table that it names."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Depends, Request

from thermocline.serving.http.noted import Noted, noted_in
from thermocline.serving.http.problems import CALLER
from thermocline.serving.http.worker import Worker
from thermocline.serving.read.caller import Action, Caller
from thermocline.serving.read.tables import ServedTable

__all__ = ["AdminTable", "Asking", "JobsTable", "KnownTable", "LookupTable", "Noting", "OfWorker"]


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

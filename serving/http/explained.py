"""The explained lookup of one entity: its rows, and where each came from; for programs and the page."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fastapi import APIRouter, Request
from starlette.responses import Response

from thermocline.errors import RowNotFound, ServerBusy
from thermocline.serving.http.dependencies import Asking, LookupTable, Noting, OfWorker, ReadAfter
from thermocline.serving.http.models import ExplainedAnswer
from thermocline.serving.http.openapi import ANSWERING, problems
from thermocline.serving.http.requests import parameters_of
from thermocline.serving.read.answer import explained_json
from thermocline.serving.read.entity import entity_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from thermocline.serving.cold.reader import Entity
    from thermocline.serving.hot.refused import RefusedRecords
    from thermocline.serving.http.noted import Noted
    from thermocline.serving.http.worker import Worker
    from thermocline.serving.read.caller import Caller
    from thermocline.serving.read.explained import Explained
    from thermocline.serving.read.tables import ServedTable

__all__ = ["Found", "explained", "find_explained"]

explained = APIRouter()


@dataclass(frozen=True, slots=True)
class Found:
    """What was asked for and what was found; the refused records are as in a lookup."""

    entity: Entity
    explained: Explained
    refused: RefusedRecords


async def find_explained(
    worker: Worker,
    caller: Caller,
    noted: Noted,
    table: ServedTable,
    parameters: Mapping[str, str],
    read_after: str | None = None,
) -> Found:
    """An explained lookup for a caller who may look up rows of the table, noted for the audit log.

    Raises as a lookup, but that an entity without rows is no error.
    """
    reader = table.reader
    definition = worker.sights.of(caller, reader.cold.index.definition).definition
    entity = entity_of(definition, parameters)
    wanted = await worker.read_after(reader, read_after)
    noted.definition, noted.entities = definition, (entity,)
    found = await worker.explained(caller, reader, entity)
    noted.read_point, noted.rows = found.look.read_point_json, len(found.rows)
    return Found(entity, found, worker.refused(caller, reader, found.look, wanted, [found.live_rows]))


@explained.get(
    "/v1/tables/{table}/rows/explained",
    summary="The rows of one entity of {table}, and where each came from",
    response_model=ExplainedAnswer,
    responses=problems(RowNotFound, ServerBusy, *ANSWERING),
)
async def rows_explained(
    worker: OfWorker,
    caller: Asking,
    noted: Noting,
    table: LookupTable,
    request: Request,
    read_after: ReadAfter = None,
) -> Response:
    """Takes what a lookup takes, and reads the files of the rows, so it takes some milliseconds longer.

    Rows whose deletion is not committed yet are there, too, with what was deleted.
    """
    parameters = parameters_of(request.scope["query_string"])
    found = await find_explained(worker, caller, noted, table, parameters, read_after)
    body = await asyncio.to_thread(explained_json, table.name, found.explained, found.entity, found.refused)
    return Response(body, media_type="application/json")

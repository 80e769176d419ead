"""The routes of the pages, of signing in and out, and of the files that pages load."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Query, Request
from markupsafe import Markup
from starlette.responses import HTMLResponse, RedirectResponse, Response

from thermocline.errors import BadRequest, ThermoclineError, UnknownTable
from thermocline.serving.http.dependencies import Asking, OfWorker
from thermocline.serving.http.site import render
from thermocline.serving.http.site.framed import framed
from thermocline.serving.http.site.session import (
    ASSETS,
    CREDENTIAL_MAX,
    SIGN_IN,
    SIGN_OUT,
    Session,
    is_from_here,
    is_page,
)
from thermocline.serving.http.site.sign_in import CREDENTIALS, PAGE_HEADERS, sign_in_page
from thermocline.serving.http.statuses import (
    looked_up,
    not_operated,
    operated,
    operates_all,
    server_status,
)
from thermocline.serving.read.caller import Action, Credentials

if TYPE_CHECKING:
    from thermocline.serving.http.worker import Worker
    from thermocline.serving.read.caller import Caller

__all__ = ["assets", "pages"]

SHARED_SECONDS: Final = 5.0
"""How old what is shown may be: all who look within that time share it. It says when it was made."""
SHARED_SECONDS_PER_TABLE: Final = 0.15
"""With many tables it is older: each takes some 0.6 ms of the processor, and a server spends 0.4 % on it."""
SHARED_SECONDS_MAX: Final = 45.0
"""Less than `WANTED_MS` of the facts' keeper, so that they are asked for as long as somebody looks."""
_FILES: Final = {
    path.name: (path.read_bytes(), kind)
    for name, kind in (("page.css", "text/css"), ("page.js", "text/javascript"))
    for path in (Path(__file__).parent / "assets" / name,)
}

_IN_QUERIES: Final = "%=&+"
"""What a browser leaves in a query, where all else is encoded already."""

pages = APIRouter(include_in_schema=False)
assets = APIRouter(include_in_schema=False)

IsPart = Annotated[bool, Query(alias="part")]


@pages.get("/")
async def tables_page(
    request: Request, worker: OfWorker, caller: Asking, is_part: IsPart = False
) -> Response:
    """All tables that the caller operates; to who operates none, what else they may do."""
    if caller.is_operator or operated(worker, caller):
        main = await _shared(worker, caller, "tables.html", None)
    else:  # how tables are is not theirs to see, nor to mend
        known = not_operated(worker, caller)
        main = render.part("readers.html", known=known, looked_up=looked_up(worker, caller))
    return _answer(request, worker, caller, "Tables", main, is_part)


@pages.get("/tables/{table:path}/bad-records")
async def bad_records_page(
    request: Request, worker: OfWorker, caller: Asking, table: str, is_part: IsPart = False
) -> Response:
    """The bad records of one of them."""
    return await _of_table(
        request, worker, caller, "bad_records.html", table, f"{table}: bad records", is_part
    )


@pages.get("/tables/{table:path}")
async def table_page(
    request: Request, worker: OfWorker, caller: Asking, table: str, is_part: IsPart = False
) -> Response:
    """One of them."""
    return await _of_table(request, worker, caller, "table.html", table, table, is_part)


async def _of_table(
    request: Request, worker: Worker, caller: Caller, template: str, table: str, title: str, is_part: bool
) -> Response:
    try:
        main = await _shared(worker, caller, template, table)
    except UnknownTable:
        main = render.part("unknown.html", name=table, what="operate")
        return _answer(request, worker, caller, "No such table", main, is_part, status=404)
    return _answer(request, worker, caller, title, main, is_part)


@assets.get(SIGN_IN)
async def sign_in_form() -> Response:
    """The form."""
    return sign_in_page("/", status=200)


@assets.post(SIGN_IN)
async def sign_in(worker: OfWorker, request: Request) -> Response:
    """Takes a key, and leads to the page that was asked for, with a session."""
    if not is_from_here(request.headers):  # safety: sign-in-from-here
        raise BadRequest.of_host()
    given = parse_qs((await request.body()).decode("latin-1"), max_num_fields=10)
    key, to = (given.get(name, [""])[0].strip() for name in ("key", "to"))
    to = to if is_page(to) else "/"  # safety: sign-in-leads-to-pages
    if not key or len(key) > CREDENTIAL_MAX or not key.isascii():
        return sign_in_page(to, problem="Give a key of this server.")
    credentials: Credentials = request.scope[CREDENTIALS]
    try:
        worker.guard.admit(replace(credentials, authorization=f"Bearer {key}"))
    except ThermoclineError as error:
        return sign_in_page(to, problem=error.what, status=error.status)
    session: Session = request.app.state.session
    cookie = await asyncio.to_thread(session.cookie, key)
    path, mark, query = to.partition("?")
    target = quote(path) + mark + quote(query, safe=_IN_QUERIES)
    return RedirectResponse(target, 303, {**PAGE_HEADERS, "Set-Cookie": cookie})


@assets.post(SIGN_OUT)
async def sign_out(request: Request) -> Response:
    """Ends the session in this browser."""
    if not is_from_here(request.headers):
        raise BadRequest.of_host()
    session: Session = request.app.state.session
    return RedirectResponse(SIGN_IN, 303, {**PAGE_HEADERS, "Set-Cookie": session.cleared()})


@assets.get(ASSETS + "{name}")
async def asset(name: str) -> Response:
    """A file that pages load."""
    if name not in _FILES:
        raise BadRequest.no_route(f"{ASSETS}{name}")
    content, kind = _FILES[name]
    return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})


async def _shared(worker: Worker, caller: Caller, template: str, name: str | None) -> Markup:
    """What a page shows, made once for all who operate the same tables."""
    shown = tuple(table.name for table in operated(worker, caller))
    if name is not None and name not in shown:
        # No page is shared for it: whoever makes names up would take the place of those that are looked at.
        raise UnknownTable(table=name, known=shown)
    reads_all = name is not None and caller.reads_all(name)
    looks_up = name is not None and caller.may(Action.LOOKUP, name)

    async def make() -> str:
        status = await server_status(worker, caller, name)
        values = {"status": status, "verdict": render.overall(status), "now": status.as_of_ms}
        if name is not None:
            values |= {"name": name, "table": status.tables[name]}
            values |= {"shows_reasons": reads_all, "looks_up": looks_up}
        return await asyncio.to_thread(render.part, template, **values)

    # safety: pages-shared-by-grants, pages-shared-by-readers
    key = template, name, shown, operates_all(worker, caller), reads_all, looks_up
    seconds = min(max(SHARED_SECONDS, SHARED_SECONDS_PER_TABLE * len(shown)), SHARED_SECONDS_MAX)
    return Markup(await worker.pages.get(key, seconds, make))  # noqa: S704  what a template made, here or in another worker


def _answer(
    request: Request,
    worker: Worker,
    caller: Caller,
    title: str,
    main: Markup,
    is_part: bool,
    status: int = 200,
) -> Response:
    if is_part:
        return HTMLResponse(main, status, PAGE_HEADERS)
    return framed(request, worker, caller, title, main, status, here=title)

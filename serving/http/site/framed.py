"""A page within the frame that all have: the links to the tables that its caller may look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse

from thermocline.serving.http.site import render
from thermocline.serving.http.site.sign_in import PAGE_HEADERS, SIGNED_IN
from thermocline.serving.http.statuses import looked_up, operated

if TYPE_CHECKING:
    from markupsafe import Markup
    from starlette.requests import Request
    from starlette.responses import Response

    from thermocline.serving.http.worker import Worker
    from thermocline.serving.read.caller import Caller

__all__ = ["framed"]


def framed(
    request: Request,
    worker: Worker,
    caller: Caller,
    title: str,
    main: Markup,
    status: int = 200,
    here: str = "",
    is_still: bool = False,
) -> Response:
    """The page; ``here`` is the link that leads to it, and a still one is not refreshed."""
    names = [table.name for table in operated(worker, caller)]
    others = looked_up(worker, caller)
    signed_in = request.scope.get(SIGNED_IN, False)
    values = {"signed_in": signed_in, "here": here, "looked_up": others, "is_still": is_still}
    return HTMLResponse(render.page(title, main, names, **values), status, PAGE_HEADERS)

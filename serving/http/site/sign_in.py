"""The page on which a person signs in, which also answers who asks for a page without having done so."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.responses import HTMLResponse

from thermocline.serving.http.site import render
from thermocline.serving.http.site.session import is_page

if TYPE_CHECKING:
    from starlette.responses import Response

__all__ = ["CREDENTIALS", "PAGE_HEADERS", "SIGNED_IN", "sign_in_page"]

PAGE_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
}
CREDENTIALS: Final = "thermocline.credentials"
"""Where a request's scope has the `Credentials` that it brings."""
SIGNED_IN: Final = "thermocline.signed-in"
"""And whether they are those of a session: of the form, not of a header or a certificate."""


def sign_in_page(to: str, problem: str = "", status: int = 401) -> Response:
    """The page on which a person signs in. The challenge is one for which no browser asks by itself."""
    main = render.part("sign_in.html", to=to if is_page(to) else "/", problem=problem)
    headers = PAGE_HEADERS | ({"WWW-Authenticate": 'Bearer realm="thermocline"'} if status == 401 else {})
    return HTMLResponse(render.page("Sign in", main, is_sign_in=True), status, headers)

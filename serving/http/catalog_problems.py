"""Errors of the live catalog, in the form of the Iceberg REST catalog specification."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from starlette.responses import Response

if TYPE_CHECKING:
    from thermocline.errors import ThermoclineError

__all__ = ["PREFIX", "catalog_error", "catalog_problem"]

PREFIX: Final = "/iceberg"
"""Of the paths that are the catalog's."""
_TYPES: Final = {
    401: (401, "NotAuthorizedException"),
    403: (403, "ForbiddenException"),
    404: (404, "NoSuchTableException"),
    410: (404, "NoSuchTableException"),
    422: (400, "BadRequestException"),
    429: (429, "TooManyRequestsException"),
    503: (503, "ServiceUnavailableException"),
}
"""By status of ours, what Iceberg's libraries know."""


def catalog_problem(error: ThermoclineError) -> Response:
    """An error of ours as engines read it."""
    status, kind = _TYPES.get(error.status, (error.status, "InternalServerError"))
    said = {"State": error.state, "Next": error.next}
    more = "".join(f" {what}: {text}" for what, text in said.items() if text)
    return catalog_error(status, kind, f"[{error.code}] {error.what}{more}")


def catalog_error(status: int, kind: str, message: str) -> Response:
    """An error by the names of the specification."""
    body = {"error": {"message": message, "type": kind, "code": status}}
    return Response(msgspec.json.encode(body), status, media_type="application/json")

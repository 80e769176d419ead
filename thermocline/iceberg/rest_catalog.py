"""PyIceberg's REST catalog, that gives up on a server which says nothing; PyIceberg loads it by its name."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pyiceberg.catalog.rest import RestCatalog
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

from thermocline.errors import TableRestricted

if TYPE_CHECKING:
    from requests import Response, Session

CONNECT_PROPERTY = "rest.client.connection-timeout-ms"
_RESTRICTIONS = "read-restrictions"
ANSWER_PROPERTY = "rest.client.socket-timeout-ms"
# As often as Iceberg's Java library; once more where the answer was lost. What changes something is never
# asked for again: it may have been done.
_RETRIES = Retry(
    total=5,
    connect=0,
    read=1,
    backoff_factor=0.5,
    status_forcelist=(429, 500, 502, 503, 504),
    allowed_methods=("GET", "HEAD"),
    raise_on_status=False,
)


class BoundedRestCatalog(RestCatalog):
    """With Java's two time-outs for each request, and retries of requests that change nothing.

    PyIceberg itself waits without an end. Raises `TableRestricted` where it would read what the catalog
    hides.
    """

    def _create_session(self) -> Session:
        session = super()._create_session()
        names = (CONNECT_PROPERTY, ANSWER_PROPERTY)
        connect, answer = (float(self.properties[name]) / 1000 for name in names)
        # However it is called, and whatever adapter signs its requests.
        # safety: rest-bounds
        object.__setattr__(session, "request", partial(session.request, timeout=(connect, answer)))
        session.hooks["response"].append(_check_restrictions)
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=_RETRIES))
        return session


def _check_restrictions(response: Response, *_: object, **__: object) -> None:
    """Refuses a table with restrictions. Source: ``ReadRestrictions`` of the REST catalog specification.

    An empty one restricts nothing, as if it were not there.
    """
    if _RESTRICTIONS.encode() not in response.content:  # an answer is too long to be parsed once more
        return
    answer = json.loads(response.content)
    found = answer.get(_RESTRICTIONS) if isinstance(answer, dict) else None
    if not found:
        return
    if not isinstance(found, dict) or any(found.values()):  # safety: rest-restrictions
        names = ", ".join(sorted(found)) if isinstance(found, dict) else str(found)
        table = unquote(urlsplit(response.url).path.rpartition("/")[2])
        raise TableRestricted(table=table, identifier=table, detail=f"{_RESTRICTIONS} has {names}")

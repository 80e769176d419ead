"""PyIceberg's REST catalog, that gives up on a server which says nothing; PyIceberg loads it by its name."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from pyiceberg.catalog.rest import RestCatalog
from requests.adapters import HTTPAdapter
from urllib3.util import Retry

if TYPE_CHECKING:
    from requests import Session

CONNECT_PROPERTY = "rest.client.connection-timeout-ms"
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

    PyIceberg itself waits without an end.
    """

    def _create_session(self) -> Session:
        session = super()._create_session()
        names = (CONNECT_PROPERTY, ANSWER_PROPERTY)
        connect, answer = (float(self.properties[name]) / 1000 for name in names)
        # However it is called, and whatever adapter signs its requests.
        # safety: rest-bounds
        object.__setattr__(session, "request", partial(session.request, timeout=(connect, answer)))
        for scheme in ("http://", "https://"):
            session.mount(scheme, HTTPAdapter(max_retries=_RETRIES))
        return session

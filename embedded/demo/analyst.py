"""Trino as an analyst asks it. The only module of the demo that knows its client, an optional package."""

from __future__ import annotations

from contextlib import closing
from typing import Any, Final
from urllib.parse import urlsplit

import requests
import trino.dbapi
from trino.exceptions import Error, TrinoQueryError

from embedded.demo.view_door import ANALYST
from thermocline.errors import TrinoRefused, TrinoUnreachable, first_line

# Trino answers a request within a second, whatever the query takes; a small machine is busy at times.
REQUEST_TIMEOUT_SECONDS: Final = 30.0
SOURCE: Final = "thermocline demo"


class Analyst:
    """One session, for one thread."""

    def __init__(self, url: str) -> None:
        self._url = url
        place = urlsplit(url)
        self._connection: Any = trino.dbapi.connect(
            host=place.hostname,
            port=place.port,
            user=ANALYST,
            source=SOURCE,
            request_timeout=REQUEST_TIMEOUT_SECONDS,
        )

    def __call__(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows that a query gives.

        Raises:
            TrinoUnreachable: no answer within the bounds.
            TrinoRefused: Trino answered with an error.
        """
        try:
            with closing(self._connection.cursor()) as cursor:
                cursor.execute(sql)
                return [tuple(row) for row in cursor.fetchall()]
        except TrinoQueryError as error:
            detail = first_line(Exception(error.message))
            raise TrinoRefused(url=self._url, name=str(error.error_name), detail=detail) from error
        except (Error, requests.RequestException) as error:
            raise TrinoUnreachable(url=self._url, detail=first_line(error)) from error

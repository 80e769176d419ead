"""Statements for Trino, bounded in time, and its errors as ours. The only module that knows its client."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import requests
import trino.dbapi
from trino.auth import BasicAuthentication
from trino.exceptions import Error, HttpError, TrinoAuthError, TrinoConnectionError, TrinoQueryError

from thermocline.errors import TrinoRefused, TrinoUnreachable, ViewContended, first_line
from thermocline.views.sql import literal

if TYPE_CHECKING:
    from thermocline.settings import ViewsSettings

__all__ = ["Trino"]

# It logs each attempt that failed; what came of them all is our error.
logging.getLogger("trino.client").setLevel(logging.WARNING)

REQUEST_TIMEOUT_SECONDS: Final = 10.0  # of one request; a long query's requests answer within a second each
ATTEMPTS_MAX: Final = 3  # of one request, where the connection fails or Trino says that it is busy
STATEMENT_TIME_MAX: Final = "60s"  # to replace a view takes 0.2 s; Trino ends what takes longer by itself
SOURCE: Final = "thermocline"
# How the catalogs say that somebody else swapped the view, made or dropped it between Iceberg's look and its
# write, or that SQLite's one writer was another. The last is how Iceberg says that the table that it was to
# load is a view: one that was made between Trino's look for a view of this name and that for a table.
_CONTENDED: Final = (
    "was updated concurrently",
    "was created concurrently",
    "view already exists",
    "view does not exist",
    "sqlite_busy",
    "database is locked",
    "has been updated by another process",
    "cannot parse missing int: last-column-id",
)


class Trino:
    """Trino as the settings name it. Each statement has a connection of its own.

    ``table`` is the one whose views are asked for, for the commands that errors print.
    """

    def __init__(
        self, views: ViewsSettings, connect: Callable[..., Any] = trino.dbapi.connect, table: str = ""
    ) -> None:
        """Takes the settings; asks nobody yet."""
        self._connect, self._views, self._table = connect, views, table
        self.url = views.url

    def rows(self, sql: str, view: str = "") -> list[tuple[Any, ...]]:
        """What a statement gives; for one that changes a view, its name.

        Raises:
            TrinoUnreachable: no answer within the bounds.
            ViewContended: somebody else changed the catalog at the same moment. Look again, and then repeat.
            TrinoRefused: Trino answered with any other error.
        """
        try:
            with closing(self._open()) as connection, closing(connection.cursor()) as cursor:
                cursor.execute(sql)
                return [tuple(row) for row in cursor.fetchall()]
        except TrinoQueryError as error:
            said = _said(error)
            detail = _detail(said[0], said[-1])
            if view and any(words in one.lower() for one in said for words in _CONTENDED):
                raise ViewContended(view=view, detail=detail, table=self._table) from error
            raise self._refused(str(error.error_name), detail) from error
        except TrinoAuthError as error:
            raise self._refused("AUTHENTICATION", first_line(error)) from error
        except (TrinoConnectionError, Error, requests.RequestException) as error:
            raise TrinoUnreachable(url=self.url, detail=first_line(error)) from error
        except HttpError as error:
            status, _, _ = str(error).partition(":")  # its page follows
            raise TrinoUnreachable(url=self.url, detail=f"it answered with {status}; is it Trino?") from error

    def comments(
        self, catalog: str, schema: str, names: Sequence[str] | None = None
    ) -> Mapping[str, str | None]:
        """The comment of each table and view of a schema that is there, None where it has none.

        Trino loads every table of a schema for that, unless it is asked for one by its name.
        """
        select = (
            "SELECT table_name, comment FROM system.metadata.table_comments "  # noqa: S608  quoted
            f"WHERE catalog_name = {literal(catalog)} AND schema_name = {literal(schema.lower())}"
        )
        parts = [select] if names is None else [f"{select} AND table_name = {literal(one)}" for one in names]
        return {str(name): comment for name, comment in self.rows(" UNION ALL ".join(parts))}

    def _refused(self, name: str, detail: str) -> TrinoRefused:
        return TrinoRefused(url=self.url, name=name, detail=detail, table=self._table)

    def _open(self) -> Any:
        place = urlsplit(self._views.url)
        password = self._views.password
        return self._connect(
            host=place.hostname,
            port=place.port or (443 if place.scheme == "https" else 80),
            http_scheme=place.scheme,
            user=self._views.user,
            auth=BasicAuthentication(self._views.user, password.get_secret_value()) if password else None,
            source=SOURCE,
            request_timeout=REQUEST_TIMEOUT_SECONDS,
            max_attempts=ATTEMPTS_MAX,
            session_properties={"query_max_run_time": STATEMENT_TIME_MAX},
        )


def _said(error: TrinoQueryError) -> list[str]:
    """What it says, and what its causes say, the innermost last."""
    said = [error.message or str(error.error_name)]
    failure = error.failure_info
    while failure := (failure or {}).get("cause"):
        said.append(failure.get("message") or str(failure.get("type")))
    return said


def _detail(outermost: str, innermost: str) -> str:
    """Trino's own words, and the reason, which they often hide."""
    words, reason = first_line(Exception(outermost)), first_line(Exception(innermost))
    return words if reason in words else f"{words}: {reason}"

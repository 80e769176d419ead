"""The page on which a person looks up rows, and sees where each came from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec
from fastapi import APIRouter, Request

from thermocline.errors import BadParameter, ThermoclineError, UnknownTable, refusal, unlisted
from thermocline.process.clock import SystemClock
from thermocline.serving.http.dependencies import Asking, Noting, OfWorker
from thermocline.serving.http.explained import Found, find_explained
from thermocline.serving.http.problems import PEER
from thermocline.serving.http.requests import header_of, parameters_of
from thermocline.serving.http.site import render
from thermocline.serving.http.site.asked import Access, as_command, as_curl, as_exports, as_python
from thermocline.serving.http.site.framed import framed
from thermocline.serving.http.site.sign_in import CREDENTIALS
from thermocline.serving.read.answer import age_or_none
from thermocline.serving.read.caller import Action
from thermocline.serving.read.entity import check_has_key
from thermocline.serving.status import words
from thermocline.text.shown import Columns

if TYPE_CHECKING:
    from markupsafe import Markup
    from starlette.responses import Response

    from thermocline.rules.definition import LiveTable
    from thermocline.serving.access.connections import Peer
    from thermocline.serving.cold.entity_rows import JsonRow
    from thermocline.serving.http.noted import Noted
    from thermocline.serving.http.worker import Worker
    from thermocline.serving.read.caller import Caller, Credentials
    from thermocline.serving.read.explained import ExplainedRow
    from thermocline.serving.read.tables import ServedTable

__all__ = ["lookups"]

ROWS_SHOWN_MAX: Final = 200
"""More are nothing that a person reads; the endpoint gives all."""
VALUE_CHARACTERS_MAX: Final = 500
_STEPS: Final = (
    ("look", "Records in the hot tier"),
    ("cold_rows", "Rows of the snapshot"),
    ("overlay", "Laying the records over them"),
    ("places", "Places in the files, for this page"),
)

lookups = APIRouter(include_in_schema=False)


@dataclass(frozen=True, slots=True)
class Field:
    """A key column in the form, with what was given for it."""

    name: str
    type: str
    text: str
    is_number: bool
    is_required: bool
    is_optional: bool
    problem: str


@dataclass(frozen=True, slots=True)
class Value:
    """A value as it is shown; ``is_word`` where what stands there is no text of the row's own."""

    text: str
    is_word: bool = False


@dataclass(frozen=True, slots=True)
class ShownRow:
    """A row on the page: its values, and those of the row that it replaced where they are not the same."""

    values: Mapping[str, Value]
    explained: ExplainedRow
    changed: Mapping[str, Value]

    @property
    def is_deleted(self) -> bool:
        """Whether the values are what a tombstone deleted."""
        return self.explained.row is None


@lookups.get("/tables/{table}/lookup")
async def lookup_page(
    worker: OfWorker, caller: Asking, noted: Noting, table: str, request: Request
) -> Response:
    """The form, and what was found for whom it asks for."""
    try:
        served = worker.tables.read_by(caller, table)
    except UnknownTable:
        main = render.part("unknown.html", name=table, what="may look up rows of")
        return framed(request, worker, caller, "No such table", main, status=404, is_still=True)
    page = _Page(served, operates=caller.may(Action.ADMIN, table))
    try:
        await page.ask(worker, caller, noted, request)
    except ThermoclineError as error:
        noted.outcome = error.code
        page.fail(error, request.url.path)
    main = await asyncio.to_thread(page.render)
    here = "" if page.operates else table
    return framed(request, worker, caller, f"Look up {table}", main, page.status, here, is_still=True)


@dataclass(slots=True)
class _Page:
    """What the page says, while it is found out. Errors are said on it."""

    table: ServedTable
    operates: bool
    status: int = 200
    problem: str = ""
    next: str = ""
    bad: BadParameter | None = None
    definition: LiveTable | None = None
    given: dict[str, str] = field(default_factory=dict)
    found: Found | None = None
    asked: dict[str, str] = field(default_factory=dict)

    async def ask(self, worker: Worker, caller: Caller, noted: Noted, request: Request) -> None:
        """Looks up what the query asks for, if it asks for anything."""
        query: bytes = request.scope["query_string"]
        if query:
            noted.verb = str(Action.LOOKUP)  # safety: page-audited
        caller.check(Action.LOOKUP, self.table.name)  # safety: page-looks-up-by-grant
        self.table.check_exists()
        definition = worker.sights.of(caller, self.table.stored_definition()).definition
        check_has_key(definition)
        self.definition = definition
        if not query:
            return
        if worker.guard.audit is not None:
            # Other pages are shown while nothing can be written, but this one shows rows.
            worker.guard.audit.check()  # safety: page-audited-or-refused
        self.given = _given(definition, parameters_of(query))
        self.found = await find_explained(worker, caller, noted, self.table, self.given)
        credentials: Credentials = request.scope[CREDENTIALS]
        peer = _peer_of(request)
        # Who shows a certificate has no key, and a key that is sent counts before it.
        has_key = credentials.authorization is not None
        is_direct = peer is None or not peer.is_proxy  # a proxy has a certificate of its own
        access = Access(
            has_key,
            has_certificate=not has_key and caller.key is not None,
            needs_ca=is_direct and worker.guard.has_own_ca(),
        )
        url = _url_of(request)
        self.asked = {
            "exports": as_exports(access),
            "curl": as_curl(url, definition.name, self.given, access),
            "python": as_python(url, definition, self.given, access),
            "command": as_command(url, definition.name, self.given),
        }

    def fail(self, error: ThermoclineError, path: str) -> None:
        """Says an error."""
        said = error.to_problem(path)
        self.status, self.problem = error.status, str(said["detail"])
        if isinstance(error, BadParameter):
            self.bad = error
        else:
            self.next = str(said["next"])

    def render(self) -> Markup:
        """The page's own part."""
        values: dict[str, Any] = {"name": self.table.name, "operates": self.operates, "found": None}
        values |= {"problem": self.problem, "next": self.next, "fields": list(self._fields())}
        if self.found is not None:
            values |= {**self.asked, "found": _shown(self.found), "now": SystemClock().now_ms()}
        return render.part("lookup.html", **values)

    def _fields(self) -> Iterator[Field]:
        for column in self.definition.key_columns if self.definition else ():
            is_bad = self.bad is not None and self.bad.name == column.name
            yield Field(
                column.name,
                str(column.type),
                self.given.get(column.name, ""),
                is_number=column.type.python is int,
                is_optional=self.definition is not None and column.name not in self.definition.entity,
                # A text may be empty.
                is_required=column.type.python is not str,
                problem=self.bad.problem if self.bad is not None and is_bad else "",
            )


def _given(definition: LiveTable, parameters: Mapping[str, str]) -> dict[str, str]:
    """What is asked for: a browser also sends what was left empty, which is no value of what is optional."""
    optional = definition.key[len(definition.entity) :]
    return {name: text for name, text in parameters.items() if text or name not in optional}


def _peer_of(request: Request) -> Peer | None:
    found: Peer | None = request.scope.get("state", {}).get(PEER)
    return found


def _url_of(request: Request) -> str:
    """This server's, as the browser knows it; a proxy of ours may say that it came by TLS."""
    peer = _peer_of(request)
    is_of_proxy = peer is not None and peer.is_proxy
    # safety: forwarded-proto-of-proxies
    is_secure = is_of_proxy and header_of(request.scope, "X-Forwarded-Proto") == "https"
    return f"{'https' if is_secure else request.scope['scheme']}://{header_of(request.scope, 'Host')}"


def _shown(found: Found) -> dict[str, Any]:
    """What was found, as the template shows it."""
    explained, definition = found.explained, found.explained.look.cold.index.definition
    rows = [_shown_row(row) for row in explained.rows[:ROWS_SHOWN_MAX]]
    point, entity = explained.look.read_point, definition.entity
    deleted = sum(row.row is None for row in explained.rows)
    refused = [refusal(**msgspec.to_builtins(one)) for one in found.refused.listed]
    return {
        "asked": str(Columns(zip(definition.key, found.entity.values, strict=False))),
        "is_row": len(found.entity.values) == len(definition.key),
        "count": words.plural(len(explained.rows) - deleted, "row"),
        "deleted": deleted,
        "left_out": len(explained.rows) - len(rows),
        "columns": [name for name in (rows[0].values if rows else ()) if name not in entity],
        "rows": rows,
        "location": explained.look.cold.index.location,
        "age_seconds": age_or_none(explained.look.age_seconds),
        "is_stale": explained.look.is_stale,
        "snapshot_id": point.snapshot_id,
        "partitions": [
            (f"{topic}/{partition}", point.seam.get((topic, partition)), end)
            for topic, partition, end in point.end.items()
        ],
        "steps": [(step, _milliseconds(getattr(explained.seconds, name))) for name, step in _STEPS],
        "refused": refused + [unlisted(**msgspec.to_builtins(one)) for one in found.refused.unlisted],
    }


def _shown_row(row: ExplainedRow) -> ShownRow:
    before = {} if row.replaced is None else _fields(row.replaced)
    fields = before if row.row is None else _fields(row.row)
    changed = {name: _value(raw) for name, raw in before.items() if raw != fields.get(name)}
    return ShownRow({name: _value(raw) for name, raw in fields.items()}, row, changed)


def _fields(row: JsonRow) -> dict[str, bytes]:
    found = msgspec.json.decode(row, type=dict[str, msgspec.Raw])
    return {name: bytes(raw) for name, raw in found.items()}


def _value(raw: bytes) -> Value:
    """A value of JSON: text without its quotes, and all else to its last digit."""
    if raw == b"null":
        return Value("null", is_word=True)
    text = msgspec.json.decode(raw, type=str) if raw.startswith(b'"') else raw.decode()
    if not text:
        return Value("empty", is_word=True)
    if len(text) > VALUE_CHARACTERS_MAX:
        return Value(f"{text[:VALUE_CHARACTERS_MAX]}… ({len(text):,} characters)")
    return Value(text)


def _milliseconds(seconds: float) -> str:
    return f"{1_000 * seconds:,.2f} ms"

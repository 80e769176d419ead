"""The pages for people: what their headers allow is what they need, and nothing else."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.serving.wire import PLAIN, Connection, served_app
from thermocline.serving.http.protocol import LookupProtocol

ASKED = ("/docs", "/docs/oauth2-redirect", "/static-offline-docs/swagger-ui.css", "/nowhere", "/v1/tables")
FIXED = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "x-frame-options": "DENY",
}
GUARDS = {*FIXED, "content-security-policy"}


@pytest.fixture
def answers(
    new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> dict[str, tuple[dict[str, str], str]]:
    """Headers and body by path."""

    async def drive(app: Any) -> dict[str, tuple[dict[str, str], str]]:
        found = {}
        for path in ASKED:
            connection = Connection(LookupProtocol, app)
            answer = await connection.send(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            head, _, body = answer.partition(b"\r\n\r\n")
            lines = head.decode().split("\r\n")[1:]
            found[path] = {k.lower(): v for k, _, v in (one.partition(": ") for one in lines)}, body.decode()
            connection.end()
        return found

    found: dict[str, tuple[dict[str, str], str]] = {}
    for served in served_app(new_world(), monkeypatch):
        found |= asyncio.run(drive(served.app))
    return found


def rules(headers: dict[str, str]) -> dict[str, list[str]]:
    parts = [part.split() for part in headers["content-security-policy"].split("; ")]
    return {name: sources for name, *sources in parts}


@pytest.mark.parametrize("path", ["/docs", "/docs/oauth2-redirect"])
def test_a_page_runs_its_own_scripts_alone(answers: dict[str, tuple[dict[str, str], str]], path: str) -> None:
    headers, page = answers[path]
    assert FIXED.items() <= headers.items()
    inline = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(inline) == 1
    digest = base64.b64encode(hashlib.sha256(inline[0].encode()).digest()).decode()
    allowed = rules(headers)
    assert allowed["script-src"] == ["'self'", f"'sha256-{digest}'"]
    assert page.count("<script") == len(inline) + len(re.findall(r'<script src="/[^/][^"]*">', page))
    assert not re.search(r"<[^>]* on\w+=|javascript:", page), "which no hash would allow"
    assert allowed["default-src"] == allowed["base-uri"] == allowed["frame-ancestors"] == ["'none'"]


def test_the_page_may_load_what_it_loads_and_ask_the_server_alone(
    answers: dict[str, tuple[dict[str, str], str]],
) -> None:
    allowed = rules(answers["/docs"][0])
    loaded = re.findall(r'<(script|link)[^>]*(?:src|href)="([^"]+)"', answers["/docs"][1])
    assert {kind for kind, _ in loaded} == {"script", "link"}
    assert all(re.match(r"/[^/]", place) for _, place in loaded), "all from the server itself"
    assert allowed["style-src"][0] == allowed["img-src"][0] == "'self'"
    assert "data:" in allowed["img-src"], "the style has its pictures within"
    assert "url(data:" in answers["/static-offline-docs/swagger-ui.css"][1]
    assert allowed["connect-src"] == ["'self'"], "openapi.json, and what is tried out"


def test_parts_of_pages_are_guarded_and_answers_for_programs_are_as_before(
    answers: dict[str, tuple[dict[str, str], str]],
) -> None:
    headers, _ = answers["/static-offline-docs/swagger-ui.css"]
    assert FIXED.items() <= headers.items()
    assert rules(headers)["script-src"] == ["'self'"]
    for path in ("/nowhere", "/v1/tables"):
        assert not GUARDS & answers[path][0].keys()


def test_a_lookup_has_none_of_these_headers_either_way(
    new_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def drive(app: Any) -> list[bytes]:
        connection = Connection(LookupProtocol, app)
        found = [await connection.send(PLAIN.encode()) for _ in range(2)]
        connection.end()
        return found

    for served in served_app(new_world(), monkeypatch):
        ordinary, short = asyncio.run(drive(served.app))
        assert served.direct[True] == 1
        assert ordinary == short
        assert b"policy" not in ordinary.lower()

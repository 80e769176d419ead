"""The look-up page: what it shows, to whom, and the same question as others would ask it."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.serving.audit_lines import AuditLines
from tests.serving.http.site_server import HOSTILE, Site, keep_fresh
from tests.thermocline.profiles import PROFILES
from thermocline.errors import AuditUnavailable, Unauthenticated
from thermocline.rules.column_types import ColumnType
from thermocline.rules.definition import Column
from thermocline.serving.access.audit import AuditLog
from thermocline.serving.access.connections import Peer
from thermocline.serving.access.entity_hash import EntityHash
from thermocline.serving.http.guard import Guard
from thermocline.serving.http.problems import PEER
from thermocline.serving.http.site import lookup as lookup_module
from thermocline.serving.http.site.asked import Access, as_command, as_curl, as_python
from thermocline.serving.read.caller import EVERYONE, Action, Caller, Credentials, Grant, Part

LOOKUP, ADMIN = frozenset({Action.LOOKUP}), frozenset({Action.ADMIN})
CALLERS = {
    one.name: one
    for one in (
        replace(EVERYONE, key="0"),
        Caller("reader", {"orders": Grant(LOOKUP)}, key="1"),
        Caller("some", {"orders": Grant(LOOKUP, Part(scope=(("user_id", "u1"),)))}, key="2"),
        Caller("blind", {"orders": Grant(LOOKUP, Part(columns=("updated_at",)))}, key="3"),
        Caller("ops", {"orders": Grant(ADMIN)}, key="4"),
        Caller("both", {"orders": Grant(ADMIN | LOOKUP)}, key="5"),
        Caller("stranger", {}, key="6"),
    )
}
PAGE = "/tables/orders/lookup"
AT = "2026-01-02T03:04:05Z"
WEIRD = 'it\'s "$HOME" `id` \\ & ü\u202e'


def admit(credentials: Credentials) -> Caller:
    name = (credentials.authorization or "").removeprefix("Bearer ")
    if name not in CALLERS:
        raise Unauthenticated(detail="it is no key of this server")
    return CALLERS[name]


@pytest.fixture
def site(
    served: Callable[..., Any], client_of: Callable[..., Any], tmp_path: Path
) -> Iterator[SimpleNamespace]:
    """Of u1 in orders: `a` is cold, `hot` replaced `cold`, `gone` was deleted, `bad` is hostile."""
    site = Site(served, tmp_path / "state")
    site.add("orders", rows=3)
    world = site.worlds["orders"]
    for key, value in (("hot", "before"), ("gone", "before"), ("bad", HOSTILE)):
        produce(world, key, value)
    world.commit()
    world.publish()
    produce(world, "hot", "after")
    produce(world, "gone", None)
    world.tail()
    site.tables[0].refresh()
    stop = threading.Event()
    thread = keep_fresh([world], stop)
    sink = AuditLines()
    log = AuditLog(sink, EntityHash(b"k" * 32), is_required=True)
    app = site.app(Guard(admit, log))
    with client_of(app, base_url="https://testserver", follow_redirects=False) as client:

        def get(path: str = PAGE, caller: str | None = "everyone", **params: str) -> Any:
            headers = {} if caller is None else {"Authorization": f"Bearer {caller}"}
            return client.get(path, headers=headers, params=params or None)

        yield SimpleNamespace(get=get, client=client, sink=sink, log=log, site=site)
    stop.set()
    thread.join()


def produce(world: Any, key: str, value: str | None, user: str = "u1") -> None:
    record = None if value is None else {"value": value, "updated_at": AT}
    world.produce({"app_id": 7, "user_id": user, "key": key}, record, partition=1)


def rows_of(page: str) -> list[list[str]]:
    """The words in each cell of the table of rows; of the last two the first line alone."""
    (table,) = re.findall(r'<table class="rows">(.*?)</table>', page, re.DOTALL)
    body = table.partition("<tbody>")[2]
    found = []
    for row in re.findall(r"<tr.*?</tr>", body, re.DOTALL):
        cells = re.findall(r"<t[dh] [^>]*>(.*?)</t[dh]>", row, re.DOTALL)
        texts = [" ".join(unescape(re.sub(r"<small.*", "", cell, flags=re.DOTALL)).split()) for cell in cells]
        found.append(
            [re.sub(r"<[^>]+>", "", text).strip() if "script" not in text else text for text in texts]
        )
    return found


def codes_of(page: str) -> list[str]:
    return [unescape(one) for one in re.findall(r"<pre><code>(.*?)</code></pre>", page, re.DOTALL)]


def test_the_form_asks_for_the_key_and_reads_nothing(site: SimpleNamespace) -> None:
    page = site.get().text
    names = re.findall(r'<input id="key-\d" name="(\w+)"', page)
    assert names == ["app_id", "user_id", "key"]
    assert re.findall(r'name="(\w+)"[^>]* required', page) == ["app_id"], "a text may be empty"
    assert '<form class="ask" method="get" action="/tables/orders/lookup"' in page
    assert 'class="rows"' not in page
    site.client.__exit__(None, None, None)
    assert site.sink.lines == []


def test_each_row_is_shown_with_where_it_came_from_and_what_it_replaced(site: SimpleNamespace) -> None:
    answer = site.get(app_id="7", user_id="u1", key="")
    assert answer.status_code == 200
    assert rows_of(answer.text) == [
        ["a", "red", AT, "Committed: record profiles/1@0", "nothing"],
        ["bad", HOSTILE, AT, "Committed: record profiles/1@3", "nothing"],
        ["gone", "before", AT, "Deleted, not committed yet: a tombstone", "This row"],
        ["hot", "after", AT, "Not committed yet: record profiles/1@4", "valuebefore"],
    ]
    assert "3 rows and 1 deleted" in answer.text
    assert HOSTILE not in answer.text
    assert ".parquet</code>" in answer.text
    for step in ("Records in the hot tier", "Rows of the snapshot", "Laying the records over them"):
        assert re.search(rf"<dt>{step}</dt><dd>[\d.]+ ms</dd>", answer.text)


def test_it_is_a_page_like_the_others_but_that_it_stays_as_it_is(site: SimpleNamespace) -> None:
    answer = site.get(app_id="7", user_id="u1")
    assert "<body data-still>" in answer.text
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in policy
    assert "form-action 'self'" in policy
    assert answer.headers["cache-control"] == "no-store"
    assert answer.text.count("<script") == 1
    assert " style=" not in answer.text


def test_what_was_asked_for_wrongly_is_said_beside_what_was_typed(site: SimpleNamespace) -> None:
    answer = site.get(app_id="seven", user_id=HOSTILE)
    assert answer.status_code == 422
    assert 'app_id is an int, and "seven" is' in unescape(answer.text)
    assert re.search(
        r'name="app_id" value="seven"[^>]* aria-invalid="true" aria-describedby="problem"', answer.text
    )
    assert answer.text.count("aria-invalid") == 1
    assert HOSTILE not in answer.text
    assert "&lt;script&gt;" in answer.text
    assert "table orders has no such column" in site.get(app_id="7", nothing="1").text
    assert site.client.get(f"{PAGE}?app_id=%ff", headers={"Authorization": "Bearer both"}).status_code == 422


def test_that_there_is_nothing_is_said(site: SimpleNamespace) -> None:
    assert "There are no rows of that entity" in site.get(app_id="7", user_id="nobody").text
    assert "There is no such row" in site.get(app_id="7", user_id="u1", key="never").text
    assert "1 row, " in site.get(app_id="7", user_id="u1", key="hot").text


def test_who_sees_a_part_is_shown_that_part(site: SimpleNamespace) -> None:
    page = site.get(caller="blind", app_id="7", user_id="u1").text
    assert [row[:3] for row in rows_of(page)] == [
        ["a", AT, "Committed"],
        ["bad", AT, "Committed"],
        ["hot", AT, "Not committed yet: record profiles/1@4"],
    ]
    assert ".parquet" not in page
    assert "before" not in page.partition("<table")[2].partition("</table>")[0]
    assert len(rows_of(site.get(caller="some", app_id="7", user_id="u1").text)) == 3
    theirs, nobody = (site.get(caller="some", app_id="7", user_id=user).text for user in ("u2", "nobody"))
    assert "There are no rows of that entity" in theirs
    assert "There are no rows of that entity" in nobody


def test_it_takes_the_verb_of_a_lookup_and_no_other(site: SimpleNamespace) -> None:
    refused = site.get(caller="ops", app_id="7", user_id="u1")
    assert refused.status_code == 403
    assert "ops may not look up its rows" in refused.text
    assert 'class="rows"' not in refused.text
    hidden, missing = site.get(caller="stranger"), site.get("/tables/nowhere/lookup", caller="stranger")
    assert hidden.status_code == missing.status_code == 404
    assert hidden.text.replace("orders", "nowhere") == missing.text
    answer = site.get(caller=None)
    assert answer.status_code == 401
    assert f'name="to" value="{PAGE}"' in answer.text


def test_it_is_linked_for_whom_it_answers(site: SimpleNamespace) -> None:
    link = '<a href="/tables/orders/lookup">Look up rows</a>'
    assert link in site.get("/tables/orders", "both").text
    assert link not in site.get("/tables/orders", "ops").text, "what is shared is of those who may the same"
    assert '<a href="/tables/orders">orders</a>' in site.get(caller="both").text
    start = site.get("/", "reader").text
    assert '<li><a href="/tables/orders/lookup">orders</a></li>' in start
    assert 'href="/tables/orders"' not in site.get(caller="reader").text, "they see nothing of its status"


def test_a_session_looks_up_what_its_key_may(site: SimpleNamespace) -> None:
    here = {"Sec-Fetch-Site": "same-origin"}
    site.client.post("/sign-in", data={"key": "some", "to": PAGE}, headers=here)
    assert len(rows_of(site.get(caller=None, app_id="7", user_id="u1").text)) == 3
    assert "There are no rows" in site.get(caller=None, app_id="7", user_id="u2").text
    assert site.client.get("/v1/tables/orders/rows/explained?app_id=7&user_id=u1").status_code == 401


def test_who_signs_in_for_a_question_is_led_to_its_answer(site: SimpleNamespace) -> None:
    asked = f"{PAGE}?app_id=7&user_id=it%27s+%3Cu%3E"
    page = site.client.get(asked).text
    (to,) = re.findall(r'name="to" value="([^"]*)"', page)
    assert unescape(to) == asked
    here = {"Sec-Fetch-Site": "same-origin"}
    answer = site.client.post("/sign-in", data={"key": "both", "to": asked}, headers=here)
    assert (answer.status_code, answer.headers["location"]) == (303, asked)
    assert 'user_id="it\'s <u>"' in unescape(site.client.get(asked).text)
    answer = site.client.post(
        "/sign-in", data={"key": "both", "to": "/tables/t?a=\r\nSet-Cookie: b"}, headers=here
    )
    assert answer.headers["location"] == "/tables/t?a=%0D%0ASet-Cookie%3A%20b"


def test_each_question_is_written_to_the_audit_log(site: SimpleNamespace) -> None:
    site.get(caller="both", app_id="7", user_id="u1")
    site.get(caller="ops", app_id="7", user_id="u1")
    site.get(caller="both", app_id="seven", user_id="u1")
    site.client.__exit__(None, None, None)  # which closes the log
    lines = [(one["client"], one["verb"], one["outcome"], one.get("rows")) for one in site.sink.lines]
    assert lines == [
        ("both", "lookup", "ok", 4),
        ("ops", "lookup", "not-permitted", None),
        ("both", "lookup", "bad-parameter", None),
    ]
    assert len(site.sink.lines[0]["entity"]) == 32


def test_nothing_is_looked_up_while_the_question_cannot_be_written(
    site: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise AuditUnavailable

    monkeypatch.setattr(site.log, "check", refuse)
    answer = site.get(app_id="7", user_id="u1")
    assert answer.status_code == 503
    assert 'class="rows"' not in answer.text
    assert "its audit log can't be written" in unescape(answer.text)
    assert site.get().status_code == 200, "the form is shown"


def test_many_rows_are_shown_in_part(site: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_module, "ROWS_SHOWN_MAX", 2)
    page = site.get(app_id="7", user_id="u1").text
    assert len(rows_of(page)) == 2
    assert "The first 2 are shown" in page


def test_a_long_value_is_shown_in_part(site: SimpleNamespace) -> None:
    produce(site.site.worlds["orders"], "long", "x" * 10_000, user="u9")
    site.site.worlds["orders"].tail()
    page = site.get(app_id="7", user_id="u9").text
    assert rows_of(page)[0][1] == "x" * 500 + "… (10,000 characters)"


def test_long_values_that_differ_at_their_ends_are_not_called_the_same(site: SimpleNamespace) -> None:
    world = site.site.worlds["orders"]
    produce(world, "long", "x" * 9_999 + "a", user="u9")
    world.commit()
    world.publish()
    produce(world, "long", "x" * 9_999 + "b", user="u9")
    world.tail()
    site.site.tables[0].refresh()
    page = site.get(app_id="7", user_id="u9").text
    assert "A row with the same values" not in page
    assert "<dt>value</dt>" in page


def test_the_same_question_is_told_for_a_shell_and_for_python(site: SimpleNamespace) -> None:
    exports, curl, python, command = codes_of(site.get(app_id="7", user_id=WEIRD, key="").text)
    assert shlex.split(exports, comments=True) == ["export", "THERMOCLINE_KEY=KEY"]
    words = shlex.split(curl)
    assert words[:2] == ["curl", "-H"]
    assert words[2] == "Authorization: Bearer $THERMOCLINE_KEY"
    url = urlsplit(words[3])
    assert f"{url.scheme}://{url.netloc}{url.path}" == "https://testserver/v1/tables/orders/rows"
    assert parse_qs(url.query, strict_parsing=True) == {"app_id": ["7"], "user_id": [WEIRD]}
    assert shlex.split(command) == [
        *("thermocline", "lookup", "orders", "app_id=7", f"user_id={WEIRD}", "--explain"),
        *("--url", "https://testserver"),
    ]
    call = next(
        node
        for node in ast.walk(ast.parse(python))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "client.lookup"
    )
    assert [ast.literal_eval(one) for one in call.args] == ["orders"]
    assert {one.arg: ast.literal_eval(one.value) for one in call.keywords} == {"app_id": 7, "user_id": WEIRD}
    assert 'key=os.environ["THERMOCLINE_KEY"]' in python


def test_who_is_known_by_a_certificate_is_told_of_no_key(
    site: SimpleNamespace, client_of: Callable[..., Any]
) -> None:
    def admit_by_certificate(_: Credentials) -> Caller:
        return CALLERS["both"]

    with client_of(site.site.app(Guard(admit_by_certificate)), base_url="https://testserver") as client:
        exports, curl, python, _ = codes_of(client.get(PAGE, params={"app_id": "7", "user_id": "u1"}).text)
    of_certificate = ["$THERMOCLINE_CERTIFICATE", "$THERMOCLINE_CERTIFICATE_KEY"]
    assert shlex.split(curl)[1:5] == ["--cert", of_certificate[0], "--key", of_certificate[1]]
    assert shlex.split(curl)[5].startswith("https://testserver/v1/tables/orders/rows?")
    assert shlex.split(exports, comments=True)[1::2] == [f"{name[1:]}=FILE" for name in of_certificate]
    assert "THERMOCLINE_KEY" not in exports + curl + python


def test_who_has_to_know_the_server_by_its_own_ca_is_told_so(
    site: SimpleNamespace, client_of: Callable[..., Any]
) -> None:
    """Method: a shell runs what the page says, with a curl that prints its arguments."""
    app = site.site.app(Guard(admit, has_own_ca=lambda: True))
    headers = {"Authorization": "Bearer both"}
    with client_of(app, base_url="https://testserver") as client:
        page = client.get(PAGE, params={"app_id": "7", "user_id": "u1"}, headers=headers).text
    exports, curl, python, _ = codes_of(page)
    assert shlex.split(exports, comments=True) == [
        *("export", "THERMOCLINE_CA_FILE=FILE"),
        *("export", "THERMOCLINE_KEY=KEY"),
    ]
    script = f'{exports}\ncurl() {{ printf "%s\\n" "$@"; }}\n{curl}'
    said = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout
    assert said.splitlines()[:4] == ["--cacert", "FILE", "-H", "Authorization: Bearer KEY"]
    (made,) = (
        node
        for node in ast.walk(ast.parse(python))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Client"
    )
    assert {one.arg: ast.unparse(one.value) for one in made.keywords} == {
        "key": "os.environ['THERMOCLINE_KEY']",
        "ca_file": "os.environ['THERMOCLINE_CA_FILE']",
    }


@pytest.mark.parametrize(("is_proxy", "scheme"), [(True, "https"), (False, "http")])
def test_only_a_proxy_of_ours_says_that_its_caller_came_by_tls(
    site: SimpleNamespace, client_of: Callable[..., Any], is_proxy: bool, scheme: str
) -> None:
    app = site.site.app(Guard(admit))

    async def from_peer(scope: Any, receive: Any, send: Any) -> None:
        more = {"state": {**scope.get("state", {}), PEER: Peer("192.0.2.1", is_proxy=is_proxy)}}
        await app({**scope, **more} if scope["type"] == "http" else scope, receive, send)

    headers = {"Authorization": "Bearer both", "X-Forwarded-Proto": "https"}
    with client_of(from_peer, base_url="http://testserver") as client:
        page = client.get(PAGE, params={"app_id": "7", "user_id": "u1"}, headers=headers).text
    assert shlex.split(codes_of(page)[1])[-1].startswith(f"{scheme}://testserver/v1/")


def test_a_host_that_a_shell_would_run_is_quoted() -> None:
    url = "http://h'$(id)"
    assert shlex.split(as_curl(url, "t", {"a": "1"}, Access())) == ["curl", f"{url}/v1/tables/t/rows?a=1"]
    assert shlex.split(as_command(url, "t", {"a": "1"}))[-1] == url


def test_columns_that_are_no_names_of_arguments_are_passed_as_a_mapping() -> None:
    names = ("class", "read_after", "two words")
    text = ColumnType.parse("string")
    columns = tuple(replace(PROFILES.columns[0], name=name, type=text) for name in names)
    assert isinstance(columns[0], Column)
    for name in names:
        definition = replace(PROFILES, key=(name,), entity=(name,), columns=columns)
        python = as_python("http://h", definition, {name: "a'b"}, Access())
        assert f"client.lookup('profiles', {{{name!r}: \"a'b\"}})" in python
        assert "os.environ" not in python
        ast.parse(python)

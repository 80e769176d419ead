"""The pages for people, and the document that they show: what is said, to whom, and how it is escaped."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tests.manual_clock import ManualClock
from tests.serving.http.site_server import HOSTILE, OWNER, STANDBY, Site, keep_fresh
from thermocline.errors import Unauthenticated
from thermocline.serving.http import statuses
from thermocline.serving.http.guard import Guard
from thermocline.serving.http.site import routes
from thermocline.serving.http.site.session import COOKIE, Session, is_from_here, is_page
from thermocline.serving.http.site.shared import PAGES_MAX
from thermocline.serving.http.statuses import server_status
from thermocline.serving.http.worker import Worker
from thermocline.serving.read.caller import EVERYONE, Action, Caller, Credentials, Grant, Part
from thermocline.serving.status.document import ServerStatus
from thermocline.serving.tail.bad_facts import BadFacts, BadGroup
from thermocline.serving.tail.table_facts import UnreadFact

OPERATOR = Caller("ops", {"orders": Grant(frozenset({Action.ADMIN}))}, key="0123456789ab")
BOTH = frozenset({Action.ADMIN, Action.EXTRACT})
ANALYST = Caller("analyst", {"orders": Grant(BOTH)}, key="1123456789ab")
OF_APP_7 = Caller("app-7", {"orders": Grant(BOTH, Part(scope=(("app_id", "7"),)))}, key="2123456789ab")
OF_VALUES = Caller("values", {"orders": Grant(BOTH, Part(columns=("value",)))}, key="3123456789ab")
READER = Caller("reader", {"orders": Grant(frozenset({Action.LOOKUP}))}, key="ba9876543210")
KEYS = {"Bearer of-ops": OPERATOR, "Bearer of-reader": READER, "Bearer of-all": replace(EVERYONE, key="1")}
KEYS |= {"Bearer of-stranger": Caller("stranger", {}, key="ca9876543210")}
KEYS |= {"Bearer of-analyst": ANALYST, "Bearer of-app-7": OF_APP_7, "Bearer of-values": OF_VALUES}
HERE = {"Sec-Fetch-Site": "same-origin"}


def admit(credentials: Credentials) -> Caller:
    if credentials.authorization not in KEYS:
        raise Unauthenticated(detail="it is no key of this server")
    return KEYS[credentials.authorization]


@pytest.fixture
def site(
    served: Callable[..., Any], client_of: Callable[..., Any], tmp_path: Path
) -> Iterator[SimpleNamespace]:
    """Two tables, of which one is stopped for a hostile reason, and a client that follows no redirect."""
    site = Site(served, tmp_path / "state")
    site.add("orders", rows=60, worn=3, standby=STANDBY)
    stopped = msgspec.structs.replace(
        OWNER, ended="2026-01-01T00:00:00+00:00", stopped_by="offsets-gone", stopped_because=HOSTILE
    )
    site.add("payments", owner=stopped, schema_change=None, unread=UnreadFact(1_000, 1_480, {HOSTILE: 12}, 3))
    stop = threading.Event()
    thread = keep_fresh(list(site.worlds.values()), stop)
    with client_of(site.app(Guard(admit)), base_url="https://testserver", follow_redirects=False) as client:

        def get(path: str, key: str | None = "of-all", **headers: str) -> Any:
            said = {} if key is None else {"Authorization": f"Bearer {key}"}
            return client.get(path, headers={**said, **headers})

        yield SimpleNamespace(client=client, get=get, site=site)
    stop.set()
    thread.join()


def signed_in(site: SimpleNamespace, key: str, to: str = "/") -> Any:
    return site.client.post("/sign-in", data={"key": key, "to": to}, headers=HERE)


def test_the_page_says_first_what_is_wrong_and_what_to_do(site: SimpleNamespace) -> None:
    page = site.get("/").text
    assert "payments is not ingested: it stopped with [offsets-gone]" in page
    assert "Next: <code>thermocline explain offsets-gone</code>" in page
    assert page.index('href="/tables/payments">payments</a>\n<span') < page.index(
        'href="/tables/orders">orders</a>\n<span'
    ), "the worst first"


def test_what_others_named_is_shown_as_text(site: SimpleNamespace) -> None:
    for path in ("/", "/tables/payments", "/tables/%3Cscript%3Ealert(1)%3C%2Fscript%3E"):
        page = site.get(path).text
        assert HOSTILE not in page
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page


def test_the_page_counts_fields_that_no_column_is_read_from(site: SimpleNamespace) -> None:
    page = site.get("/tables/payments").text
    assert "Of 1,480 values that ingest sampled since 1970-01-01 00:00:01 UTC" in page
    assert "</code> in 12 of 1,480 sampled values" in page
    assert "other fields, 3 times" in page
    assert "<code>thermocline table alter payments</code>" in page
    status = site.get("/status?table=payments").json()["tables"]["payments"]
    unread = status["details"]["definition"]["unread"]
    assert unread == {"since_ms": 1_000, "values": 1_480, "fields": {HOSTILE: 12}, "others": 3}


def bad_records_are_kept(site: SimpleNamespace) -> None:
    """Five records of two kinds in quarantine, whose reasons quote them, and one that is refused."""
    world = site.site.worlds["orders"]
    minute = 60_000
    kept = BadFacts(
        as_of_ms=10 * minute,
        groups=(
            BadGroup("decode", "not-json", None, 4, minute, 3 * minute, "orders/1@40", f"begins {HOSTILE}"),
            BadGroup(
                "contract", "wrong-type", "value", 1, minute, minute, "orders/0@7", "value: Expected zuleika"
            ),
        ),
        looked_at=5,
        is_all=False,
    )
    (world.folder / "bad.json").write_bytes(msgspec.json.encode(kept))
    world.logs[0].append((b"no json: my password", b"{}", world.clock.now_ms()))
    world.tail()


def test_bad_records_are_shown_by_what_is_wrong_with_them(site: SimpleNamespace) -> None:
    bad_records_are_kept(site)
    assert '<a href="/tables/orders/bad-records">Bad records</a>' in site.get("/tables/orders").text
    page = site.get("/tables/orders/bad-records").text
    assert "key or value is not one JSON object<small>decode, not-json</small>" in page
    assert 'title="1970-01-01 00:01:00 UTC"' in page
    assert 'title="1970-01-01 00:03:00 UTC"' in page
    assert "<code>orders/1@40</code>" in page
    assert "<code>thermocline quarantine show orders orders/1@40</code>" in page
    assert "<code>thermocline refused orders</code>" in page
    assert "the newest: older ones are not read" in page
    status = site.get("/status?table=orders").json()["tables"]["orders"]["details"]["bad_records"]
    refused, not_json, wrong_type = status["groups"]
    assert refused["where"] == "refused"
    assert (refused["stage"], refused["code"], refused["records"]) == ("key", "not-json", 1)
    assert refused["first_ms"] == refused["last_ms"] is not None
    assert f"<code>thermocline try orders --from {refused['example']}</code>" in page
    assert (not_json["where"], not_json["records"], not_json["reason"]) == (
        "quarantine",
        4,
        f"begins {HOSTILE}",
    )
    assert (wrong_type["column"], wrong_type["example"]) == ("value", "orders/0@7")
    assert (status["looked_at"], status["is_all"], status["as_of_ms"]) == (5, False, 600_000)


@pytest.mark.parametrize("key", ["of-ops", "of-app-7", "of-values"])
def test_what_records_have_is_shown_to_nobody_who_may_not_read_all_of_them(
    site: SimpleNamespace, key: str
) -> None:
    """Method: whoever may read all of them has looked before, and looks again."""
    bad_records_are_kept(site)
    for _ in range(2):
        whole = site.get("/tables/orders/bad-records", "of-analyst").text
        assert "value: Expected zuleika" in whole
        assert "no json" in whole
        page = site.get("/tables/orders/bad-records", key).text
        assert "key or value is not one JSON object" in page
        assert "are shown to clients that may look up or extract the whole table" in page
        for shown in (page, site.get("/status?table=orders", key).text, site.get("/tables/orders", key).text):
            assert "zuleika" not in shown
            assert "no json" not in shown
            assert "&lt;script" not in shown
            assert HOSTILE not in shown


def test_bad_records_of_a_table_that_is_not_theirs_are_none_that_there_are(site: SimpleNamespace) -> None:
    hidden = site.get("/tables/payments/bad-records", "of-ops")
    missing = site.get("/tables/nowhere/bad-records", "of-ops")
    assert hidden.status_code == missing.status_code == 404
    assert hidden.text.replace("payments", "nowhere") == missing.text
    assert site.get("/tables/orders/bad-records", "of-reader").status_code == 404


def test_before_the_quarantine_was_looked_at_nothing_is_said_of_it(site: SimpleNamespace) -> None:
    page = site.get("/tables/orders/bad-records").text
    assert "being asked for" in page
    assert (site.site.worlds["orders"].folder / "wanted-closely").exists()


def test_an_operator_of_one_table_is_shown_that_alone(site: SimpleNamespace) -> None:
    assert "payments" in site.get("/").text, "what is shared is of those who see the same"
    page = site.get("/", "of-ops").text
    assert "The only table is well." in page
    assert "payments" not in page
    assert "Free on its disk" not in page, "that is everybody's"
    hidden, missing = site.get("/tables/payments", "of-ops"), site.get("/tables/nowhere", "of-ops")
    assert hidden.status_code == missing.status_code == 404
    assert hidden.text.replace("payments", "nowhere") == missing.text
    assert site.get("/status?table=payments", "of-ops").status_code == 404


def test_pages_that_there_are_not_take_no_place_of_those_that_are_shared(
    site: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str | None] = []

    async def noting(worker: Worker, caller: Caller, name: str | None = None) -> ServerStatus:
        made.append(name)
        return await server_status(worker, caller, name)

    monkeypatch.setattr(routes, "server_status", noting)
    monkeypatch.setattr(routes, "SHARED_SECONDS", 600.0)
    monkeypatch.setattr(routes, "SHARED_SECONDS_MAX", 600.0)
    site.get("/tables/orders")
    for number in range(PAGES_MAX):
        assert site.get(f"/tables/nowhere-{number}", "of-reader").status_code == 404
    site.get("/tables/orders")
    assert made == ["orders"]


def test_a_tables_status_is_made_once_for_all_who_see_the_same_of_it(
    site: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who may read rows is told reasons, and who operates all tables is told of the disk."""
    bad_records_are_kept(site)
    made: list[str] = []

    async def noting(worker: Worker, caller: Caller, name: str | None = None) -> ServerStatus:
        made.append(caller.name)
        return await server_status(worker, caller, name)

    monkeypatch.setattr(statuses, "server_status", noting)
    monkeypatch.setattr(statuses, "SHARED_SECONDS", 600.0)
    found = {
        key: site.get("/status?table=orders", key).text for key in 2 * ("of-ops", "of-analyst", "of-all")
    }
    assert made == ["ops", "analyst", "everyone"]
    assert [("zuleika" in text, '"disk":{}' in text) for text in found.values()] == [
        (False, True),
        (True, True),
        (True, False),
    ]
    assert site.get("/status?table=orders", "of-app-7").text == found["of-ops"], "of some rows: no reasons"
    assert site.get("/status?table=payments", "of-ops").status_code == 404


def test_who_operates_nothing_is_shown_nothing(site: SimpleNamespace) -> None:
    page = site.get("/", "of-reader").text
    assert "Attention" not in page, "of what they can neither see nor mend"
    assert '<li><a href="/tables/orders/lookup">orders</a></li>' in page.partition('<main id="main"')[2]
    stranger = site.get("/", "of-stranger").text
    assert "There is no table here that you may read." in stranger
    assert "orders" not in stranger
    status = site.get("/status", "of-reader").json()
    assert (status["tables"], status["not_operated"]) == ({}, ["orders"])
    assert "not_operated" not in site.get("/status", "of-all").json()
    assert "orders" not in page.replace('<a href="/tables/orders/lookup">orders</a>', "")
    assert site.get("/tables/orders", "of-reader").status_code == 404
    assert site.get("/status?table=orders", "of-reader").status_code == 404


def test_who_has_not_signed_in_is_asked_to_and_by_no_dialog_of_the_browser(site: SimpleNamespace) -> None:
    for path in ("/", "/tables/orders", "/tables/nowhere"):
        answer = site.get(path, None)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == 'Bearer realm="thermocline"'
        assert f'name="to" value="{path}"' in answer.text
        assert "payments" not in answer.text
        assert answer.headers["cache-control"] == "no-store"
    assert site.get("/status", None).headers["content-type"] == "application/problem+json"
    assert site.get("/assets/page.css", None).status_code == 200


def test_a_key_signs_in_for_pages_alone(site: SimpleNamespace) -> None:
    answer = signed_in(site, "of-ops", "/tables/orders")
    assert (answer.status_code, answer.headers["location"]) == (303, "/tables/orders")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    assert cookie.endswith("; Path=/; Max-Age=43200; Secure; HttpOnly; SameSite=Strict")
    assert "of-ops" not in cookie
    page = site.get("/tables/orders", None)
    assert page.status_code == 200
    assert "orders is well." in page.text
    assert "Sign out" in page.text
    assert "Sign out" not in site.get("/tables/orders").text, "it came with its key, which no form took"
    for path in ("/status", "/v1/tables", "/metrics", "/docs"):
        assert site.get(path, None).status_code == 401, "no endpoint of the API takes the cookie"
    assert site.client.post("/").status_code == 401
    left = site.client.post("/sign-out", headers=HERE)
    assert left.status_code == 303
    assert "Max-Age=0" in left.headers["set-cookie"]
    assert site.get("/", None).status_code == 401


def test_a_key_that_was_revoked_ends_its_sessions(
    site: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed_in(site, "of-ops")
    assert site.get("/", None).status_code == 200
    monkeypatch.delitem(KEYS, "Bearer of-ops")
    assert site.get("/", None).status_code == 401


def test_a_wrong_key_is_told_and_keeps_nothing(site: SimpleNamespace) -> None:
    for key in ("of-nobody", "", "ключ"):
        answer = signed_in(site, key)
        assert answer.status_code == 401
        assert 'role="alert"' in answer.text
        assert "set-cookie" not in answer.headers


def test_another_site_signs_nobody_in_and_leads_nowhere_else(site: SimpleNamespace) -> None:
    form = {"key": "of-ops", "to": "/"}
    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "https://evil.example"}):
        assert "set-cookie" not in site.client.post("/sign-in", data=form, headers=headers).headers
    assert signed_in(site, "of-ops", "https://evil.example/").headers["location"] == "/"
    assert signed_in(site, "of-ops", "//evil.example/").headers["location"] == "/"
    assert is_from_here({"origin": "https://here:8080", "host": "here:8080"})
    assert not is_page("//evil.example/")


def test_a_session_ends_and_is_of_one_server(tmp_path: Path) -> None:
    clock = ManualClock()
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    cookie = Session(tmp_path / "a", clock).cookie("of-ops").partition(";")[0]
    assert Session(tmp_path / "a", clock).authorization("GET", "/", cookie) == "Bearer of-ops"
    assert Session(tmp_path / "b", clock).authorization("GET", "/", cookie) is None
    assert Session(tmp_path / "a", clock).authorization("GET", "/", cookie[:-2]) is None
    assert Session(tmp_path / "a", clock).authorization("POST", "/", cookie) is None
    assert Session(tmp_path / "a", clock).authorization("GET", "/status", cookie) is None
    assert (tmp_path / "a" / "pages.key").stat().st_mode & 0o777 == 0o600
    clock.advance(43_200)
    assert Session(tmp_path / "a", clock).authorization("GET", "/", cookie) is None


def test_pages_load_nothing_from_elsewhere_and_run_no_script_within(site: SimpleNamespace) -> None:
    for path in ("/", "/tables/orders"):
        answer = site.get(path)
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self';" in policy
        assert "style-src 'self';" in policy
        assert "form-action 'self'" in policy
        assert answer.text.count("<script") == 1
        assert " style=" not in answer.text
        assert "http" not in answer.text.replace("https, and on", "")


def test_the_document_of_one_table_has_all_its_parts(site: SimpleNamespace) -> None:
    answer = site.get("/status?table=orders").json()
    assert list(answer["tables"]) == ["orders"]
    ServerStatus.model_validate(answer)
    table = answer["tables"]["orders"]
    assert table["ready"] is True
    assert table["ingest"]["lag_records"] == 1
    assert table["ingest"]["interval_seconds"] == 60.0
    assert table["ingest"]["last_commit_seconds"] == 4.0
    assert table["ingest"]["next_commit_ms"] == table["ingest"]["last_commit_ms"] + 60_000
    assert table["ingest"]["headroom_seconds"] is None
    assert table["debt"]["dead_rows"] == 60, "of 30 keys, written three times"
    assert table["debt"]["delete_files"] == 2
    assert table["debt"]["rewrite_bytes"] == sum(one["rewrite_bytes"] for one in table["details"]["buckets"])
    seconds = table["debt"]["rewrite_bytes"] / 25_000_000
    assert table["debt"]["rewrite_seconds"] == pytest.approx(seconds), "200 MB took 8 s"
    assert (table["owner"]["standby"]["host"], table["owner"]["standby"]["pid"]) == ("ingest-2", 815)
    assert [(one["view"], one["state"]) for one in table["details"]["views"]] == [
        ("shop.orders_live", "newest"),
        ("shop.orders_live_by_key", "withdrawn"),
        ("shop.orders_cold", "older"),
    ]
    altered = table["details"]["definition"]["versions"][-1]
    assert (altered["version"], altered["snapshot_id"], len(altered["changes"])) == (2, "4231", 2)
    bad = [one for one in table["details"]["buckets"] if one["is_bad"]]
    assert [(one["dead_rows"], one["files"]) for one in bad] == [(60, bad[0]["files"])]
    ends = {one["partition"]: (one["seam"], one["end"]) for one in table["details"]["partitions"]}
    assert ends == {0: (110, 111), 1: (20, 20), 2: (20, 20)}
    assert len(table["details"]["bars"]) == 91
    assert table["details"]["leases"][0]["holder"] == "extract of orders, process 12 on host-a"
    assert [one["role"] for one in table["details"]["definition"]["columns"]] == [
        *("entity", "entity", "key", "none", "none")
    ]
    assert "details" not in site.get("/status").json()["tables"]["orders"]


def test_the_page_of_a_table_has_what_its_document_has(site: SimpleNamespace) -> None:
    page = site.get("/tables/orders").text
    for said in (
        "standby ingest-2",
        "Records of the last day: at most 1,703",
        "Deleted rows of the last day: at most 280",
        "The longest commits of the last day: at most 5.6 s",
        "as of the newest snapshot",
        "withdrawn, and refuses to answer",
        "[offsets-gone] the log was cut",
        "older: right, as of before the newest",
        "topic late feeds the table, too",
        "as fast as the newest rewrites",
    ):
        assert said in page
    assert page.count('<svg class="bars"') == 3


def test_the_last_change_by_the_contract_is_told_with_its_cause(site: SimpleNamespace) -> None:
    definition = site.get("/status?table=orders").json()["tables"]["orders"]["details"]["definition"]
    change = definition["schema_change"]
    assert (change["version"], change["changes"]) == (2, ["score: new column, double"])
    (cause,) = change["causes"]
    assert cause == {
        "columns": ["score"],
        "record": "orders/1@117",
        "part": "value",
        "schema_id": "7",
        "named": "version 2 of orders-value",
    }
    page = site.get("/tables/orders").text
    assert re.search(r"To version 2, 2 h[^:]* ago: score: new column, double\.", page)
    said = "score: schema 7 (version 2 of orders-value) of the value, first met at <code>orders/1@117</code>"
    assert said in page
    assert "Last change by its contract" not in site.get("/tables/payments").text


def test_no_next_commit_is_announced_where_nobody_ingests(site: SimpleNamespace) -> None:
    assert "when ingest runs" in site.get("/tables/payments").text
    assert "when ingest runs" not in site.get("/tables/orders").text
    assert site.get("/").text.count("when ingest runs") == 1


def test_how_long_records_wait_is_not_known_before_the_tailer_has_looked(site: SimpleNamespace) -> None:
    """The table had all that the log had an hour ago; that a record has come since does not say when."""
    path = site.site.worlds["orders"].folder / "table.json"
    known = msgspec.json.decode(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**known, "drained_ms": known["drained_ms"] - 3_600_000}))
    table = site.get("/status").json()["tables"]["orders"]
    assert table["ingest"]["lag_records"] > 0
    assert table["ingest"]["lag_seconds"] is None
    assert not any("is behind" in one["text"] for one in table["findings"])


def test_what_the_tailer_says_of_lag_and_headroom_is_shown(site: SimpleNamespace) -> None:
    path = site.site.worlds["orders"].folder / "tailer.json"
    said = {**msgspec.json.decode(path.read_bytes()), "ingest_lag_seconds": 7.5, "headroom_seconds": 3_000.0}
    path.write_bytes(msgspec.json.encode(said))
    table = site.get("/status").json()["tables"]["orders"]
    assert (table["ingest"]["lag_seconds"], table["ingest"]["headroom_seconds"]) == (7.5, 3_000.0)
    assert table["verdict"]["level"] == "trouble"
    assert table["verdict"]["text"] == ("may lose records: in 50 min the broker drops what is not committed")
    assert table["verdict"]["next"] == "`thermocline ingest run orders`"


def test_looking_asks_the_tailer_for_what_costs_a_request(site: SimpleNamespace) -> None:
    folder = site.site.worlds["orders"].folder
    assert not (folder / "wanted").exists()
    site.get("/")
    assert (folder / "wanted").exists()
    assert not (folder / "wanted-closely").exists()
    site.get("/tables/orders")
    assert (folder / "wanted-closely").exists()

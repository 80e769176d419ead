"""The pages for people, and the document that they show: what is said, to whom, and how it is escaped."""

from __future__ import annotations

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
from thermocline.serving.http.guard import Guard
from thermocline.serving.http.site.session import COOKIE, Session, is_from_here, is_page
from thermocline.serving.read.caller import EVERYONE, Action, Caller, Credentials, Grant
from thermocline.serving.status.document import ServerStatus

OPERATOR = Caller("ops", {"orders": Grant(frozenset({Action.ADMIN}))}, key="0123456789ab")
READER = Caller("reader", {"orders": Grant(frozenset({Action.LOOKUP}))}, key="ba9876543210")
KEYS = {"Bearer of-ops": OPERATOR, "Bearer of-reader": READER, "Bearer of-all": replace(EVERYONE, key="1")}
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
    site.add("payments", owner=stopped, unread_fields=(HOSTILE,))
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


def test_an_operator_of_one_table_is_shown_that_alone(site: SimpleNamespace) -> None:
    assert "payments" in site.get("/").text, "what is shared is of those who see the same"
    page = site.get("/", "of-ops").text
    assert "The only table is well." in page
    assert "payments" not in page
    assert "Free on its disk" not in page, "that is everybody's"
    hidden, missing = site.get("/tables/payments", "of-ops"), site.get("/tables/nowhere", "of-ops")
    assert hidden.status_code == missing.status_code == 404
    assert hidden.text.replace("payments", "nowhere") == missing.text


def test_who_operates_nothing_is_shown_nothing(site: SimpleNamespace) -> None:
    page = site.get("/", "of-reader").text
    assert "There is no table here that you operate." in page
    assert "orders" not in page
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

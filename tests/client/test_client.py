"""The client against a transport that plays the server: answers, errors, retries, and cut streams."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import anyio
import httpx
import pyarrow as pa
import pytest

from thermocline import client as public
from thermocline.client import (
    Answer,
    AsyncClient,
    Client,
    ExtractJob,
    JobFailed,
    NotReady,
    Problem,
    ReadAfterTimeout,
    ReadPoint,
    Retries,
    RowNotFound,
    StreamCut,
    Unreachable,
    errors,
)
from thermocline.client.requests import STREAM_TIMEOUT_SECONDS
from thermocline.client.retries import retry_after_seconds

URL = "http://server"
POINT = {"snapshot_id": "7", "seam": {"profiles": {"0": 3}}, "end": {"profiles": {"0": 5}}}
FRESH = {"table": "profiles", "read_point": POINT, "age_seconds": 0.04, "stale": False}
READ_POINT = ReadPoint(7, {"profiles": {0: 3}}, {"profiles": {0: 5}})
ROW = {"app_id": 7, "user_id": "ada", "value": "free"}
EXTRACT_HEADERS = {
    "Thermocline-Read-Point": json.dumps(POINT),
    "Thermocline-Age-Seconds": "0.040",
    "Thermocline-Stale": "false",
}

Answering = Callable[[httpx.Request], httpx.Response]


class Asked:
    """A client of either kind, asked in blocking calls, and what it sent."""

    def __init__(self, kind: str, answer: Answering, retries: Retries) -> None:
        self.requests: list[httpx.Request] = []
        self._kind, self._retries = kind, retries

        def keep(request: httpx.Request) -> httpx.Response:
            self.requests.append(request)
            return answer(request)

        self._transport = httpx.MockTransport(keep)

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if self._kind == "blocking":
            return getattr(Client(URL, retries=self._retries, transport=self._transport), method)  # type: ignore[no-any-return]

        def ask(*given: Any, **named: Any) -> Any:
            async def asked() -> Any:
                async with AsyncClient(URL, retries=self._retries, transport=self._transport) as client:
                    found = await getattr(client, method)(*given, **named)
                    return await found.to_arrow() if method == "extract" else found

            return anyio.run(asked)

        return ask

    def table(self, **wanted: Any) -> pa.Table:
        found = self.extract("profiles", **wanted)
        return found if self._kind == "async" else found.to_arrow()


@pytest.fixture(params=["blocking", "async"])
def asked(request: pytest.FixtureRequest) -> Callable[..., Asked]:
    """Makes a client that a function answers; it repeats what fails a few times, without long waits."""
    quick = Retries(attempts_max=3, seconds_max=5.0, wait_seconds_first=0.001)
    return lambda answer, retries=quick: Asked(request.param, answer, retries)


def test_a_lookup_is_typed(asked: Callable[..., Asked]) -> None:
    refused = {"topic": "profiles", "partition": 0, "offset": 4, "stage": "decode", "reason": "no JSON"}
    client = asked(
        lambda _: httpx.Response(
            200, json={**FRESH, "rows": [ROW], "refused": [{**refused, "of a later server": 1}]}
        )
    )
    answer = client.lookup(
        "pro files", {"read_after": b"\xff"}, day=date(2026, 1, 2), id=UUID(int=1), app_id=7
    )
    assert answer == Answer(
        "profiles",
        [ROW],
        READ_POINT,
        0.04,
        False,
        (public.RefusedRecord(**refused),),  # type: ignore[arg-type]
    )
    assert json.loads(answer.read_point.to_json()) == POINT
    (request,) = client.requests
    assert request.url.raw_path.startswith(b"/v1/tables/pro%20files/rows?")
    assert dict(request.url.params) == {
        "read_after": "/w==",
        "day": "2026-01-02",
        "id": str(UUID(int=1)),
        "app_id": "7",
    }


def test_many_entities_take_as_many_requests_as_the_server_needs(asked: Callable[..., Asked]) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        entities = json.loads(request.content)["entities"]
        assert len(entities) <= 1_000
        return httpx.Response(200, json={**FRESH, "results": [{"rows": [entity]} for entity in entities]})

    client = asked(answer)
    entities = [{"app_id": number, "user_id": "ada"} for number in range(2_001)]
    answers = client.lookup_many("profiles", iter(entities))
    assert [one.rows for one in answers] == [[entity] for entity in entities]
    assert len(client.requests) == 3
    assert client.lookup_many("profiles", []) == []


@pytest.mark.parametrize(
    ("records", "header"),
    [
        ("profiles/0@12", "profiles/0@12"),
        (["a/0@3", "a/0@12, a/1@2"], "a/0@12, a/1@2"),
        ([], ValueError),
        ("profiles", ValueError),
    ],
)
def test_records_named_as_text_are_waited_for(
    asked: Callable[..., Asked], records: Any, header: str | type[Exception]
) -> None:
    client = asked(lambda _: httpx.Response(200, json={**FRESH, "rows": []}))
    if isinstance(header, str):
        client.lookup("profiles", app_id=7, read_after=records)
        assert client.requests[0].headers["Thermocline-Read-After"] == header
    else:
        with pytest.raises(header):
            client.lookup("profiles", app_id=7, read_after=records)


def test_delivery_reports_are_waited_for_by_the_last_of_each_partition(asked: Callable[..., Asked]) -> None:
    def report(partition: int, offset: int | None, error: str | None = None) -> Any:
        topic = lambda: "profiles"  # noqa: E731
        return SimpleNamespace(
            topic=topic, partition=lambda: partition, offset=lambda: offset, error=lambda: error
        )

    client = asked(lambda _: httpx.Response(200, json={**FRESH, "results": []}))
    client.lookup_many("profiles", [{"app_id": 7}], read_after=[report(0, 4), report(1, 2), report(0, 3)])
    assert client.requests[0].headers["Thermocline-Read-After"] == "profiles/0@4, profiles/1@2"
    with_attributes = SimpleNamespace(topic="profiles", partition=2, offset=9)
    client.lookup_many("profiles", [{"app_id": 7}], read_after=with_attributes)
    assert client.requests[1].headers["Thermocline-Read-After"] == "profiles/2@9"
    with pytest.raises(ValueError, match="not delivered: broker down"):
        client.lookup("profiles", app_id=7, read_after=report(0, None, "broker down"))


def test_a_problem_is_an_error_with_its_code(asked: Callable[..., Asked]) -> None:
    missing = _problem("row-not-found", 404, **FRESH | {"facts": {"table": "profiles", "key": "app_id=7"}})
    client = asked(lambda _: missing)
    with pytest.raises(RowNotFound) as error:
        client.lookup("profiles", app_id=7)
    assert (error.value.code, error.value.title, error.value.retryable) == ("row-not-found", "A title", False)
    assert error.value.answer == Answer("profiles", [], READ_POINT, 0.04, False)
    newer = asked(lambda _: _problem("of-a-newer-release", 418))
    with pytest.raises(Problem, match=r"\[of-a-newer-release\] What happened"):
        newer.lookup("profiles", app_id=7)
    assert len(newer.requests) == 1
    with pytest.raises(TypeError, match="key column"):
        client.lookup("profiles", app_id=1.5)


def test_what_may_go_away_is_asked_again_within_bounds(asked: Callable[..., Asked]) -> None:
    left: list[Any] = [
        _problem("not-ready", 503, {"Retry-After": "0"}, retryable=True),
        httpx.ConnectError("refused"),
        httpx.Response(200, json={**FRESH, "rows": [ROW]}),
    ]

    def answer(_: httpx.Request) -> httpx.Response:
        one: httpx.Response | Exception = left.pop(0)
        if isinstance(one, Exception):
            raise one
        return one

    assert asked(answer).lookup("profiles", app_id=7).rows == [ROW]
    never = asked(lambda _: _problem("not-ready", 503, retryable=True))
    with pytest.raises(NotReady):
        never.lookup("profiles", app_id=7)
    assert len(never.requests) == 3
    stranger = asked(lambda _: httpx.Response(200 + 204, text="<html>"))
    with pytest.raises(Unreachable, match="answered 404; is it a Thermocline server"):
        stranger.lookup("profiles", app_id=7)
    assert len(stranger.requests) == 1


def test_a_server_that_waited_for_a_record_is_not_made_to_wait_again(asked: Callable[..., Asked]) -> None:
    client = asked(lambda _: _problem("read-after-timeout", 503, {"Retry-After": "0"}, retryable=True))
    with pytest.raises(ReadAfterTimeout) as error:
        client.lookup("profiles", app_id=7, read_after="profiles/0@9")
    assert error.value.retryable, "a caller may"
    assert len(client.requests) == 1


@pytest.mark.parametrize("status", [200, 302])
def test_a_page_of_another_server_is_no_answer(asked: Callable[..., Asked], status: int) -> None:
    class Page(httpx.SyncByteStream, httpx.AsyncByteStream):
        is_closed = False

        def __iter__(self) -> Iterator[bytes]:
            yield b"<html>"

        async def __aiter__(self) -> Any:
            yield b"<html>"

        def close(self) -> None:
            self.is_closed = True

        async def aclose(self) -> None:
            self.is_closed = True

    page = Page()
    client = asked(lambda _: httpx.Response(status, headers={"Content-Type": "text/html"}, stream=page))
    asks: list[Callable[[], Any]] = [
        lambda: client.lookup("profiles", app_id=7),
        lambda: client.refused("profiles"),
        lambda: client.extract("profiles"),
        lambda: client.download("profiles", io.BytesIO()),
    ]
    for ask in asks:
        page.is_closed = False
        with pytest.raises(Unreachable, match=f"answered {status}; is it a Thermocline server"):
            ask()
        assert page.is_closed


def test_a_server_that_asks_for_more_patience_than_there_is_ends_it_at_once(
    asked: Callable[..., Asked],
) -> None:
    client = asked(lambda _: _problem("not-ready", 503, {"Retry-After": "60"}, retryable=True))
    with pytest.raises(NotReady):
        client.lookup("profiles", app_id=7)
    assert len(client.requests) == 1


def test_waits_grow_to_a_bound_and_follow_the_server() -> None:
    retries = Retries(attempts_max=10, seconds_max=100.0, wait_seconds_first=1.0, wait_seconds_max=4.0)
    waits = [retries.wait_seconds(attempts, 0.0, None) for attempts in range(1, 10)]
    for wait, most in zip(waits, [1, 2, 4, 4, 4, 4, 4, 4, 4], strict=True):
        assert wait is not None
        assert most / 2 <= wait <= most
    assert retries.wait_seconds(1, 0.0, 30.0) == 30.0
    assert retries.wait_seconds(1, 90.0, 30.0) is None
    assert retries.wait_seconds(10, 0.0, None) is None
    now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert retry_after_seconds("Fri, 02 Jan 2026 03:04:15 GMT", now) == 10.0
    assert retry_after_seconds("Fri, 02 Jan 2026 03:04:00 GMT", now) == 0.0
    assert retry_after_seconds("soon", now) is None
    assert retry_after_seconds(None, now + timedelta(1)) is None


def test_an_extract_is_a_table_in_any_form(asked: Callable[..., Asked]) -> None:
    rows = _rows()
    client = asked(lambda _: _extract(_stream(rows)))
    assert client.table(columns=("user_id",), where="app_id = 7", limit=3).equals(rows)
    (request,) = client.requests
    assert json.loads(request.content) == {"columns": ["user_id"], "where": "app_id = 7", "limit": 3}
    assert request.headers["Accept"] == "application/vnd.apache.arrow.stream"


def test_an_extract_tells_where_it_was_read_and_gives_its_rows_once_in_every_form() -> None:
    rows = _rows()
    transport = httpx.MockTransport(lambda _: _extract(_stream(rows)))
    with Client(URL, transport=transport) as client:
        with client.extract("profiles") as extract:
            assert (extract.read_point, extract.age_seconds, extract.stale) == (READ_POINT, 0.04, False)
            assert extract.schema == rows.schema
            assert sum(batch.num_rows for batch in extract.batches()) == rows.num_rows
        assert client.extract("profiles").to_pandas()["user_id"].tolist() == rows["user_id"].to_pylist()
        assert client.extract("profiles").to_polars()["user_id"].to_list() == rows["user_id"].to_pylist()
        assert client.extract("profiles").to_duckdb().aggregate("count(*)").fetchall() == [(rows.num_rows,)]


@pytest.mark.parametrize(("name", "content"), [("parquet", b"PAR1...PAR1"), ("csv", b"a,b\n1,2\n")])
def test_a_download_is_what_the_server_sent(asked: Callable[..., Asked], name: str, content: bytes) -> None:
    client = asked(lambda _: _extract(content))
    sink, heard = io.BytesIO(), list[int]()
    info = client.download("profiles", sink, format=name, limit=2, compression="gzip", progress=heard.append)
    assert (sink.getvalue(), info.read_point, heard[-1]) == (content, READ_POINT, len(content))
    (request,) = client.requests
    assert (json.loads(request.content), request.headers["Accept-Encoding"]) == ({"limit": 2}, "gzip")


def test_a_download_that_was_cut_raises(asked: Callable[..., Asked]) -> None:
    with pytest.raises(StreamCut, match="broke off after 7 bytes"):
        asked(lambda _: _extract(b"PAR1...")).download("profiles", io.BytesIO())
    with pytest.raises(ValueError, match="orc"):
        asked(lambda _: _extract(b"")).download("profiles", io.BytesIO(), format="orc")


def test_refused_records_are_listed(asked: Callable[..., Asked]) -> None:
    record = {"topic": "profiles", "partition": 0, "offset": 4, "stage": "decode", "reason": "no JSON"}
    client = asked(lambda _: httpx.Response(200, json={**FRESH, "refused": [record], "more": True}))
    found = client.refused("profiles", limit=1)
    assert (found.records, found.more) == ((public.RefusedRecord(**record),), True)  # type: ignore[arg-type]
    assert client.requests[0].url.query == b"limit=1"


@pytest.mark.parametrize("kept", [0.0, 0.4, "whole batches"])
def test_a_stream_that_was_cut_raises(asked: Callable[..., Asked], kept: float | str) -> None:
    whole = _stream(_rows())
    cut = whole[: -len(_END)] if kept == "whole batches" else whole[: int(len(whole) * float(kept))]
    with pytest.raises(StreamCut, match=f"broke off after {len(cut)} bytes"):
        asked(lambda _: _extract(cut)).table()


def test_a_connection_that_breaks_while_rows_come_in_raises(asked: Callable[..., Asked]) -> None:
    class Breaking(httpx.SyncByteStream, httpx.AsyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield _stream(_rows())[:-100]
            raise httpx.RemoteProtocolError("peer closed connection")

        async def __aiter__(self) -> Any:
            for chunk in self:
                yield chunk

    client = asked(lambda _: httpx.Response(200, headers=EXTRACT_HEADERS, stream=Breaking()))
    with pytest.raises(StreamCut, match="peer closed connection"):
        client.table()


def test_an_extract_that_is_refused_is_a_problem(asked: Callable[..., Asked]) -> None:
    with pytest.raises(public.BadParameter, match="What happened"):
        asked(lambda _: _problem("bad-parameter", 422)).table(where="nope = 1")


def test_all_that_is_public_is_exported() -> None:
    named = {
        name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, Exception)
    }
    assert named <= set(public.__all__)
    assert all(hasattr(public, name) for name in public.__all__)


_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"


def _problem(code: str, status: int, headers: Any = None, **members: Any) -> httpx.Response:
    body = {
        "code": code,
        "title": "A title",
        "status": status,
        "detail": "What happened.",
        "next": "",
    } | members
    return httpx.Response(
        status,
        headers={"Content-Type": "application/problem+json", **(headers or {})},
        content=json.dumps(body),
    )


def _extract(content: bytes) -> httpx.Response:
    return httpx.Response(200, headers=EXTRACT_HEADERS, stream=httpx.ByteStream(content))


def _rows() -> pa.Table:
    return pa.table({"user_id": [f"u{number}" for number in range(1_000)], "value": ["free"] * 1_000})


def _stream(rows: pa.Table) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows, max_chunksize=300)
    return sink.getvalue()


OURS = {"Thermocline-Read-Point": json.dumps(POINT)}
CONTENTS = {"bucket-00000.csv": b"key\n" + b"abc\n" * 50_000, "bucket-00003.csv": b"key\nxyz\n"}


def _job() -> dict[str, Any]:
    files = [
        {
            "name": name,
            "bucket": int(name[7:12]),
            "rows": content.count(b"\n") - 1,
            "bytes": len(content),
            "sha256": hashlib.sha256(content).hexdigest(),
        }
        for name, content in CONTENTS.items()
    ]
    return {
        "id": "one",
        "table": "profiles",
        "state": "complete",
        "read_point": POINT,
        "buckets": 4,
        "buckets_done": 4,
        "files": files,
        "rows": 50_001,
        "bytes": sum(map(len, CONTENTS.values())),
        "location": None,
        "problem": None,
    }


class _Cut(httpx.SyncByteStream):
    """A body whose connection breaks off after some bytes."""

    def __init__(self, content: bytes, bytes_max: int) -> None:
        self._content, self._bytes_max = content, bytes_max

    def __iter__(self) -> Iterator[bytes]:
        yield self._content[: self._bytes_max]
        if len(self._content) > self._bytes_max:
            raise httpx.RemoteProtocolError("peer closed connection")


def test_a_download_goes_on_where_its_connection_broke_off(tmp_path: Path) -> None:
    """Each answer is cut after 60,000 bytes, more often than the client would try without getting on."""
    asked: list[tuple[str, str | None]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        name = request.url.path.rpartition("/")[2]
        if name == "one":
            return httpx.Response(200, json=_job())
        if name == "manifest.json":
            return httpx.Response(200, json={"id": "one"})
        asked.append((name, request.headers.get("Range")))
        start = int(request.headers.get("Range", "bytes=0-")[6:-1])
        if start:
            assert request.headers["If-Range"].strip('"') == hashlib.sha256(CONTENTS[name]).hexdigest()
        return httpx.Response(
            206 if start else 200, headers=OURS, stream=_Cut(CONTENTS[name][start:], 60_000)
        )

    retries = Retries(attempts_max=2, wait_seconds_first=0.0)
    with Client(URL, retries=retries, transport=httpx.MockTransport(answer)) as client:
        job = client.await_extract("profiles", "one")
        paths = client.download_extract(job, tmp_path)
        ranges = [f"bytes={start}-" for start in (60_000, 120_000, 180_000)]
        assert asked == [*[("bucket-00000.csv", one) for one in (None, *ranges)], ("bucket-00003.csv", None)]
        assert {path.name: path.read_bytes() for path in paths} == CONTENTS
        assert {path.name for path in tmp_path.iterdir()} == {*CONTENTS, "manifest.json"}

        paths[0].unlink()
        client.download_extract(job, tmp_path)
        assert [name for name, _ in asked[5:]] == ["bucket-00000.csv"] * 4  # the other one is there already
    assert paths[0].read_bytes() == CONTENTS[paths[0].name]


@pytest.mark.parametrize("status", [200, 302])
def test_a_page_that_is_not_the_servers_takes_nothing_away(tmp_path: Path, status: int) -> None:
    """What an earlier attempt left of a file is gone on with once the proxy lets requests through again."""
    name, content = next(iter(CONTENTS.items()))
    partial = tmp_path / f".{name}.partial"
    partial.write_bytes(content[:10])
    page = httpx.Response(status, headers={"Location": "/login"}, html="<html>log in</html>")

    def answer(request: httpx.Request) -> httpx.Response:
        is_manifest = request.url.path.endswith("/manifest.json")
        return httpx.Response(200, json={"id": "one"}) if is_manifest else page

    with (
        Client(URL, transport=httpx.MockTransport(answer)) as client,
        pytest.raises(StreamCut, match=f"it answered {status}"),
    ):
        client.download_extract(ExtractJob.of(_job()), tmp_path)
    assert partial.read_bytes() == content[:10]


def test_a_url_that_is_none_and_a_password_in_one() -> None:
    with pytest.raises(Unreachable, match="not a valid URL"):
        Client("http://127.0.0.1:abc")
    error = Unreachable("https://user:secret@host:1", "nobody is there")
    assert str(error) == "no Thermocline server answers at https://host:1: nobody is there"


def test_patience_has_no_end_of_its_own() -> None:
    assert Retries(attempts_max=10**6, seconds_max=1e9).wait_seconds(2_000, 0.0, None) <= 5  # type: ignore[operator]


def test_a_download_waits_for_a_server_that_is_busy(tmp_path: Path) -> None:
    """As other requests do: also for a proxy's word, and no longer than it may."""
    busy = [
        httpx.Response(503, text="no server is up"),
        _problem("not-ready", 503, {"Retry-After": "0"}, retryable=True),
    ]

    def answer(request: httpx.Request) -> httpx.Response:
        name = request.url.path.rpartition("/")[2]
        if name == "one":
            return httpx.Response(200, json=_job())
        if name == "manifest.json":
            return httpx.Response(200, json={"id": "one"})
        return (
            busy.pop() if busy else httpx.Response(200, headers=OURS, stream=httpx.ByteStream(CONTENTS[name]))
        )

    retries = Retries(attempts_max=3, wait_seconds_first=0.0)
    with Client(URL, retries=retries, transport=httpx.MockTransport(answer)) as client:
        job = client.await_extract("profiles", "one")
        assert len(client.download_extract(job, tmp_path / "one")) == len(CONTENTS)
        busy += [httpx.Response(503, text="no server is up") for _ in range(3)]
        with pytest.raises(StreamCut, match="it answered 503"):
            client.download_extract(job, tmp_path / "two")
        busy[:] = [httpx.Response(404, text="no such page")]
        with pytest.raises(StreamCut, match="it answered 404"):
            client.download_extract(job, tmp_path / "three")


def test_a_download_with_another_checksum_is_no_file(tmp_path: Path) -> None:
    """What is left of an earlier attempt is not of this file."""
    name, content = next(iter(CONTENTS.items()))
    (tmp_path / f".{name}.partial").write_bytes(b"x" * 10)

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/one"):
            return httpx.Response(200, json=_job())
        if request.url.path.endswith("/manifest.json"):
            return httpx.Response(200, json={"id": "one"})
        return httpx.Response(206, headers=OURS, stream=httpx.ByteStream(content[10:]))

    with Client(URL, transport=httpx.MockTransport(answer)) as client:
        job = client.extract_job("profiles", "one")
        with pytest.raises(StreamCut, match="checksum"):
            client.download_extract(job, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".manifest.json.partial"]


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_folder_has_the_files_of_one_job_alone(tmp_path: Path, is_whole: bool) -> None:
    """Goal: no file of yesterday's job, whole or begun, is taken for one of today's, which has fewer."""
    today, only = _job(), "bucket-00000.csv"
    today |= {"id": "two", "files": [one for one in today["files"] if one["name"] == only]}
    manifests = {one["id"]: {"id": one["id"], "files": one["files"]} for one in (_job(), today)}
    fails = False

    def answer(request: httpx.Request) -> httpx.Response:
        *_, job_id, _, name = request.url.path.split("/")
        if name == "manifest.json":
            return httpx.Response(200, json=manifests[job_id])
        if fails and name != only:
            return httpx.Response(404, text="no such page")
        return httpx.Response(200, headers=OURS, stream=httpx.ByteStream(CONTENTS[name]))

    (tmp_path / "notes.txt").write_text("mine")
    with Client(URL, transport=httpx.MockTransport(answer)) as client:
        yesterday = ExtractJob.of(_job())
        fails = not is_whole
        with nullcontext() if is_whole else pytest.raises(StreamCut):
            client.download_extract(yesterday, tmp_path)
        (tmp_path / ".bucket-00003.csv.partial").write_bytes(b"half")
        client.download_extract(ExtractJob.of(today), tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {only, "manifest.json", "notes.txt"}
    assert json.loads((tmp_path / "manifest.json").read_bytes())["id"] == "two"


def test_an_extract_may_wait_longer_than_a_lookup() -> None:
    """An extract waits for others, for the log to be read, or for a row that matches."""
    found: dict[str, float] = {}

    def answer(request: httpx.Request) -> httpx.Response:
        found[request.url.path.rpartition("/")[2]] = request.extensions["timeout"]["read"]
        return _problem("table-missing", 404)

    with Client(URL, timeout_seconds=7, transport=httpx.MockTransport(answer)) as client:
        for ask in (lambda: client.lookup("t", id=1), lambda: client.extract("t")):
            with pytest.raises(Problem):
                ask()
    assert found == {"rows": 7, "extract": STREAM_TIMEOUT_SECONDS}


def test_a_job_that_failed_says_why() -> None:
    body = {**_job(), "state": "failed", "files": [], "read_point": None, "problem": "[storage-failed] full"}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json=body))
    with Client(URL, transport=transport) as client, pytest.raises(JobFailed, match="full"):
        client.await_extract("profiles", "one")

"""Lineage events are sent in order, beside what matters, and a receiver that fails costs a count, no more."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from pydantic import SecretStr

from tests.lineage_server import LineageServer, counted
from thermocline.ingest.owner.lineage import sending
from thermocline.ingest.owner.lineage.happened import Happened
from thermocline.ingest.owner.lineage.post import EventNotTaken, EventRefused, Post
from thermocline.ingest.owner.lineage.sending import Sender
from thermocline.process import repeated
from thermocline.settings import LineageSettings

WAIT_SECONDS = 30.0
HANGS_SECONDS = 0.2


def happened(number: int) -> Happened:
    return Happened("ingest", "START", f"run-{number}", number)


def event_of(one: Happened) -> dict[str, object]:
    if one.at_ms < 0:
        raise ValueError("a bug")
    return {"run": one.run_id}


class Receiver:
    """In place of a server: it lets a request end when it is told to."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.errors: dict[bytes, Exception] = {}
        self.began, self.may_end = threading.Semaphore(0), threading.Semaphore(0)
        self.is_closed = False

    def __call__(self, body: bytes) -> None:
        self.began.release()
        assert self.may_end.acquire(timeout=WAIT_SECONDS)
        if body in self.errors:
            raise self.errors[body]
        self.taken.append(body)

    def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def sender_of(receiver: Receiver) -> Iterator[Callable[[str], Sender]]:
    begun: list[Sender] = []

    def begin(table: str) -> Sender:
        begun.append(Sender(table, event_of, receiver))
        return begun[-1]

    yield begin
    receiver.may_end.release(1_000)
    for one in begun:
        one.close()


@pytest.fixture
def server() -> Iterator[LineageServer]:
    server = LineageServer()
    server.start()
    yield server
    server.may_answer.set()
    server.stop()


def body(number: int) -> bytes:
    return f'{{"run":"run-{number}"}}'.encode()


def test_events_are_sent_in_their_order_and_nobody_waits_for_it(
    receiver: Receiver, sender_of: Callable[[str], Sender]
) -> None:
    sender = sender_of("order")
    for number in range(5):
        sender.put(happened(number))
    assert receiver.taken == [], "the first request hangs still"
    receiver.may_end.release(5)
    sender.close()
    assert receiver.taken == [body(number) for number in range(5)]
    assert receiver.is_closed
    assert counted("order") == (0, 0)


def test_of_too_many_that_wait_the_oldest_are_dropped_and_counted(
    receiver: Receiver, sender_of: Callable[[str], Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "WAITING_MAX", 3)
    sender = sender_of("bounded")
    sender.put(happened(0))
    assert receiver.began.acquire(timeout=WAIT_SECONDS)
    for number in range(1, 6):
        sender.put(happened(number))
    receiver.may_end.release(10)
    sender.close()
    assert receiver.taken == [body(0), body(3), body(4), body(5)], "the first was under way already"
    assert counted("bounded") == (0, 3)


def test_an_event_that_is_not_taken_is_sent_again_with_the_next_one(
    receiver: Receiver, sender_of: Callable[[str], Sender], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, "thermocline.process.repeated")
    sender = sender_of("again")
    receiver.errors[body(0)] = EventNotTaken("answered 500")
    for number in range(3):
        sender.put(happened(number))
        assert receiver.began.acquire(timeout=WAIT_SECONDS)
        receiver.may_end.release()
        wait_for(partial(lambda wanted: counted("again") == wanted, (number + 1, 0)))
    assert receiver.taken == []
    assert [record.getMessage() for record in caplog.records] == [
        "sending the lineage of again failed; trying again"
    ], "said once"
    receiver.errors.clear()
    receiver.may_end.release(10)
    sender.put(happened(3))
    sender.close()
    assert receiver.taken == [body(0), body(1), body(2), body(3)]
    assert counted("again") == (3, 0)


def test_an_event_that_is_refused_is_dropped_and_the_next_ones_are_sent(
    receiver: Receiver, sender_of: Callable[[str], Sender]
) -> None:
    sender = sender_of("refused")
    receiver.errors[body(1)] = EventRefused("answered 422")
    receiver.may_end.release(10)
    sender.put(*(happened(number) for number in range(3)))
    sender.close()
    assert receiver.taken == [body(0), body(2)]
    assert counted("refused") == (1, 1)


def test_an_event_that_cannot_be_made_holds_up_no_other(
    receiver: Receiver, sender_of: Callable[[str], Sender]
) -> None:
    sender = sender_of("unmade")
    receiver.may_end.release(10)
    sender.put(happened(0), happened(-1), happened(2))
    sender.close()
    assert receiver.taken == [body(0), body(2)]
    assert counted("unmade") == (1, 1)


def test_an_owner_that_ends_has_its_last_events_sent(
    receiver: Receiver, sender_of: Callable[[str], Sender], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: a request hangs that goes on only once the owner ends."""
    monkeypatch.setattr(sending, "LAST_SECONDS", WAIT_SECONDS)
    monkeypatch.setattr(repeated, "CLOSE_SECONDS", 0.01)
    sender = sender_of("last")
    sender.put(happened(0), happened(1))
    assert receiver.began.acquire(timeout=WAIT_SECONDS)
    going_on = threading.Timer(0.3, lambda: receiver.may_end.release(10))
    going_on.start()
    sender.close()
    going_on.join()
    assert receiver.taken == [body(0), body(1)]
    assert counted("last") == (0, 0)


def test_what_a_dead_receiver_left_is_counted_when_the_owner_ends(
    receiver: Receiver, sender_of: Callable[[str], Sender]
) -> None:
    sender = sender_of("left")
    receiver.errors = {body(number): OSError("no route") for number in range(3)}
    receiver.may_end.release(10)
    sender.put(*(happened(number) for number in range(3)))
    sender.close()
    assert receiver.taken == []
    failures, dropped = counted("left")
    assert failures >= 1
    assert dropped == 3


def post_to(server: LineageServer, **settings: object) -> Post:
    return Post(LineageSettings.model_validate({"url": server.url, **settings}))


def test_a_server_gets_the_event_as_json_and_no_credentials_that_nobody_set(server: LineageServer) -> None:
    server.may_answer.set()
    post = post_to(server)
    post(body(1))
    post.close()
    server.wait_until(lambda: server.received == [{"run": "run-1"}])
    assert server.authorizations == [None]


def test_a_key_is_sent_as_a_bearer_token(server: LineageServer) -> None:
    server.may_answer.set()
    settings = LineageSettings(url=server.url).model_copy(update={"key": SecretStr("s3cret-key")})
    post = Post(settings)
    post(body(1))
    post.close()
    assert server.authorizations == ["Bearer s3cret-key"]


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, EventRefused),
        (422, EventRefused),
        (401, EventNotTaken),
        (404, EventNotTaken),
        (302, EventNotTaken),
        (503, EventNotTaken),
    ],
)
def test_an_answer_says_whether_the_event_can_ever_be_taken(
    server: LineageServer, status: int, error: type[Exception]
) -> None:
    server.may_answer.set()
    server.status, server.refuses = status, lambda _: True
    server.answer = b"no such field:\n  runId" + b"." * 10_000
    post = post_to(server)
    with pytest.raises(error) as refused:
        post(body(1))
    post.close()
    said = str(refused.value)
    assert said.startswith(f"{server.url} answered {status}: no such field: runId...")
    assert len(said) < 600


def test_a_refusal_is_told_without_the_key_that_the_address_has(server: LineageServer) -> None:
    server.may_answer.set()
    server.status, server.refuses = 401, lambda _: True
    server.answer = b"no such token=answered-key"
    post = post_to(server, url=f"{server.url}?api_key=hunter22")
    with pytest.raises(EventNotTaken) as refused:
        post(body(1))
    post.close()
    assert str(refused.value) == f"{server.url}?api_key=**** answered 401: no such token=****"


def test_a_server_that_hangs_or_is_away_is_an_error_within_the_timeout(server: LineageServer) -> None:
    post = post_to(server, timeout_seconds=HANGS_SECONDS)
    with pytest.raises(Exception, match="timed out"):
        post(body(1))
    server.stop()
    with pytest.raises(Exception, match="refused"):
        post(body(1))
    post.close()


def wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)

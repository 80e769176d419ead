"""A server under more load than it can take, and one whose processes die under load."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import httpx
import psutil
import pytest

from tests.behaviour.test_server import attributes, lookup, replayed
from tests.behaviour.topic import APP, Topic
from thermocline.cli.server_answers import Client
from thermocline.dev.crowd import Crowd
from thermocline.dev.stack import TABLE, TOPIC, Command, Stack
from thermocline.errors import ThermoclineError
from thermocline.ingest.owner.owner import Owner

pytestmark = pytest.mark.full

CALLERS = 4
# Far more than are under way when a process dies.
ANSWERS_AFTER_A_DEATH = 100


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack("overload", partitions=3, buckets=4, workers=2)


@pytest.fixture(scope="module")
def owner(stack: Stack, new_owner: Callable[[Stack], Owner]) -> Owner:
    return new_owner(stack)


@pytest.fixture(scope="module")
def topic(stack: Stack) -> Topic:
    return Topic(stack.settings.kafka, TOPIC)


@pytest.fixture(scope="module")
def server(stack: Stack) -> Command:
    """With every process that a server can have."""
    more = {
        "THERMOCLINE_SERVING__EXTRACT_JOBS_DIR": str(stack.folder / "jobs"),
        "THERMOCLINE_SERVING__CATALOG__ENABLED": "true",
    }
    server = stack.command("serve", "serve", environment=more)
    stack.wait_until_ready(server)
    return server


class Callers(Crowd):
    """Callers that look up the rows of some users all the time, with new connections."""

    def __init__(self, url: str, users: Sequence[str]) -> None:
        super().__init__(CALLERS)
        self.answers: list[tuple[str, dict[str, Any]]] = []
        self._url = url
        self._users = users

    def are_told(self, text: str, read_after: str) -> bool:
        """Whether all users have that value, once those records are included."""
        with suppress(ThermoclineError), Client(self._url) as client:
            rows = [lookup(client, (APP, user, "plan"), read_after) for user in self._users]
            return all(attributes(row) == {"plan": text} for row in rows)
        return False

    def follow(self, one: int) -> None:
        while not self.stop.is_set():
            # An error, such as a connection that its process took along, is no wrong answer.
            with suppress(ThermoclineError), Client(self._url) as client:
                for user in self._users:
                    answer = lookup(client, (APP, user, "plan"))
                    self.answers.append((user, answer))


def pids_of(server: Command, role: str) -> set[int]:
    found = set()
    for one in psutil.Process(server.process.pid).children(recursive=True):
        with suppress(psutil.Error):  # one that has just ended
            if f": {role} " in f"{' '.join(one.cmdline())} ":
                found.add(one.pid)
    return found


@pytest.mark.parametrize("role", ["api", "tailer", "jobs", "live"])
def test_a_process_killed_under_load_is_replaced_and_no_answer_is_wrong(
    stack: Stack, owner: Owner, topic: Topic, server: Command, role: str
) -> None:
    """Goal: whichever process dies, others answer, it comes back, and no answer in between is wrong.

    Method: each process of a kind is killed in turn under load, and records are written and committed. Each
    answer is compared with the replay to the read point that it names.
    """
    users = [f"{role}-{number}" for number in range(8)]

    def write(text: str) -> str:
        for user in users:
            topic.send((APP, user, "plan"), text)
        return topic.flush()

    def kill(pid: int, processes: int, callers: Callers) -> None:
        os.kill(pid, signal.SIGKILL)
        answered, text = len(callers.answers), f"after {pid}"
        read_after = write(text)
        owner.catch_up(threading.Event())

        def is_back() -> bool:
            return len(pids_of(server, role) - {pid}) == processes

        stack.wait_for(
            lambda: len(callers.answers) > answered + ANSWERS_AFTER_A_DEATH, "others answer", server
        )
        stack.wait_for(lambda: callers.are_told(text, read_after), "what came after is answered", server)
        stack.wait_for(is_back, "another one has taken its place", server)

    write("before")
    with Callers(stack.url, users) as callers:
        stack.wait_for(lambda: len(callers.answers) > ANSWERS_AFTER_A_DEATH, "there are answers", server)
        pids = pids_of(server, role)
        assert pids
        for pid in sorted(pids):
            kill(pid, len(pids), callers)
    for user, answer in callers.answers:
        assert attributes(answer) == replayed(topic.oracle, answer, user), answer["read_point"]


def test_extracts_beyond_the_bound_are_refused_and_lookups_go_on(
    stack: Stack, topic: Topic, server: Command
) -> None:
    """Three times as many callers as may run and wait, none of whom waits to ask again."""
    serving = stack.settings.serving
    most = serving.extracts_max + serving.extracts_waiting_max
    topic.send((APP, "overloaded", "plan"), "free")
    read_after = topic.flush()
    url = f"{stack.url}/v1/tables/{TABLE}/extract"
    answers: Counter[tuple[int, str]] = Counter()
    stop = threading.Event()

    def ask() -> None:
        with httpx.Client(timeout=120) as client:
            while not stop.is_set():
                answer = client.post(url)
                code = "" if answer.status_code == 200 else answer.json()["code"]
                assert ("Retry-After" in answer.headers) == bool(code)
                answers[answer.status_code, code] += 1

    with ThreadPoolExecutor(3 * most) as callers:
        asking = [callers.submit(ask) for _ in range(3 * most)]
        try:
            stack.wait_for(lambda: answers[503, "server-busy"] > most, "some are refused", server)
            with Client(stack.url) as client:
                answer = lookup(client, (APP, "overloaded", "plan"), read_after)
            assert attributes(answer) == {"plan": "free"}
        finally:
            stop.set()
        for one in asking:
            one.result()
    assert answers.keys() == {(200, ""), (503, "server-busy")}
    assert httpx.post(url, timeout=120).status_code == 200
    assert stack.get("/readyz")[0] == 200

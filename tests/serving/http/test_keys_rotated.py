"""Keys of a client that are replaced while it asks, and a key that is revoked."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import httpx
import pytest

from tests.serving.wire import listening_at, served_app
from thermocline.process.clock import SystemClock
from thermocline.serving.access.admission import Admission
from thermocline.serving.access.clients_edit import Granted, add_key, revoke_keys
from thermocline.serving.access.clients_file import ClientsFile
from thermocline.serving.access.keys import ApiKey

SECONDS_MAX: Final = 60.0
ROTATIONS: Final = 5
LOOKUP: Final = "/v1/tables/profiles/rows?app_id=7&user_id=u1"
MAY_LOOK_UP: Final = [Granted("profiles", ("lookup",), None, {})]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "access" / "clients.toml"


@pytest.fixture
def first(path: Path) -> ApiKey:
    path.parent.mkdir()
    return new_key(path)


@pytest.fixture
def served(
    new_world: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    path: Path,
    first: ApiKey,  # written to the file before it is read
) -> Iterator[SimpleNamespace]:
    """An app over a table, before a clients file that is looked at all the time."""
    file, stop = ClientsFile(path), threading.Event()

    def look() -> None:
        while not stop.wait(0.005):
            file.look()

    looking = threading.Thread(target=look)
    looking.start()
    yield from served_app(new_world(), monkeypatch, Admission(file, SystemClock()))
    stop.set()
    looking.join()


def new_key(path: Path) -> ApiKey:
    key = add_key(path, "billing", MAY_LOOK_UP, None, datetime.now(UTC))
    assert key is not None
    return key


def status_of(client: httpx.Client, key: ApiKey) -> int:
    return client.get(LOOKUP, headers={"Authorization": f"Bearer {key.text}"}).status_code


def until(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS_MAX
    while not is_so():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.005)


def test_keys_are_replaced_under_load_without_a_refused_request(
    served: SimpleNamespace, path: Path, first: ApiKey
) -> None:
    """Goal: a key is made, rolled out and the one before revoked, as docs/security.md says, while all ask.

    Method: each thread asks with the key that is rolled out, over a connection that stays, and over new ones.
    """
    rolled_out, stop = [first], threading.Event()
    answers: Counter[tuple[int, int]] = Counter()  # by thread and status
    asked_with: dict[int, ApiKey] = {}

    def ask(number: int, url: str) -> None:
        client = httpx.Client(base_url=url)
        while not stop.is_set():
            key = rolled_out[0]
            answers[number, status_of(client, key)] += 1
            asked_with[number] = key
            if number:
                client.close()
                client = httpx.Client(base_url=url)
        client.close()

    with listening_at(served.app, None) as port:
        url = f"http://127.0.0.1:{port}"
        threads = [threading.Thread(target=ask, args=(number, url)) for number in range(3)]
        for thread in threads:
            thread.start()
        try:
            with httpx.Client(base_url=url) as operator:
                for _ in range(ROTATIONS):
                    old, new = rolled_out[0], new_key(path)
                    until(lambda new=new: status_of(operator, new) == 200)  # type: ignore[misc]
                    rolled_out[0] = new
                    until(lambda new=new: all(asked_with.get(one) is new for one in range(3)))  # type: ignore[misc]
                    revoke_keys(path, "billing", old.id)
                    until(lambda old=old: status_of(operator, old) == 401)  # type: ignore[misc]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    assert {status for _, status in answers} == {200}
    assert min(answers.values()) > ROTATIONS

from __future__ import annotations

import errno
import http.client
import json
import multiprocessing
import os
import selectors
import signal
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psutil
import pytest

from tests.certificates import Authority, MountedSecret
from tests.serving.small_lake import START_SECONDS_MAX, create_table, get, lake_settings, until
from thermocline.errors import ConfigInvalid, PortTaken, StateDirUnusable, TableMissing
from thermocline.process.tls import pinned_context
from thermocline.serving.process import children
from thermocline.serving.process.children import Child, Children, is_ready
from thermocline.serving.process.processes import reserved
from thermocline.serving.process.server import load_definitions, serve
from thermocline.serving.process.state_dir import held_state_dir
from thermocline.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """A table in a real catalog, with one empty snapshot; Kafka is unavailable."""
    settings = lake_settings(tmp_path, "profiles")
    create_table(settings, "profiles")
    return settings


@pytest.fixture
def running(settings: Settings) -> Iterator[tuple[Settings, Any]]:
    """The server in a process of its own, as soon as it answers."""
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(settings,))
    process.start()
    until(lambda: get(settings, "/livez")[0] == http.client.OK)
    yield settings, process
    process.kill()
    process.join()


def _status(settings: Settings) -> dict[str, Any]:
    status, body = get(settings, "/status")
    return body["tables"]["profiles"] if status == http.client.OK else {}


def _is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False


@pytest.mark.full
def test_killed_processes_come_back_and_a_stop_leaves_none(running: tuple[Settings, Any]) -> None:
    """Goal: what dies is started again, and SIGTERM ends all.

    Method: Kafka is down, so the server is alive and not ready; kill worker and tailer, and look for others.
    """
    settings, process = running
    until(lambda: _status(settings).get("tailer", {}).get("pid"))
    until(lambda: "[kafka-unreachable]" in get(settings, "/readyz")[1]["detail"])
    status, problem = get(settings, "/readyz")
    assert (status, problem["code"]) == (503, "not-ready")
    before = _status(settings)
    os.kill(before["tailer"]["pid"], signal.SIGKILL)
    os.kill(before["worker_pid"], signal.SIGKILL)
    until(lambda: _status(settings).get("worker_pid", before["worker_pid"]) != before["worker_pid"])
    pid = before["tailer"]["pid"]
    until(lambda: _status(settings).get("tailer", {}).get("pid", pid) != pid)
    after = _status(settings)
    process.terminate()
    process.join(START_SECONDS_MAX)
    assert process.exitcode == 0
    until(lambda: not _is_alive(after["worker_pid"]) and not _is_alive(after["tailer"]["pid"]))


def test_the_death_of_the_process_that_forks_ends_no_other_and_they_can_be_stopped_and_started_again(
    running: tuple[Settings, Any],
) -> None:
    settings, process = running
    until(lambda: _status(settings).get("tailer", {}).get("pid"))
    before = _status(settings)
    os.kill(psutil.Process(before["worker_pid"]).ppid(), signal.SIGKILL)
    os.kill(before["tailer"]["pid"], signal.SIGKILL)
    pid = before["tailer"]["pid"]
    until(lambda: _status(settings).get("tailer", {}).get("pid", pid) != pid)
    after = _status(settings)
    assert after["worker_pid"] == before["worker_pid"]
    process.terminate()
    process.join(START_SECONDS_MAX)
    assert process.exitcode == 0
    until(lambda: not _is_alive(after["worker_pid"]) and not _is_alive(after["tailer"]["pid"]))


def _title(pid: int) -> str:
    """As `ps` and `top` show it."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().rstrip(b"\0").decode()


def test_each_process_is_called_by_what_it_does(running: tuple[Settings, Any]) -> None:
    """Goal: whoever looks for the process that uses all of a core or the memory reads which one it is."""
    settings, process = running
    until(lambda: _status(settings).get("tailer", {}).get("pid"))
    status = _status(settings)
    assert _title(process.pid) == "thermocline: serve"
    assert _title(status["tailer"]["pid"]) == "thermocline: tailer profiles"
    assert _title(status["worker_pid"]) == "thermocline: api 0"
    words = psutil.Process(status["worker_pid"]).cmdline()
    assert " ".join(words).startswith("thermocline: api "), "by that the faults find the workers"


@pytest.mark.full
def test_children_end_when_the_server_is_killed(running: tuple[Settings, Any]) -> None:
    settings, process = running
    until(lambda: _status(settings).get("tailer", {}).get("pid"))
    status = _status(settings)
    process.kill()
    process.join()
    until(lambda: not _is_alive(status["worker_pid"]) and not _is_alive(status["tailer"]["pid"]))


def test_a_server_with_a_certificate_speaks_tls_alone_and_takes_up_another_one(
    settings: Settings, tmp_path: Path
) -> None:
    authority, secret = Authority(tmp_path / "authority"), MountedSecret(tmp_path / "secret")
    first, second = authority.issue(), authority.issue()
    secret.show(*first.paths)
    changes = {"tls_certificate": secret.certificate, "tls_key": secret.key, "hosts": ("lake.example",)}
    serving = settings.serving.model_copy(update=changes)
    secure = settings.model_copy(update={"serving": serving})
    process = multiprocessing.get_context("spawn").Process(target=serve, args=(secure,))
    process.start()

    def ask(path: str, host: str = "lake.example") -> httpx.Response | None:
        try:
            known = pinned_context(first.certificate)
            return httpx.get(f"{serving.url}{path}", verify=known, headers={"Host": host})
        except httpx.TransportError:
            return None

    def problems() -> list[str]:
        answer = httpx.get(f"{serving.url}/status", verify=pinned_context(first.certificate))
        found: list[str] = answer.json()["problems"]
        return found

    try:
        until(lambda: ask("/livez") is not None)
        refused = ask("/livez", "other.example")
        assert refused is not None
        assert (refused.status_code, refused.json()["code"]) == (400, "bad-request")
        assert get(settings, "/livez") == (0, None), "plain HTTP is closed"
        assert problems() == []
        secret.show(second.certificate, first.key)
        until(lambda: problems() != [])
        wrong = f"{secret.certificate} and {secret.key}: the key is not that of the certificate"
        assert problems() == [f"the certificate can't be used, and the one before is: {wrong}"]
        secret.show(*second.paths)
        until(lambda: ask("/livez") is None)  # it is known by another one now
        answer = httpx.get(f"{serving.url}/livez", verify=pinned_context(second.certificate))
        assert answer.status_code == http.client.OK
        process.terminate()
        process.join(START_SECONDS_MAX)
        assert process.exitcode == 0
    finally:
        process.kill()
        process.join()


def test_a_certificate_that_cannot_be_used_is_said_before_anything_starts(
    settings: Settings, tmp_path: Path
) -> None:
    authority = Authority(tmp_path / "authority")
    changes = {"tls_certificate": authority.issue().certificate, "tls_key": authority.issue().key}
    serving = settings.serving.model_copy(update=changes)
    with pytest.raises(ConfigInvalid, match="the key is not that of the certificate"):
        serve(settings.model_copy(update={"serving": serving}))


def test_a_port_in_use_is_said_before_anything_starts(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", settings.serving.port)), pytest.raises(PortTaken):
        serve(settings)


def test_a_state_folder_that_cannot_be_written_or_is_in_use_is_said_before_anything_starts(
    settings: Settings, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    for state_dir in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/nowhere")):
        serving = settings.serving.model_copy(update={"state_dir": state_dir})
        with pytest.raises(StateDirUnusable, match=str(state_dir)):
            serve(settings.model_copy(update={"serving": serving}))
    state_dir = settings.serving.state_dir
    with held_state_dir(state_dir, settings.tables), pytest.raises(StateDirUnusable, match="another server"):
        serve(settings)
    with held_state_dir(state_dir, settings.tables):
        assert {path.name for path in state_dir.iterdir()} == {"profiles", "server.lock"}


def test_it_does_not_listen_where_other_machines_could_read_everything(settings: Settings) -> None:
    serving = settings.serving.model_copy(update={"host": "0.0.0.0"})
    with pytest.raises(ConfigInvalid, match="clients_file"):
        serve(settings.model_copy(update={"serving": serving}))


def test_a_port_is_held_before_any_worker_listens() -> None:
    with reserved("127.0.0.1", 0) as held, pytest.raises(PortTaken):
        reserved(*held.getsockname())


def test_connections_are_spread_over_the_workers_and_pass_over_a_dead_one() -> None:
    with reserved("127.0.0.1", 0) as held:
        address = held.getsockname()
        workers = [socket.create_server(address, reuse_port=True) for _ in range(2)]
        accepted = [_accepted(workers, address) for _ in range(64)]
        assert set(accepted) == set(workers)
        workers[0].close()
        assert {_accepted(workers[1:], address) for _ in range(16)} == {workers[1]}
        workers[1].close()


def _accepted(workers: list[socket.socket], address: tuple[str, int]) -> socket.socket:
    """Which of the workers a new connection goes to."""
    with selectors.DefaultSelector() as ready, socket.create_connection(address, timeout=10):
        for worker in workers:
            ready.register(worker, selectors.EVENT_READ, worker)
        ((key, _),) = ready.select(10)
        accepting: socket.socket = key.data
        accepting.accept()[0].close()
    return accepting


def test_a_table_that_is_missing_is_said_before_anything_starts(settings: Settings) -> None:
    table = settings.tables["profiles"].model_copy(update={"identifier": "app.nope"})
    with pytest.raises(TableMissing):
        serve(settings.model_copy(update={"tables": {"profiles": table}}))


def test_the_tables_definition_holds_and_a_file_that_differs_is_warned_of(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    table = settings.tables["profiles"].model_copy(update={"on_error": "skip"})
    definitions = load_definitions(settings.model_copy(update={"tables": {"profiles": table}}))
    assert definitions["profiles"].on_error.declared == "quarantine"
    (record,) = caplog.records
    assert "on_error" in vars(record)["fields"]["differences"]


def test_what_dies_at_once_is_started_more_and_more_rarely() -> None:
    child = Child("dies", os._exit, (3,))
    now, waits = 0.0, []
    for _ in range(4):
        child.tend(now)
        assert child.process is not None
        assert child.process.has_ended(START_SECONDS_MAX)
        child.tend(now)
        waits.append(child.start_at - now)
        now = child.start_at
    assert waits == [0.5, 1.0, 2.0, 4.0]


def test_a_process_that_can_not_be_started_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine has no memory, or no more processes; the parent's end would end all that run."""

    def refuse(*_: object) -> None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    child = Child("starts late", os._exit, (0,))
    with monkeypatch.context() as patched:
        patched.setattr(children, "Forked", refuse)
        child.tend(0.0)
    assert child.process is None
    assert child.start_at > 0
    child.tend(child.start_at)
    process: Any = child.process
    assert process.has_ended(within_seconds=60)
    process.close()


def test_a_port_that_answers_in_no_http_is_not_ready() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def babble() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(b"no HTTP\r\n\r\n")

        thread = threading.Thread(target=babble)
        thread.start()
        assert not is_ready(f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


def test_a_table_that_gets_never_ready_is_named_and_does_not_hold_up_what_runs_in_the_background(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Method: the child ends the watch; a clock that moves by 20 seconds at each look stands for waiting."""
    problem = "table profiles is not ready: 7 offsets are still to be read"

    class Unready(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(503 if self.path == "/readyz" else 200)
            self.end_headers()
            tables = {"profiles": {"ready": False, "problem": problem}, "events": {"ready": True}}
            self.wfile.write(json.dumps({"tables": tables}).encode())

        def log_message(self, *_: object) -> None:
            pass

    child = Child("rows", os.kill, (os.getpid(), signal.SIGTERM), is_in_background=True)
    clock: Any = SimpleNamespace(monotonic=count(0.0, 20.0).__next__)
    too_late = threading.Timer(START_SECONDS_MAX, os.kill, (os.getpid(), signal.SIGTERM))
    with ThreadingHTTPServer(("127.0.0.1", 0), Unready) as http_server:
        thread = threading.Thread(target=http_server.serve_forever)
        thread.start()
        too_late.start()
        watched = Children([child], clock)
        watched.watch(f"http://127.0.0.1:{http_server.server_port}")
        http_server.shutdown()
        thread.join()
    too_late.cancel()
    assert child.process is not None
    watched.stop()
    (warning,) = caplog.records
    assert vars(warning)["fields"] == {"problems": problem}

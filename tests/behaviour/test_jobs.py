"""Extract jobs of a running server, through a kill of all its processes and a proxy that cuts connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.behaviour.topic import APP, Topic
from tests.failpoints.firing import environment
from thermocline.client import Client, JobFailed
from thermocline.dev.stack import TABLE, TOPIC, Command, Stack
from thermocline.ingest.owner.owner import Owner

ENTITIES = 2_000
# More than an answer about a job, and less than one of its files.
CUT_BYTES = 5_000


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack]) -> Stack:
    return new_stack("jobs", partitions=3, buckets=4)


@pytest.mark.full
def test_a_killed_server_leaves_a_failed_job_and_its_next_one_survives_cut_connections(
    stack: Stack, new_owner: Callable[[Stack], Owner], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Goal: there is a whole result or none, and one put together of cut downloads is the whole one.

    Method: every process is killed while the job waits before its third bucket. The next server is asked for
    the same through a proxy that cuts each connection after some bytes.
    """
    topic = Topic(stack.settings.kafka, TOPIC)
    for number in range(ENTITIES):
        topic.send((APP, f"user-{number}", "plan"), f"value-{number}")
    topic.flush()
    new_owner(stack).catch_up(threading.Event())
    topic.send((APP, "user-1", "plan"), "hot")
    topic.flush()
    root = stack.folder / "jobs"
    monkeypatch.setenv("THERMOCLINE_SERVING__EXTRACT_JOBS_DIR", str(root))

    with monkeypatch.context() as armed:
        for name, value in environment("extract.bucket=sleep:600@3").items():
            armed.setenv(name, value)
        server = stack.serve()
        stack.wait_until_ready(server)
    with Client(stack.url) as client:
        client.start_extract(TABLE, job_id="killed")
        stack.wait_for(lambda: client.extract_job(TABLE, "killed").buckets_done == 2, "two buckets are done")
    _kill_all(server)
    assert list((root / TABLE / "killed").glob("bucket-*"))

    again = stack.serve()
    stack.wait_until_ready(again)
    with Client(stack.url) as client:
        stack.wait_for(lambda: client.extract_job(TABLE, "killed").state == "failed", "the job is failed")
        with pytest.raises(JobFailed, match="the server ended while it ran"):
            client.await_extract(TABLE, "killed")
        assert [path.name for path in (root / TABLE / "killed").iterdir()] == ["job.json"]
        whole = client.extract(TABLE).to_arrow()
    with _cutting_proxy(int(stack.url.rpartition(":")[2])) as url, Client(url) as client:
        client.start_extract(TABLE, job_id="whole")
        job = client.await_extract(TABLE, "whole")
        paths = client.download_extract(job, tmp_path / "files")
    assert max(path.stat().st_size for path in paths) > CUT_BYTES
    found = pa.concat_tables(pq.read_table(path) for path in paths)
    order = [("user_id", "ascending")]
    assert found.sort_by(order).to_pylist() == whole.sort_by(order).to_pylist()
    assert found.num_rows == ENTITIES
    assert again.stop() == 0


def _kill_all(server: Command) -> None:
    processes = psutil.Process(server.process.pid).children(recursive=True)
    server.kill()
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


class _cutting_proxy:  # noqa: N801  (it is used as a function)
    """Passes connections on to a port, and resets each one after `CUT_BYTES` of the answer."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))

    def __enter__(self) -> str:
        threading.Thread(target=self._accept, daemon=True).start()
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                caller, _ = self._listener.accept()
                threading.Thread(target=self._pass_on, args=(caller,), daemon=True).start()

    def _pass_on(self, caller: socket.socket) -> None:
        with closing(caller), closing(socket.create_connection(("127.0.0.1", self._port))) as server:
            threading.Thread(target=_pump, args=(caller, server, 1 << 30), daemon=True).start()
            _pump(server, caller, CUT_BYTES)
            for end in (caller, server):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


def _pump(source: socket.socket, sink: socket.socket, bytes_max: int) -> None:
    with suppress(OSError):
        while bytes_max and (part := source.recv(min(bytes_max, 1_000))):
            sink.sendall(part)
            bytes_max -= len(part)

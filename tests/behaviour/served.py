"""A served table in this process: the real tailer and API worker as threads."""

from __future__ import annotations

import socket
import threading

import uvicorn

from tests.behaviour.live import Live
from tests.behaviour.reads import Reads, write
from thermocline.cli.server_answers import Client
from thermocline.client import Retries
from thermocline.serving.http.app import create_app
from thermocline.serving.process.server import load_definitions
from thermocline.serving.read.tables import open_tables
from thermocline.serving.tail.run import run_tailer
from thermocline.serving.tail.tailer_status import forget_status


class Served:
    """A table behind one tailer and one API worker, which ``reads`` asks."""

    def __init__(self, live: Live) -> None:
        self.live = live
        self.settings = live.settings
        self.crashes: list[str] = []
        self._number = 0
        self._is_over = threading.Event()
        self._stop_tailer = threading.Event()
        self._tailer = threading.Thread(target=self._keep_tailing)
        self._listener = socket.create_server(("127.0.0.1", 0))
        app = create_app(open_tables(self.settings, load_definitions(self.settings)), self.settings.serving)
        self._server = uvicorn.Server(uvicorn.Config(app, log_config=None, lifespan="on"))
        self._api = threading.Thread(target=self._server.run, args=([self._listener],))
        self._tailer.start()
        self._api.start()
        url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        client = Client(url, retries=Retries(attempts_max=1))  # a refusal is to be seen
        self.reads = Reads(client, live.name, live.topic)

    def close(self) -> None:
        self.reads.client.close()
        self._server.should_exit = True
        self._is_over.set()
        self._stop_tailer.set()
        self._api.join()
        self._tailer.join()
        self._listener.close()

    def restart_tailer(self) -> None:
        self._stop_tailer.set()

    def write(self) -> None:
        """A few records more."""
        self._number += 1
        write(self.live.topic, self._number)

    def _keep_tailing(self) -> None:
        """As the server does with the process: what died is started again."""
        while not self._is_over.is_set():
            forget_status(self.settings.serving.state_dir / self.live.name)
            self._stop_tailer.clear()
            if self._is_over.is_set():
                return
            try:
                run_tailer(self.settings, self.live.name, self._stop_tailer)
            except Exception as error:  # noqa: BLE001  what it is, is the point's
                self.crashes.append(repr(error))  # with its traceback it would keep the hot tier open

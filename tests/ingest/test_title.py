"""What `ps` and `top` call a process that ingests."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

START_SECONDS_MAX = 60.0
CONFIG = """
[kafka]
bootstrap_servers = "127.0.0.1:9"
[catalog]
uri = "postgresql+psycopg://127.0.0.1:{port}/lake"
warehouse = "warehouse"
[tables.orders]
identifier = "app.orders"
topics = ["orders"]
key = ["id"]
columns = {{ id = "int" }}
"""


def test_the_owner_is_called_by_the_table_that_it_ingests(tmp_path: Path) -> None:
    """Method: the catalog takes the connection and says nothing, so that the process stays."""
    config = tmp_path / "thermocline.toml"
    command = [sys.executable, "-m", "thermocline", "--config", str(config), "ingest", "run", "orders"]
    with socket.create_server(("127.0.0.1", 0)) as catalog:
        config.write_text(CONFIG.format(port=catalog.getsockname()[1]))
        assert_is_called("thermocline: ingest orders", command)


def assert_is_called(title: str, command: Sequence[str]) -> None:
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        try:
            deadline = time.monotonic() + START_SECONDS_MAX
            shown = Path(f"/proc/{process.pid}/cmdline")
            while shown.read_bytes().rstrip(b"\0") != title.encode():
                assert process.poll() is None
                assert time.monotonic() < deadline, shown.read_bytes()
                time.sleep(0.05)
        finally:
            process.kill()

"""The blocking client is what the generator writes of the async one."""

from __future__ import annotations

import runpy
from pathlib import Path

CLIENT = Path(__file__).parents[2] / "client"


def test_the_blocking_client_is_what_is_generated_from_the_async_one() -> None:
    generate = runpy.run_path(str(CLIENT / "generate.py"))
    written = (CLIENT / "thermocline_client" / "blocking.py").read_text()
    assert written == generate["blocking"](), "out of date: make format"

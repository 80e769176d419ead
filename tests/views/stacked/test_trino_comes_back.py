"""The Trino that all tests of this folder share is killed, last of all, and is there again."""

from __future__ import annotations

import pytest

from tests.views.stacked.viewed import ask
from thermocline.embedded.stack import TABLE, TRINO_ADMIN, Stack

pytestmark = pytest.mark.trino


def test_it_answers_again_on_the_same_port_after_a_crash(stack: Stack) -> None:
    assert stack.trino is not None
    address = stack.trino.url
    stack.trino.kill()
    assert stack.trino.pid is None
    stack.trino.start()
    stack.trino.wait()
    assert stack.trino.url == address
    assert ask(stack, f"SELECT count(*) FROM lake.app.{TABLE} WHERE false", TRINO_ADMIN) == [(0,)]

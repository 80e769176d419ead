"""The Trino that all tests of this folder share is killed, last of all, and is there again."""

from __future__ import annotations

import pytest

from tests.views.trino.conftest import ADMIN, TrinoSite

pytestmark = [pytest.mark.trino, pytest.mark.full]


def test_it_answers_again_on_the_same_port_after_a_crash(site: TrinoSite) -> None:
    site.query("CREATE TABLE lake.app.kept AS SELECT 7 AS a", user=ADMIN)
    server = site.trino
    address = server.url
    server.kill()
    assert server.pid is None
    server.start()
    server.wait()
    assert server.url == address
    assert site.query("SELECT a FROM lake.app.kept", user=ADMIN) == [(7,)]
    assert site.query("SELECT count(*) FROM kafka.default.absent") == [(0,)]

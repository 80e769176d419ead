"""Batches through a REST catalog that wants a token: both clients get or bring one, and say it each time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import parse_qs

import pytest

from tests.http_proxy import HttpProxy
from tests.ingest.small_ingest import Ingest, settings_of
from thermocline.dev.rest_catalog import LocalRestCatalog
from thermocline.ingest.commit.commit import Landed
from thermocline.ingest.commit.java import small_jvm
from thermocline.settings import PassThrough

pytestmark = [pytest.mark.jvm, pytest.mark.full]

BATCHES = 3
TOKENS = "/oauth/tokens"
GIVEN = "Bearer client-credentials-token:sub=thermocline"
"""What Iceberg's own server for tests gives for a client credential of that name, by OAuth2."""


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[LocalRestCatalog]:
    with LocalRestCatalog(tmp_path / "rest") as running:
        yield running


@pytest.mark.parametrize(
    ("given", "said"), [({"credential": "thermocline:secret"}, GIVEN), ({"token": "abc"}, "Bearer abc")]
)
def test_each_request_of_python_and_of_java_says_its_token(
    tmp_path: Path, catalog: LocalRestCatalog, given: dict[str, str], said: str
) -> None:
    with HttpProxy(catalog.port) as proxy:
        settings = settings_of(tmp_path, proxy.url)
        properties = PassThrough({**catalog.properties, **given})
        settings = settings.model_copy(
            update={"catalog": settings.catalog.model_copy(update={"properties": properties})}
        )
        with small_jvm(settings.catalog) as jvm:
            ingest = Ingest(settings, jvm, seed=1)
            for _ in range(BATCHES):
                change, ingest.expected = ingest.batch()
                assert isinstance(ingest.owned.committer.commit(*ingest.planned, change), Landed)
                assert ingest.rows() == ingest.expected
            ingest.owned.release()
        asked = [one.request for one in proxy.exchanges]
    tokens = [one for one in asked if one.target.endswith(TOKENS)]
    others = [one for one in asked if one not in tokens]
    clients = {dict(one.headers).get("User-Agent", "").partition("/")[0] for one in others}
    assert len(clients) > 1, clients
    assert {_header(one.headers, "authorization") for one in others} == {said}
    forms = [parse_qs(one.body.decode()) for one in tokens]
    if "credential" in given:
        assert len(forms) > 1
        assert all(form["client_id"] == ["thermocline"] for form in forms)
        assert all(form["client_secret"] == ["secret"] for form in forms)
    else:
        assert not forms


def _header(headers: Sequence[tuple[str, str]], name: str) -> str:
    return {key.lower(): value for key, value in headers}.get(name, "")

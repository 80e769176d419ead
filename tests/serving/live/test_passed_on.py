"""What a table's own catalog grants readers is passed on; what the server has of its own is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from tests.manual_clock import ManualClock
from tests.serving.live.real_table import RealTable
from thermocline.errors import CatalogUnreachable
from thermocline.process.clock import SystemClock
from thermocline.serving.live.passed_on import ASKED_AGAIN_SECONDS, KEPT_SECONDS, PassedOn
from thermocline.serving.read.tables import ServedTable

OURS = {"s3.access-key-id": "ours", "s3.secret-access-key": "ours", "uri": "catalog", "s3.region": "eu"}


class ItsCatalog:
    """A catalog that vends."""

    def __init__(self) -> None:
        self.given = {"s3.session-token": "first"}
        self.asked = 0
        self.is_down = False

    def open(self) -> Any:
        self.asked += 1
        if self.is_down:
            raise CatalogUnreachable(uri="catalog", detail="refused")
        return SimpleNamespace(io=SimpleNamespace(properties={**OURS, **self.given}))


@pytest.fixture
def catalog() -> ItsCatalog:
    return ItsCatalog()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def passed_on(catalog: ItsCatalog, clock: ManualClock) -> PassedOn:
    return PassedOn(catalog.open, OURS, clock)


def test_only_what_the_catalog_says_of_the_store_is_told(passed_on: PassedOn, catalog: ItsCatalog) -> None:
    catalog.given |= {
        "s3.access-key-id": "theirs",
        "s3.secret-access-key": "theirs",
        "client.refresh-credentials-endpoint": "v1/credentials",
        "s3.remote-signing-enabled": "true",
        "token": "a session",
        "write.format.default": "parquet",
    }
    assert passed_on.properties() == {
        "s3.access-key-id": "theirs",
        "s3.secret-access-key": "theirs",
        "s3.session-token": "first",
    }


def test_it_is_asked_for_again_before_it_runs_out(
    passed_on: PassedOn, catalog: ItsCatalog, clock: ManualClock
) -> None:
    passed_on.properties()
    catalog.given = {"s3.session-token": "second"}
    assert passed_on.properties() == {"s3.session-token": "first"}
    assert catalog.asked == 1
    clock.advance(ASKED_AGAIN_SECONDS + 1)
    assert passed_on.properties() == {"s3.session-token": "second"}


def test_where_the_catalog_is_down_the_last_grant_goes_on_for_as_long_as_it_may(
    passed_on: PassedOn, catalog: ItsCatalog, clock: ManualClock
) -> None:
    passed_on.properties()
    catalog.is_down = True
    clock.advance(KEPT_SECONDS - 1)
    assert passed_on.properties() == {"s3.session-token": "first"}
    clock.advance(2)
    with pytest.raises(CatalogUnreachable):
        passed_on.properties()


def test_a_load_carries_it_and_is_another_one_when_it_changes(
    served: Callable[..., tuple[Any, ServedTable]],
    passed_on: PassedOn,
    catalog: ItsCatalog,
    clock: ManualClock,
) -> None:
    table = RealTable(*served(is_as_ingest=True))
    maker = table.maker(SystemClock(), passed_on=passed_on)
    first = maker.load({})
    assert json.loads(first.answer)["config"] == {"s3.session-token": "first"}
    clock.advance(ASKED_AGAIN_SECONDS + 1)
    assert maker.load({}) == first
    catalog.given = {"s3.session-token": "second"}
    clock.advance(ASKED_AGAIN_SECONDS + 1)
    second = maker.load({})
    assert json.loads(second.answer)["config"] == {"s3.session-token": "second"}
    assert second.tag != first.tag

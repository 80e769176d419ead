"""Commits to a REST catalog: what they assert, and what becomes of those whose answer or owner is lost."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest

from tests.failpoints.meanwhile import meanwhile
from tests.http_proxy import Fault, HttpProxy, Request
from tests.ingest.commit.test_commit_outcomes import check_nothing_is_lost_or_repeated, ingest_through_faults
from tests.ingest.postgres import Loss
from tests.ingest.small_ingest import Ingest, settings_of
from tests.tier import is_full, quick_or_full
from thermocline.dev.rest_catalog import LocalRestCatalog
from thermocline.errors import CatalogUnreachable, OwnerLost
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.ingest.claim.reconcile import Resolution
from thermocline.ingest.commit.commit import Landed, Rejected, Unknown
from thermocline.ingest.commit.java import small_jvm
from thermocline.settings import CatalogSettings, PassThrough

pytestmark = pytest.mark.jvm

LOST = quick_or_full(6, 100)
STALE = quick_or_full(3, 100)
FAULTS = {
    Loss.APPLIED: (Fault.UNANSWERED, Fault.FAILED, Fault.NO_GATEWAY, Fault.TIMED_OUT, Fault.BUSY_AFTER),
    Loss.DROPPED: (Fault.LOST, Fault.ERROR, Fault.BUSY),
    Loss.LATE: (Fault.LATE,),
}
SEED_OF_ALL_OUTCOMES = 410487
"""With it, few cases are enough for each of them."""


def a_seed() -> int:
    return random.randrange(1_000_000) if is_full() else SEED_OF_ALL_OUTCOMES


class LossyRest:
    """A proxy before a REST catalog that loses requests to commit, or their answers."""

    def __init__(self, catalog: LocalRestCatalog, seed: int) -> None:
        self.proxy = HttpProxy(catalog.port, self._fault_of)
        self._random = random.Random(seed)
        self._loss: Loss | None = None
        self._stays_away = False
        self.losses = 0

    def lose_next_commit(self, loss: Loss, stays_away: bool) -> None:
        self._loss, self._stays_away = loss, stays_away

    def restore(self) -> None:
        """The server can be reached again."""
        self._loss, self.proxy.is_away = None, False

    def _fault_of(self, request: Request) -> Fault | None:
        if self._loss is None or not is_commit(request):
            return None
        loss, self._loss = self._loss, None
        self.losses += 1
        self.proxy.is_away = self._stays_away
        return self._random.choice(FAULTS[loss])


def is_commit(request: Request) -> bool:
    return request.method == "POST" and request.target.endswith("/tables/profiles")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRestCatalog]:
    with LocalRestCatalog(tmp_path_factory.mktemp("rest")) as catalog:
        yield catalog


@pytest.fixture(scope="module")
def jvm(server: LocalRestCatalog) -> Iterator[Any]:
    with small_jvm(CatalogSettings(type="rest", uri=server.url)) as view:
        yield view


@pytest.fixture
def lossy(server: LocalRestCatalog) -> Iterator[LossyRest]:
    """Before a catalog without tables."""
    lossy = LossyRest(server, a_seed())
    with lossy.proxy:
        yield lossy
    open_catalog(CatalogSettings(type="rest", uri=server.url)).drop_table("app.profiles")
    shutil.rmtree(server.folder / "warehouse" / "app")


@pytest.fixture
def new_ingest(tmp_path: Path, jvm: Any, lossy: LossyRest) -> Iterator[Callable[..., Ingest]]:
    """Makes the table, and its owner, through the proxy."""
    made: list[Ingest] = []

    def make(**properties: str) -> Ingest:
        settings = settings_of(tmp_path, lossy.proxy.url)
        catalog = settings.catalog.model_copy(update={"properties": PassThrough(properties)})
        made.append(Ingest(settings.model_copy(update={"catalog": catalog}), jvm, a_seed()))
        return made[-1]

    yield make
    for one in made:
        one.owned.release()


def test_lost_answers_of_a_rest_catalog_lose_and_repeat_nothing(
    lossy: LossyRest, new_ingest: Callable[..., Ingest]
) -> None:
    """Goal: a catalog behind HTTP, whose client asks again by itself where it is told to.

    Method: the proxy loses the request or the answer, or answers with an error of its own; half the time the
    server is unavailable then.
    """
    ingest = new_ingest()
    stays = {loss: cycle((False, True)) for loss in Loss}
    ended = ingest_through_faults(
        ingest,
        LOST,
        lambda loss: lossy.lose_next_commit(loss, stays_away=next(stays[loss])),
        lossy.restore,
        lossy.proxy.deliver_late,
    )
    check_nothing_is_lost_or_repeated(ingest)
    assert lossy.losses == LOST
    assert set(ended) == {"Landed", "Unknown landed", "Unknown not landed"}


def test_a_commit_prepared_before_a_takeover_is_refused_by_the_rest_catalog_itself(
    lossy: LossyRest, new_ingest: Callable[..., Ingest]
) -> None:
    """Goal: the server, not only the check before the request, stops a stale owner.

    Method: a rival takes the table between the stale owner's checks and its request, and sometimes commits.
    """
    ingest = new_ingest()

    def take_over() -> None:
        ingest.take_over()
        if ingest.random.random() < 0.5:
            commit(ingest)

    for _ in range(STALE):
        stale, planned = ingest.owned.committer, ingest.planned
        change, _ = ingest.batch()
        with meanwhile("commit.publish", take_over, times=1):
            outcome = stale.commit(*planned, change)
        assert isinstance(outcome, Rejected)
        assert isinstance(outcome.error, OwnerLost)
        assert ingest.rows() == ingest.expected
        commit(ingest)
    statuses = [one.status for one in lossy.proxy.exchanges if is_commit(one.request)]
    assert statuses.count(409) == STALE


def test_a_commit_asserts_the_tables_uuid_and_the_snapshot_of_main(
    lossy: LossyRest, new_ingest: Callable[..., Ingest]
) -> None:
    """Goal: what `docs/lakes.md` says; so a property that another program sets meanwhile loses no race."""
    ingest = new_ingest()
    planned_on, _ = ingest.planned
    commit(ingest)
    request = next(one.request for one in reversed(lossy.proxy.exchanges) if is_commit(one.request))
    asserted = json.loads(request.body)["requirements"]
    assert sorted(asserted, key=lambda one: one["type"]) == [
        {"type": "assert-ref-snapshot-id", "ref": "main", "snapshot-id": planned_on},
        {"type": "assert-table-uuid", "uuid": str(ingest.owned.table.metadata.table_uuid)},
    ]


def test_a_property_that_is_set_meanwhile_neither_stops_a_commit_nor_is_lost(
    lossy: LossyRest, new_ingest: Callable[..., Ingest]
) -> None:
    ingest = new_ingest()

    def set_a_property() -> None:
        ingest.java_table().updateProperties().set("somebody", "else").commit()

    with meanwhile("commit.publish", set_a_property):
        commit(ingest)
    assert ingest.rows() == ingest.expected
    assert ingest.owned.table.properties["somebody"] == "else"


@pytest.mark.full
def test_a_commit_that_a_rest_catalog_never_answers_is_unknown(
    lossy: LossyRest, new_ingest: Callable[..., Ingest]
) -> None:
    """Goal: a connection that the network forgot does not hold ingest for ever.

    Method: with a bound of a second, where the default is a minute.
    """
    ingest = new_ingest(**{"rest.client.socket-timeout-ms": "1000"})
    change, _ = ingest.batch()
    lossy.proxy.decide = lambda request: Fault.SILENT if is_commit(request) else None
    outcome = ingest.owned.committer.commit(*ingest.planned, change)
    assert isinstance(outcome, Unknown)
    lossy.proxy.decide = lambda request: None
    (settled,) = ingest.take_over().settled
    assert settled.verdict == Resolution.NOT_LANDED


@pytest.mark.full
def test_a_table_that_a_rest_catalog_never_sends_is_an_error(
    lossy: LossyRest, new_ingest: Callable[..., Ingest]
) -> None:
    ingest = new_ingest(**{"rest.client.socket-timeout-ms": "1000"})
    catalog = open_catalog(ingest.settings.catalog)
    lossy.proxy.decide = lambda request: Fault.SILENT
    with pytest.raises(CatalogUnreachable):
        load_table(catalog, "profiles", "app.profiles")
    with pytest.raises(CatalogUnreachable):
        open_catalog(ingest.settings.catalog)
    lossy.proxy.decide = lambda request: None


def test_a_table_is_loaded_from_a_rest_catalog_that_is_busy_at_first(
    lossy: LossyRest, new_ingest: Callable[..., Ingest]
) -> None:
    ingest = new_ingest()
    answers = [Fault.BUSY, Fault.UNANSWERED]
    lossy.proxy.decide = lambda request: answers.pop() if answers else None
    table = load_table(open_catalog(ingest.settings.catalog), "profiles", "app.profiles")
    assert table.metadata.table_uuid == ingest.owned.table.metadata.table_uuid
    assert not answers


def commit(ingest: Ingest) -> None:
    change, after = ingest.batch()
    assert isinstance(ingest.owned.committer.commit(*ingest.planned, change), Landed)
    ingest.expected = after
    ingest.refresh()

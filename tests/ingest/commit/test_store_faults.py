"""Batches into a table in a store that fails now and then: all land, or say why, and no row is wrong."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.http_proxy import OF_A_STORE, HttpProxy, RandomFaults
from tests.ingest.small_ingest import Ingest, settings_of
from thermocline.dev.rest_catalog import LocalRestCatalog
from thermocline.dev.s3 import LocalS3
from thermocline.errors import CatalogUnreachable, CommitRejected
from thermocline.ingest.commit.commit import Landed, Rejected, Unknown
from thermocline.ingest.commit.java import small_jvm
from thermocline.settings import PassThrough

pytestmark = [pytest.mark.jvm, pytest.mark.full]

BATCHES = 25
SHARE = 0.15


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRestCatalog]:
    folder = tmp_path_factory.mktemp("lake")
    with LocalS3(folder / "s3") as store, LocalRestCatalog(folder / "rest", store) as running:
        yield running


def test_batches_through_faults_of_the_store_lose_and_repeat_nothing(
    tmp_path: Path, catalog: LocalRestCatalog
) -> None:
    """Method: a share of all requests of Python's and Java's clients is spoilt; the catalog's own are not."""
    seed = random.randrange(1_000_000)
    store_port = int(catalog.properties["s3.endpoint"].rpartition(":")[2])
    ended: Counter[str] = Counter()
    with HttpProxy(store_port) as proxy:
        settings = settings_of(tmp_path, catalog.url)
        properties = PassThrough({**catalog.properties, "s3.endpoint": proxy.url})
        settings = settings.model_copy(
            update={"catalog": settings.catalog.model_copy(update={"properties": properties})}
        )
        with small_jvm(settings.catalog) as jvm:
            ingest = Ingest(settings, jvm, seed)
            proxy.decide = RandomFaults(seed, SHARE, OF_A_STORE)
            for _ in range(BATCHES):
                try:
                    change, after = ingest.batch()
                except OSError:  # the owner throws such a batch away, and makes it again
                    ended["not written"] += 1
                    continue
                outcome = ingest.owned.committer.commit(*ingest.planned, change)
                match outcome:
                    case Landed():
                        ingest.expected = after
                    case Rejected(error):
                        assert isinstance(error, CatalogUnreachable | CommitRejected), error
                    case Unknown():
                        has_landed = ingest.take_over().state.seam == change.seam
                        ingest.expected = after if has_landed else ingest.expected
                ended[type(outcome).__name__] += 1
                assert ingest.rows() == ingest.expected
                print(f"{ended} after {len(proxy.exchanges)} requests", flush=True)
    print(ended, proxy.spoilt)
    assert set(proxy.spoilt) == set(OF_A_STORE)
    assert ended["Landed"] > BATCHES / 2

"""A catalog that vends keys of the store: ingest and server have none, and engines get those of a reader."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyiceberg.catalog.rest import RestCatalog

from tests.behaviour.live import wait_for
from tests.behaviour.topic import APP, Topic
from thermocline.dev.rest_catalog import LocalRestCatalog
from thermocline.dev.s3 import LocalS3
from thermocline.dev.stack import TABLE, TOPIC, Stack
from thermocline.ingest.owner.owner import Owner

pytestmark = pytest.mark.full


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRestCatalog]:
    folder = tmp_path_factory.mktemp("vending")
    with (
        LocalS3(folder / "s3") as store,
        LocalRestCatalog(folder / "rest", store, vends_credentials=True) as running,
    ):
        yield running


def test_an_engine_reads_now_with_the_keys_that_the_tables_own_catalog_vends(
    catalog: LocalRestCatalog,
    new_stack: Callable[..., Stack],
    new_owner: Callable[[Stack], Owner],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THERMOCLINE_SERVING__CATALOG__READER_PROPERTIES__CREDENTIAL", "reader:secret")
    stack = new_stack("vended", rest=catalog, has_live_catalog=True)
    place = stack.settings.catalog.properties  # of the store, which an engine has to know
    assert not [name for name in place if "key" in name]
    topic = Topic(stack.settings.kafka, TOPIC)
    topic.send((APP, "u1", "plan"), "gold")
    topic.flush()
    new_owner(stack).step()
    stack.wait_until_ready(stack.serve())
    topic.send((APP, "u2", "plan"), "silver")
    topic.flush()
    engine = RestCatalog("live", uri=f"{stack.url}/iceberg", **place)

    def rows() -> dict[str, str]:
        found = engine.load_table(f"app.{TABLE}").scan().to_arrow()
        return dict(zip(*(found.column(name).to_pylist() for name in ("user_id", "value")), strict=True))

    wait_for(lambda: rows() == {"u1": "gold", "u2": "silver"})

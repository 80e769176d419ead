"""Commits whose answer is lost, applied or not, on real catalogs: no file and no record lost or repeated."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import cycle, islice, product
from pathlib import Path
from typing import Any

import pytest

from tests.ingest.postgres import HOST, Loss, Proxy, local_postgres
from tests.ingest.small_ingest import Ingest, SqliteThatLosesAnswers, settings_of
from tests.tier import quick_or_full
from thermocline.errors import CatalogUnreachable, CommitUnknown
from thermocline.iceberg.catalog import open_catalog
from thermocline.iceberg.files import local_path
from thermocline.ingest.claim.reconcile import Resolution
from thermocline.ingest.commit.commit import Landed, Rejected, Unknown
from thermocline.ingest.commit.java import small_jvm
from thermocline.ingest.commit.unknown import notes
from thermocline.settings import load_settings
from thermocline.upsert.bucket_task import written_paths

pytestmark = pytest.mark.jvm

CASES = quick_or_full(20, 100)


def ingest_through_faults(
    ingest: Ingest,
    cases: int,
    break_next: Callable[[Loss], None],
    mend: Callable[[], None],
    deliver_late: Callable[[], None],
) -> dict[str, int]:
    """Commits batches of which each loses its request or its answer; how each ended.

    A batch that did not land is made again from the same records' offsets, as ingest does.
    """
    ended: dict[str, int] = {}
    fates = list(islice(cycle(product(Loss, (False, True))), cases))
    ingest.random.shuffle(fates)
    for loss, may_be_before in fates:
        change, after = ingest.batch()
        break_next(loss)
        state = ingest.owned.state
        outcome = ingest.owned.committer.commit(state.snapshot_id, state.seam, change)
        mend()
        what = type(outcome).__name__
        match outcome:
            case Landed():
                ingest.expected = after
                ingest.refresh()
                assert ingest.owned.state.seam == change.seam
            case Rejected(error):
                assert isinstance(error, CatalogUnreachable)
                for path in written_paths(change.files):
                    ingest.owned.table.io.delete(path)
            case Unknown(error):
                assert isinstance(error, CommitUnknown)
                assert all(Path(local_path(path) or "").exists() for path in change.paths())
                is_before = loss == Loss.LATE and may_be_before
                if is_before:
                    deliver_late()
                owned = ingest.take_over()
                (settled,) = owned.settled
                has_landed = owned.state.seam == change.seam
                assert settled.verdict == (Resolution.LANDED if has_landed else Resolution.NOT_LANDED)
                assert has_landed or owned.state.seam == state.seam
                assert has_landed == (loss == Loss.APPLIED or is_before)
                ingest.expected = after if has_landed else ingest.expected
                assert not list(notes(owned.table.io, owned.table.location()))
                what += " " + settled.verdict.value
        deliver_late()
        ended[what] = ended.get(what, 0) + 1
    print(ended)
    return ended


def check_nothing_is_lost_or_repeated(ingest: Ingest) -> None:
    assert ingest.rows() == ingest.expected
    assert ingest.files_written() == ingest.files_ever_in_the_table()


@pytest.fixture(scope="module")
def postgres() -> Iterator[int]:
    with local_postgres() as port:
        yield port


def test_lost_answers_of_sqlite_lose_and_repeat_nothing(tmp_path: Path, jvm: Any) -> None:
    ingest = Ingest(settings_of(tmp_path, "sqlite:///catalog.db"), jvm, seed=random.randrange(1_000_000))
    sqlite = SqliteThatLosesAnswers(ingest, tmp_path / "catalog.db")
    ended = ingest_through_faults(ingest, CASES, sqlite.lose_next_commit, lambda: None, sqlite.deliver_late)
    check_nothing_is_lost_or_repeated(ingest)
    assert set(ended) == {"Landed", "Unknown landed", "Unknown not landed"}


@pytest.mark.full
def test_lost_answers_of_postgresql_lose_and_repeat_nothing(tmp_path: Path, postgres: int) -> None:
    """Goal: a networked catalog, where the driver repeats an update by itself and meets its own commit.

    Method: a proxy before the server loses the request or the answer; half the time the server is down then.
    """
    proxy = Proxy(postgres)
    settings = settings_of(tmp_path, f"postgresql://postgres@{HOST}:{proxy.port}/postgres")
    with small_jvm(settings.catalog) as jvm:
        ingest = Ingest(settings, jvm, seed=random.randrange(1_000_000))
        ended = ingest_through_faults(
            ingest,
            CASES,
            lambda loss: proxy.lose_next_commit(loss, stays_away=ingest.random.random() < 0.5),
            proxy.restore,
            proxy.deliver_late,
        )
        check_nothing_is_lost_or_repeated(ingest)
        open_catalog(settings.catalog).close()
    assert proxy.losses == CASES
    assert set(ended) == {"Landed", "Unknown landed", "Unknown not landed"}
    proxy.close()


@pytest.mark.full
def test_a_commit_that_postgresql_never_answers_is_unknown(tmp_path: Path, postgres: int) -> None:
    """Goal: a connection that the network forgot does not hold ingest for ever.

    Method: with a bound of a second, where the default is a minute.
    """
    proxy = Proxy(postgres)
    settings_of(tmp_path, f"postgresql://postgres@{HOST}:{proxy.port}/template1")
    config = tmp_path / "thermocline.toml"
    text = config.read_text()
    config.write_text(text.replace('"jdbc.prep', '"jdbc.socketTimeout" = "1", "jdbc.prep'))
    settings = load_settings(config)
    with small_jvm(settings.catalog) as jvm:
        ingest = Ingest(settings, jvm, seed=1)
        change, _ = ingest.batch()
        proxy.fall_silent_at_next_commit()
        outcome = ingest.owned.committer.commit(*ingest.planned, change)
        assert isinstance(outcome, Unknown)
        proxy.restore()
        (settled,) = ingest.take_over().settled
        assert settled.verdict == Resolution.NOT_LANDED
        open_catalog(settings.catalog).close()
    proxy.close()

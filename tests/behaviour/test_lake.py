"""The story of every read path, on a REST catalog whose tables are in an S3 store."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.behaviour.read_paths import READ_PATHS
from tests.behaviour.test_every_read_path import (
    MOMENTS,
    PARTITIONS,
    Answers,
    check_rows,
    tell,
    wait_for_server,
)
from thermocline.cli import entry
from thermocline.client import Client
from thermocline.dev.rest_catalog import LocalRestCatalog
from thermocline.dev.s3 import LocalS3
from thermocline.dev.stack import TABLE, Stack
from thermocline.iceberg.catalog import load_table, open_catalog
from thermocline.ingest.owner.owner import Owner

pytestmark = pytest.mark.full
JOBS = "s3://lake/extracts"


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalRestCatalog]:
    folder = tmp_path_factory.mktemp("lake")
    with LocalS3(folder / "s3") as store, LocalRestCatalog(folder / "rest", store) as running:
        yield running


@pytest.fixture(scope="module")
def stack(new_stack: Callable[..., Stack], catalog: LocalRestCatalog) -> Stack:
    return new_stack("lake", partitions=PARTITIONS, rest=catalog, has_live_catalog=True)


@pytest.fixture(scope="module")
def owner(stack: Stack, new_owner: Callable[[Stack], Owner]) -> Owner:
    return new_owner(stack)


@pytest.fixture(scope="module")
def answers(stack: Stack, owner: Owner) -> Answers:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("THERMOCLINE_SERVING__EXTRACT_JOBS_DIR", str(stack.folder / "jobs"))
        environment.setenv("THERMOCLINE_SERVING__EXTRACT_JOBS_STORE", JOBS)
        server = stack.serve()
    stack.wait_until_ready(server)
    return tell(stack, owner, READ_PATHS, lambda: wait_for_server(stack, owner))


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("read_path", READ_PATHS)
def test_a_read_path_gives_the_rows_as_of_now(answers: Answers, read_path: str, moment: str) -> None:
    check_rows(answers, read_path, moment)


def test_the_table_is_in_the_store(answers: Answers, stack: Stack) -> None:
    table = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}")
    assert table.location().startswith("s3://")
    files = table.inspect.files()["file_path"].to_pylist()
    assert files
    assert all(path.startswith("s3://") for path in files)


def test_a_job_puts_into_the_store_what_an_extract_gives(
    answers: Answers, stack: Stack, tmp_path: Path
) -> None:
    with Client(stack.url) as client:
        client.start_extract(TABLE, job_id="one")
        job = client.await_extract(TABLE, "one")
        assert job.location is not None
        assert job.location.startswith(f"{JOBS}/{TABLE}/one-")
        downloads = client.download_extract(job, tmp_path)
        rows = client.extract(TABLE).to_arrow()
    io = load_table(open_catalog(stack.settings.catalog), TABLE, f"app.{TABLE}").io
    stored = [io.new_input(f"{job.location}/{file.name}").open().read() for file in job.files]
    assert stored == [path.read_bytes() for path in downloads]
    found = pa.concat_tables([pq.read_table(pa.BufferReader(content)) for content in stored])
    order = [(name, "ascending") for name in ("app_id", "user_id", "key")]
    assert found.sort_by(order).to_pylist() == rows.sort_by(order).to_pylist()
    assert found.num_rows


def test_verify_finds_no_difference(answers: Answers, stack: Stack) -> None:
    assert entry.run(["--config", str(stack.config_path), "verify", TABLE]) == 0

from __future__ import annotations

import errno
import hashlib
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

from thermocline.dev.s3 import LocalS3
from thermocline.errors import StorageFailed
from thermocline.serving.hot.disk import try_lock
from thermocline.serving.hot.leases import LEASES
from thermocline.serving.http.app import create_app
from thermocline.serving.jobs.job import Job, JobFile, JobRequest, State
from thermocline.serving.jobs.runner import AGAIN_SECONDS, JobRunner, stores
from thermocline.serving.jobs.store import JobStore
from thermocline.serving.read.extract import Extract
from thermocline.serving.read.tables import ServedTable, Tables
from thermocline.serving.store.layout import HOT
from thermocline.settings import ServingSettings

JOBS = "/v1/tables/profiles/extracts"
RETENTION_MS = 3_600_000
IN_A_STORE = pytest.param("store", marks=pytest.mark.jvm)
IN_BOTH_PLACES = pytest.mark.parametrize("served", ["folder", IN_A_STORE], indirect=True)


class Store(LocalS3):
    """An S3 store, and the jobs' files in it."""

    def names(self) -> set[str]:
        """The names of the files."""
        return {path.name for path in self._extracts.rglob("*") if path.is_file()}

    def clear(self) -> None:
        """Deletes them."""
        shutil.rmtree(self._extracts, ignore_errors=True)

    @contextmanager
    def down(self) -> Iterator[None]:
        """The store does not answer meanwhile."""
        self.stop()
        yield
        self.start()
        self.wait()

    @property
    def _extracts(self) -> Path:
        return self.folder / "data" / self.bucket / "extracts"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    with Store(tmp_path_factory.mktemp("s3")) as running:
        yield running


@pytest.fixture
def served(
    new_world: Callable[..., Any],
    client_of: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[SimpleNamespace]:
    """A server without processes: its world, a client, and its runner, whose steps the tests take.

    Its jobs' files are in their folder, or in a store.
    """
    store: Store | None = None
    if getattr(request, "param", "folder") == "store":
        store = request.getfixturevalue("store")
        store.clear()
    world = new_world()
    for user in range(40):
        world.produce({"app_id": 7, "user_id": f"u{user}", "key": "plan"}, {"value": "cold"})
    world.commit()
    world.publish()
    world.produce({"app_id": 7, "user_id": "u1", "key": "plan"}, None)
    world.produce({"app_id": 7, "user_id": "u2", "key": "plan"}, {"value": "hot"}, partition=1)
    world.tail()
    (world.folder / "tailer.json").write_bytes(b'{"caught_up_to_start_ends": true}')

    def seal(seconds: float) -> None:
        world.clock.advance(seconds + 1)
        world.tier.tend(None)

    monkeypatch.setattr(world.clock, "sleep", seal)
    table = ServedTable(world.definition, world.folder, world.published, world.clock, 5.0)
    settings = ServingSettings(
        state_dir=world.folder,
        extract_jobs_dir=world.folder / "jobs",
        extract_jobs_store=store.location("extracts/") if store else None,
        extracts_waiting_max=2,
    )
    tables = Tables([table])
    table.refresh()
    stop = threading.Event()
    io = PyArrowFileIO(store.properties if store else {})

    def job_store(folder: str = "jobs") -> JobStore:
        of_folder = settings.model_copy(update={"extract_jobs_dir": world.folder / folder})
        return stores(of_folder, ["profiles"], world.clock, io)["profiles"]

    def new_runner(folder: str = "jobs") -> JobRunner:
        return JobRunner(tables, {"profiles": job_store(folder)}, world.clock, RETENTION_MS, stop)

    with client_of(create_app(tables, settings, io)) as client:
        yield SimpleNamespace(
            world=world,
            client=client,
            table=table,
            job_store=job_store,
            new_runner=new_runner,
            settings=settings,
            stop=stop,
            io=io,
            store=store,
        )


class _DiedError(BaseException):
    """What no code catches, as a kill."""


def _files(served: SimpleNamespace, job: dict[str, Any]) -> list[bytes]:
    paths = [f"{JOBS}/{job['id']}/files/{file['name']}" for file in job["files"]]
    return [served.client.get(path).content for path in paths]


def _left(served: SimpleNamespace, job_id: str) -> set[str]:
    """The files of the job's folder, and all of the store."""
    found = {path.name for path in (served.world.folder / "jobs" / "profiles" / job_id).iterdir()}
    return found | (served.store.names() if served.store else set())


@IN_BOTH_PLACES
def test_the_files_of_a_job_are_the_extract_at_its_read_point(served: SimpleNamespace) -> None:
    """Records that come after the job began are in none of its files."""
    started = served.client.post(JOBS, json={"id": "one"})
    assert (started.status_code, started.json()["state"]) == (202, "queued")
    assert served.new_runner().step()
    whole = served.client.post("/v1/tables/profiles/extract", json={"columns": ["user_id", "value"]})
    served.world.produce({"app_id": 7, "user_id": "u3", "key": "plan"}, {"value": "later"})
    served.world.tail()

    job = served.client.get(f"{JOBS}/one").json()
    assert (job["state"], job["buckets_done"]) == ("complete", served.world.definition.buckets)
    contents = _files(served, job)
    tables = [pq.read_table(pa.BufferReader(content)) for content in contents]
    found = pa.concat_tables(tables).select(["user_id", "value"]).sort_by("user_id").to_pylist()
    expected = pa.ipc.open_stream(whole.content).read_all().sort_by("user_id").to_pylist()
    assert found == expected
    assert len(found) == 39
    assert [table.num_rows for table in tables] == [file["rows"] for file in job["files"]]
    assert [hashlib.sha256(content).hexdigest() for content in contents] == [
        file["sha256"] for file in job["files"]
    ]
    manifest = served.client.get(f"{JOBS}/one/files/manifest.json").json()
    assert manifest["read_point"] == job["read_point"]
    assert (manifest["files"], manifest["rows"]) == (job["files"], 39)
    if served.store:
        assert job["location"].startswith(f"{served.store.location('extracts')}/profiles/one-")
        assert _left(served, "one") == {"job.json", "manifest.json", *(one["name"] for one in job["files"])}
        inputs = [served.io.new_input(f"{job['location']}/{one['name']}") for one in job["files"]]
        assert [one.open().read() for one in inputs] == contents


def test_a_start_is_the_same_job_under_its_id_and_refused_for_another_extract(
    served: SimpleNamespace,
) -> None:
    first = served.client.post(JOBS, json={"id": "one", "columns": ["key"]}).json()
    assert served.client.post(JOBS, json={"id": "one", "columns": ["key"]}).json() == first
    assert len(served.client.get(JOBS).json()["extracts"]) == 1
    other = served.client.post(JOBS, json={"id": "one"})
    assert (other.status_code, other.json()["code"]) == (409, "extract-job-unusable")


@pytest.mark.parametrize(
    "body",
    [{"id": "../x"}, {"id": ".new-1"}, {"where": "nope = 1"}, {"format": "parquet", "compression": "gzip"}],
)
def test_a_wrong_job_is_refused(served: SimpleNamespace, body: dict[str, Any]) -> None:
    answer = served.client.post(JOBS, json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "bad-parameter")


def test_jobs_beyond_the_bound_are_refused(served: SimpleNamespace) -> None:
    answers = [served.client.post(JOBS, json={"id": f"job-{number}"}) for number in range(4)]
    assert [answer.status_code for answer in answers] == [202, 202, 202, 503]
    assert answers[-1].json()["code"] == "server-busy"
    assert answers[-1].headers["Retry-After"]


@IN_BOTH_PLACES
def test_a_file_goes_on_where_a_download_broke_off(served: SimpleNamespace) -> None:
    served.client.post(JOBS, json={"id": "one", "format": "jsonl", "compression": "zstd"})
    served.new_runner().step()
    file = served.client.get(f"{JOBS}/one").json()["files"][0]
    path = f"{JOBS}/one/files/{file['name']}"
    whole = served.client.get(path)
    headers = {"Range": "bytes=10-", "If-Range": whole.headers["ETag"]}
    rest = served.client.get(path, headers=headers)
    assert (rest.status_code, whole.content[:10] + rest.content) == (206, whole.content)
    assert rest.headers["Content-Range"] == f"bytes 10-{file['bytes'] - 1}/{file['bytes']}"
    another = served.client.get(path, headers={**headers, "If-Range": '"another"'})
    assert (another.status_code, another.content) == (200, whole.content)
    last = served.client.get(path, headers={"Range": f"bytes={file['bytes']}-"})
    assert (last.status_code, last.content) == (200, whole.content), "beyond the end there is nothing to give"


@pytest.mark.parametrize("wanted", ["bytes=", "bytes=9-2", "bytes=-0", "lines=1-", "bytes=x-", "bytes=0-,5-"])
@IN_BOTH_PLACES
def test_a_range_that_is_none_gets_the_whole_file(served: SimpleNamespace, wanted: str) -> None:
    served.client.post(JOBS, json={"id": "one"})
    served.new_runner().step()
    job = served.client.get(f"{JOBS}/one").json()
    path = f"{JOBS}/one/files/{job['files'][0]['name']}"
    answer = served.client.get(path, headers={"Range": wanted})
    assert (answer.status_code, len(answer.content)) == (200, job["files"][0]["bytes"])


@IN_BOTH_PLACES
def test_a_manifest_is_given_whole_since_a_part_of_it_is_no_json(served: SimpleNamespace) -> None:
    served.client.post(JOBS, json={"id": "one"})
    served.new_runner().step()
    answer = served.client.get(f"{JOBS}/one/files/manifest.json", headers={"Range": "bytes=5-9"})
    assert (answer.status_code, answer.json()["id"]) == (200, "one")


@IN_BOTH_PLACES
def test_a_cancelled_job_has_no_files(served: SimpleNamespace) -> None:
    served.client.post(JOBS, json={"id": "one"})
    served.client.post(JOBS, json={"id": "two"})
    served.new_runner().step()
    for job_id in ("one", "two"):
        assert served.client.delete(f"{JOBS}/{job_id}").status_code == 202
    assert not served.new_runner().step()
    for job_id in ("one", "two"):
        assert served.client.get(f"{JOBS}/{job_id}").json()["state"] == "cancelled"
        assert _left(served, job_id) == {"job.json", "cancel"}


def test_a_waiting_job_is_cancelled_while_another_one_runs(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for job_id in ("one", "two"):
        served.client.post(JOBS, json={"id": job_id})
    states: list[str] = []
    by_bucket = Extract.by_bucket

    def watched(extract: Extract) -> Iterator[Any]:
        for part in by_bucket(extract):
            served.client.delete(f"{JOBS}/two")
            yield part
            states.append(served.client.get(f"{JOBS}/two").json()["state"])

    monkeypatch.setattr(Extract, "by_bucket", watched)
    served.new_runner().step()
    assert "cancelled" in states
    assert served.client.get(f"{JOBS}/one").json()["state"] == "complete"


@IN_BOTH_PLACES
def test_a_job_is_made_again_after_a_stop(served: SimpleNamespace) -> None:
    served.client.post(JOBS, json={"id": "one"})
    served.stop.set()
    served.new_runner().step()
    assert served.client.get(f"{JOBS}/one").json()["state"] == "queued"
    assert _left(served, "one") == {"job.json"}
    served.stop.clear()
    served.new_runner().step()
    assert served.client.get(f"{JOBS}/one").json()["state"] == "complete"


@IN_BOTH_PLACES
@pytest.mark.parametrize(
    ("died_when", "state"),
    [
        (lambda job: job.files, "failed"),
        (lambda job: job.buckets_done == job.buckets, "failed"),
        (lambda job: job.state is State.COMPLETE, "complete"),  # the manifest is there
    ],
)
def test_a_job_of_a_dead_process_is_complete_with_a_manifest_or_failed_without_files(
    served: SimpleNamespace, died_when: Callable[[Job], bool], state: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies with a file, with all of them, and with the manifest."""
    served.client.post(JOBS, json={"id": "one"})
    save = JobStore.save

    def save_or_die(store: JobStore, job: Job) -> Job:
        if died_when(job):
            raise _DiedError
        return save(store, job)

    with monkeypatch.context() as patched:
        patched.setattr(JobStore, "save", save_or_die)
        with pytest.raises(_DiedError):
            served.new_runner().step()
    assert served.client.get(f"{JOBS}/one").json()["state"] == "running"

    assert not served.new_runner().step()
    job = served.client.get(f"{JOBS}/one").json()
    assert job["state"] == state
    if state == "failed":
        assert _left(served, "one") == {"job.json"}
        assert "the server ended" in job["problem"]
    else:
        assert [len(content) for content in _files(served, job)] == [file["bytes"] for file in job["files"]]
        assert job["files"]


def test_a_job_whose_manifest_names_another_place_fails(served: SimpleNamespace) -> None:
    """The manifest may come from a store that others can write to."""
    served.client.post(JOBS, json={"id": "one"})
    store = served.job_store()
    job = store.save(msgspec.structs.replace(store.get("one"), state=State.RUNNING))
    file = {"name": "../../profiles/one/job.json", "bucket": 0, "rows": 1, "bytes": 4, "sha256": ""}
    manifest: dict[str, Any] = {"id": "one", "table": "profiles", "read_point": {}, "columns": []}
    manifest |= {"format": "parquet", "compression": None, "rows": 1, "bytes": 4, "files": [file]}
    store.files(job).publish(msgspec.json.encode(manifest))
    store.recover()
    ended = store.get("one")
    assert (ended.state, ended.files) == (State.FAILED, ())
    assert "a file of a job has the name of no such file" in str(ended.problem)


def test_the_files_of_a_job_that_is_not_complete_are_not_given(served: SimpleNamespace) -> None:
    """A file is there, and may be half of one."""
    served.client.post(JOBS, json={"id": "one"})
    store = served.job_store()
    file = JobFile(name="bucket-00000.parquet", bucket=0, rows=1, bytes=4, sha256="")
    job = store.save(msgspec.structs.replace(store.get("one"), state=State.RUNNING, files=(file,)))
    with store.files(job).sink(file.name) as sink:
        sink.write(b"PAR1")
    answer = served.client.get(f"{JOBS}/one/files/{file.name}")
    assert (answer.status_code, answer.json()["code"]) == (404, "not-found")


def test_a_job_whose_record_can_not_be_saved_holds_nothing_of_the_table(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: it is tried again every moment, while the disk is full: no lease may be left each time."""
    served.client.post(JOBS, json={"id": "one"})
    leases = served.world.folder / HOT / LEASES
    before = sorted(leases.iterdir())

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(JobStore, "save", full)
        with pytest.raises(OSError, match="No space"):
            served.new_runner().step()
    assert sorted(leases.iterdir()) == before
    served.new_runner().step()
    assert served.client.get(f"{JOBS}/one").json()["state"] == "complete"


@IN_BOTH_PLACES
def test_jobs_go_when_their_retention_is_over(served: SimpleNamespace) -> None:
    served.client.post(JOBS, json={"id": "one"})
    runner = served.new_runner()
    runner.step()
    served.world.clock.advance(RETENTION_MS / 1000 - 1)
    runner.step()
    assert served.client.get(f"{JOBS}/one").status_code == 200
    served.world.clock.advance(2)
    runner.step()
    assert served.client.get(f"{JOBS}/one").json()["code"] == "not-found"
    assert not (served.world.folder / "jobs" / "profiles" / "one").exists()
    assert not served.store or not served.store.names()


@pytest.mark.parametrize("failures", [1, 2])
def test_a_job_that_can_not_read_the_table_is_made_again_once(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    """What a catalog granted of the store may have ended, which only a failure shows."""
    by_bucket = Extract.by_bucket

    def failing(extract: Extract) -> Iterator[Any]:
        nonlocal failures
        failures -= 1
        if failures >= 0:
            raise StorageFailed(table="profiles", detail="the token has expired")
        return by_bucket(extract)

    monkeypatch.setattr(Extract, "by_bucket", failing)
    ends_well = failures == 1
    served.client.post(JOBS, json={"id": "one"})
    runner = served.new_runner()
    assert runner.step()
    assert served.client.get(f"{JOBS}/one").json()["state"] == "queued"
    assert not runner.step()
    served.world.clock.advance(AGAIN_SECONDS)
    assert runner.step()
    assert served.client.get(f"{JOBS}/one").json()["state"] == ("complete" if ends_well else "failed")


@pytest.mark.parametrize("served", [IN_A_STORE], indirect=True)
def test_the_files_of_an_attempt_that_could_not_be_deleted_go_with_those_of_the_next(
    served: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Method: the store fails from the second bucket on, until the job is queued again."""
    by_bucket, is_down = Extract.by_bucket, ExitStack()

    def failing(extract: Extract) -> Iterator[Any]:
        buckets = by_bucket(extract)
        yield next(buckets)
        is_down.enter_context(served.store.down())
        raise StorageFailed(table="profiles", detail="it is down")

    served.client.post(JOBS, json={"id": "one"})
    runner = served.new_runner()
    with monkeypatch.context() as patched:
        patched.setattr(Extract, "by_bucket", failing)
        assert runner.step()
    is_down.close()
    assert served.client.get(f"{JOBS}/one").json()["state"] == "queued"
    of_first = served.store.names()
    assert of_first
    served.world.clock.advance(AGAIN_SECONDS)
    assert runner.step()
    job = served.client.get(f"{JOBS}/one").json()
    assert job["state"] == "complete"
    assert len(_files(served, job)) == len(job["files"])
    served.client.delete(f"{JOBS}/one")
    runner.step()
    assert not served.store.names()


@pytest.mark.parametrize("served", [IN_A_STORE], indirect=True)
def test_two_servers_with_one_store_keep_their_jobs_of_one_name_apart(served: SimpleNamespace) -> None:
    served.client.post(JOBS, json={"id": "one"})
    served.new_runner().step()
    job = served.client.get(f"{JOBS}/one").json()
    contents = _files(served, job)
    other = served.job_store("jobs of another server")
    other.create("one", JobRequest(columns=("key",)))
    runner = served.new_runner("jobs of another server")
    runner.step()
    assert other.get("one").state is State.COMPLETE
    other.cancel("one")
    runner.step()
    assert other.get("one").state is State.CANCELLED
    assert _files(served, job) == contents
    assert served.client.get(f"{JOBS}/one/files/manifest.json").status_code == 200


@pytest.mark.parametrize("served", [IN_A_STORE], indirect=True)
def test_a_store_that_is_down_fails_jobs_and_holds_up_none(served: SimpleNamespace) -> None:
    """A complete job is cancelled meanwhile, and its files are deleted once they can be."""
    served.client.post(JOBS, json={"id": "one"})
    served.new_runner().step()
    file = served.client.get(f"{JOBS}/one").json()["files"][0]["name"]
    with served.store.down():
        answer = served.client.get(f"{JOBS}/one/files/{file}")
        served.client.delete(f"{JOBS}/one")
        served.client.post(JOBS, json={"id": "two"})
        assert served.new_runner().step()
    assert (answer.status_code, answer.json()["code"]) == (503, "storage-failed")
    jobs = {job["id"]: job for job in served.client.get(JOBS).json()["extracts"]}
    assert (jobs["one"]["state"], jobs["two"]["state"]) == ("cancelled", "failed")
    assert jobs["two"]["problem"].startswith("[storage-failed]")
    assert file in served.store.names()

    served.world.clock.advance(RETENTION_MS / 1000 + 1)
    served.new_runner().step()
    assert served.client.get(JOBS).json()["extracts"] == []
    assert not served.store.names()


def test_extracts_beyond_the_bound_are_refused_while_others_wait(served: SimpleNamespace) -> None:
    """All places are held, as by other workers; then one is free again."""
    places = [
        try_lock(served.world.folder / f"extract-{kind}-{number}.lock")
        for kind, count in (("running", served.settings.extracts_max), ("waiting", 2))
        for number in range(count)
    ]
    answer = served.client.post("/v1/tables/profiles/extract")
    assert (answer.status_code, answer.json()["code"]) == (503, "server-busy")
    assert answer.headers["Retry-After"]
    for place in places:
        assert place is not None
        place.close()
    assert served.client.post("/v1/tables/profiles/extract").status_code == 200

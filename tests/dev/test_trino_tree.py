"""Unpacking a part of an archive whose files are hard links to those of other parts."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from thermocline.dev import trino_tree as module
from thermocline.dev.trino_tree import trino_tree, unpack
from thermocline.errors import DependencyMissing
from thermocline.jvm.java import JavaHome

KEPT = ("lib", "plugin/iceberg", "plugin/kafka")
JAVA = JavaHome(Path("nowhere"), 25, "a test")


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """`kafka` has nothing of its own: its files are links, one to a link, to what is not kept."""
    path = tmp_path / "server.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        put(tar, "lib/main.jar", b"main")
        put(tar, "plugin/bigquery/shared.jar", b"shared")
        link(tar, "plugin/delta/shared.jar", "plugin/bigquery/shared.jar")
        put(tar, "plugin/iceberg/own.jar", b"own")
        link(tar, "plugin/iceberg/shared.jar", "plugin/delta/shared.jar")
        link(tar, "plugin/kafka/shared.jar", "plugin/bigquery/shared.jar")
        put(tar, "plugin/kafka-event-listener/other.jar", b"other")
    return path


def put(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(f"trino-server-1/{name}")
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def link(tar: tarfile.TarFile, name: str, target: str) -> None:
    member = tarfile.TarInfo(f"trino-server-1/{name}")
    member.type, member.linkname = tarfile.LNKTYPE, f"trino-server-1/{target}"
    tar.addfile(member)


def files_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_links_are_kept_whole_whatever_folder_has_their_content(archive: Path, tmp_path: Path) -> None:
    unpack(archive, tmp_path / "tree", KEPT)
    assert files_of(tmp_path / "tree") == {
        "lib/main.jar": b"main",
        "plugin/iceberg/own.jar": b"own",
        "plugin/iceberg/shared.jar": b"shared",
        "plugin/kafka/shared.jar": b"shared",
    }


def test_what_is_one_file_there_takes_the_space_of_one_here(archive: Path, tmp_path: Path) -> None:
    unpack(archive, tmp_path / "tree", KEPT)
    assert (tmp_path / "tree/plugin/kafka/shared.jar").stat().st_nlink == 2


def test_a_tree_is_made_once_and_the_archive_is_not_kept(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched: list[Path] = []

    def jars_of(_group: str, **_: object) -> tuple[Path, ...]:
        folder = tmp_path / "jars"
        folder.mkdir()
        (folder / "driver.jar").write_bytes(b"driver")
        fetched.append(archive.rename(folder / archive.name))
        return fetched[-1], folder / "driver.jar"

    monkeypatch.setattr(module, "jars_of", jars_of)
    tree = trino_tree(java=JAVA, cache=tmp_path)
    assert files_of(tree)["plugin/iceberg/driver.jar"] == b"driver"
    assert trino_tree(java=JAVA, cache=tmp_path) == tree
    assert len(fetched) == 1
    assert not fetched[0].exists()


def test_an_unpacking_that_was_interrupted_is_begun_again(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tree that is half there would be a Trino that does not know why it fails."""
    driver = tmp_path / "fetched" / "driver.jar"
    driver.parent.mkdir()
    driver.write_bytes(b"driver")
    monkeypatch.setattr(module, "jars_of", lambda _group, **_: (archive, driver))

    def half(source: Path, target: Path) -> None:
        (target / "lib").mkdir(parents=True)
        (target / "lib" / "half.jar").write_bytes(b"h")
        raise DependencyMissing(what_is_missing="the rest", how_to_get="again")

    with monkeypatch.context() as broken:
        broken.setattr(module, "unpack", half)
        with pytest.raises(DependencyMissing):
            trino_tree(java=JAVA, cache=tmp_path)
    archive = archive.rename(driver.parent / archive.name)
    assert "lib/half.jar" not in files_of(trino_tree(java=JAVA, cache=tmp_path))

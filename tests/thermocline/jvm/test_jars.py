"""Fetching jars, with an Ivy that hands out prepared files instead of fetching."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import pytest

from thermocline.errors import DependencyMissing
from thermocline.jvm import jars
from thermocline.jvm.jars import Jar, jars_of, locked_jars
from thermocline.jvm.java import JavaHome

CONTENTS = {"one-1.0.jar": b"first", "two-2.0.jar": b"second"}


class Repository:
    """Stands in for a run of Ivy: gives the files it has to who asks for them, and notes what was asked."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        self.contents = contents
        self.asked: list[list[str]] = []

    def run_ivy(self, folder: Path, missing: list[Jar], java: list[str], report: jars.Report) -> None:
        self.asked.append([jar.file_name for jar in missing])
        (folder / "ivy.log").write_text("Server access error at url: connection refused\n")
        (folder / "arriving").mkdir()
        for jar in missing:
            if jar.file_name in self.contents:
                (folder / "arriving" / jar.file_name).write_bytes(self.contents[jar.file_name])


@pytest.fixture
def repository(monkeypatch: pytest.MonkeyPatch) -> Repository:
    lock = tuple(
        Jar("org.example", name.partition("-")[0], name[4:-4], hashlib.sha256(content).hexdigest())
        for name, content in CONTENTS.items()
    )
    repository = Repository(dict(CONTENTS))
    monkeypatch.setattr(jars, "locked_jars", lambda _: {"group": lock})
    monkeypatch.setattr(jars, "_run_ivy", repository.run_ivy)
    return repository


@pytest.fixture
def java(tmp_path: Path) -> JavaHome:
    return JavaHome(tmp_path, 17, "a test")


def test_jars_come_once_and_in_the_order_of_the_lock(
    repository: Repository, java: JavaHome, tmp_path: Path
) -> None:
    first = jars_of("group", java=java, cache=tmp_path)
    assert [path.read_bytes() for path in first] == list(CONTENTS.values())
    assert jars_of("group", java=java, cache=tmp_path) == first
    assert len(repository.asked) == 1


def test_a_jar_that_changed_on_disk_is_fetched_again_alone(
    repository: Repository, java: JavaHome, tmp_path: Path
) -> None:
    _, second = jars_of("group", java=java, cache=tmp_path)
    size, changed = second.stat().st_size, second.stat().st_mtime_ns
    second.write_bytes(b"x" * size)
    os.utime(second, ns=(changed + 1, changed + 1))
    jars_of("group", java=java, cache=tmp_path)
    assert repository.asked == [list(CONTENTS), ["two-2.0.jar"]]
    assert second.read_bytes() == b"second"


def test_a_jar_that_was_only_touched_is_not_fetched_again(
    repository: Repository, java: JavaHome, tmp_path: Path
) -> None:
    first, _ = jars_of("group", java=java, cache=tmp_path)
    first.touch()
    jars_of("group", java=java, cache=tmp_path)
    assert len(repository.asked) == 1


def test_another_content_than_locked_is_refused_and_named(
    repository: Repository, java: JavaHome, tmp_path: Path
) -> None:
    repository.contents["two-2.0.jar"] = b"something else"
    with pytest.raises(DependencyMissing) as caught:
        jars_of("group", java=java, cache=tmp_path)
    assert hashlib.sha256(b"something else").hexdigest() in caught.value.what
    assert not list(tmp_path.glob("jars/group-*/two-2.0.jar"))


def test_what_arrived_before_a_failure_is_kept(
    repository: Repository, java: JavaHome, tmp_path: Path
) -> None:
    del repository.contents["two-2.0.jar"]
    with pytest.raises(DependencyMissing, match="connection refused"):
        jars_of("group", java=java, cache=tmp_path)
    repository.contents.update(CONTENTS)
    repository.asked.clear()
    jars_of("group", java=java, cache=tmp_path)
    assert repository.asked == [["two-2.0.jar"]]


def test_a_cache_that_cannot_be_written_to_is_said_with_the_setting_for_another(
    repository: Repository, java: JavaHome, tmp_path: Path
) -> None:
    """As for a user without a home."""
    (tmp_path / "a file").touch()
    with pytest.raises(DependencyMissing, match="a file/jars") as caught:
        jars_of("group", java=java, cache=tmp_path / "a file")
    assert "THERMOCLINE_CACHE" in caught.value.next


def test_the_committed_lock_names_every_jar_once_with_a_whole_hash() -> None:
    groups = locked_jars()
    assert set(groups) == {*("kafka", "postgresql", "spark", "trino", "s3", "s3-server", "rest-server")}
    for group in groups.values():
        assert len({jar.file_name for jar in group}) == len(group)
        assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in group)


def test_the_list_for_ivy_asks_for_nothing_beyond_its_jars() -> None:
    listing = jars._listing([Jar("org.example", "one", "1.0", "")])
    assert listing.count("<dependency ") == listing.count('transitive="false"') == 1
    assert 'org="org.example" name="one" rev="1.0"' in listing
    assert '<artifact name="one" type="jar" ext="jar"/>' in listing


def test_what_is_no_jar_is_asked_for_and_named_by_its_kind() -> None:
    archive = Jar("org.example", "server", "476", "", "tar.gz")
    assert archive.file_name == "server-476.tar.gz"
    assert '<artifact name="server" type="tar.gz" ext="tar.gz"/>' in jars._listing([archive])
    (server, _) = locked_jars()["trino"]
    assert server.file_name == "trino-server-476.tar.gz"


def test_a_classifier_is_asked_for_and_stands_in_the_name() -> None:
    classes = Jar("org.example", "guice", "7.0", "", "jar", "classes")
    assert classes.file_name == "guice-7.0-classes.jar"
    assert 'ext="jar" m:classifier="classes"/>' in jars._listing([classes])


def test_a_kind_does_not_change_where_jars_have_been_kept() -> None:
    """Else every jar would be fetched once more."""
    assert repr(Jar("org.example", "one", "1.0", "a")) == (
        "Jar(organisation='org.example', name='one', revision='1.0', sha256='a')"
    )

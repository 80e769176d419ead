"""Fetching jars, with a program in place of Java and Ivy that hands out prepared files."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from pathlib import Path

import pytest

from thermocline.errors import DependencyMissing
from thermocline.jvm.jars import Jar, jars_of, locked_jars
from thermocline.jvm.java import JavaHome

CONTENTS = {"one-1.0.jar": b"first", "two-2.0.jar": b"second"}


IVY = """\
#!{python}
import sys
from pathlib import Path
from xml.etree import ElementTree

def option(name):
    return sys.argv[sys.argv.index(name) + 1]

here = Path({folder!r})
listing = Path(option("-ivy"))
with (here / "listings.txt").open("a") as asked:
    asked.write(listing.read_text().replace("\\n", " ") + "\\n")
print("Server access error at url: connection refused")
arriving = Path(option("-retrieve")).parent
arriving.mkdir()
for dependency in ElementTree.parse(listing).iter("dependency"):
    (artifact,) = dependency
    name = f"{{dependency.get('name')}}-{{dependency.get('rev')}}.{{artifact.get('ext')}}"
    if (here / "contents" / name).exists():
        (arriving / name).write_bytes((here / "contents" / name).read_bytes())
"""


class Repository:
    """A Java that plays Ivy: it gives the files that it has, and notes what it was asked for."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.java = JavaHome(folder, 17, "a test")
        self.java.executable.parent.mkdir(parents=True)
        self.java.executable.write_text(IVY.format(python=sys.executable, folder=str(folder)))
        self.java.executable.chmod(0o755)
        (folder / "contents").mkdir()
        for name, content in CONTENTS.items():
            self.put(name, content)
        sums = [hashlib.sha256(content).hexdigest() for content in CONTENTS.values()]
        self.lock = self.locked(**{"org.example:one:1.0": sums[0], "org.example:two:2.0": sums[1]})

    def put(self, name: str, content: bytes) -> None:
        (self.folder / "contents" / name).write_bytes(content)

    def remove(self, name: str) -> None:
        (self.folder / "contents" / name).unlink()

    def locked(self, **sums: str) -> Path:
        """A lock of one group: the SHA-256 by coordinates."""
        lock = self.folder / "jars.lock"
        lock.write_text("\n".join(["[group]", *(f'"{jar}" = "{sha256}"' for jar, sha256 in sums.items())]))
        return lock

    @property
    def listings(self) -> list[str]:
        """The lists that Ivy was given, run by run."""
        noted = self.folder / "listings.txt"
        return noted.read_text().splitlines() if noted.exists() else []

    @property
    def asked(self) -> list[list[str]]:
        """The names on each of them."""
        return [re.findall('<dependency org="org.example" name="(.*?)"', one) for one in self.listings]

    def jars(self, cache: Path) -> tuple[Path, ...]:
        return jars_of("group", java=self.java, cache=cache, lock=self.lock)

    def listing_of(self, coordinates: str, cache: Path) -> str:
        """What Ivy is asked for where one thing is missing, which it doesn't have either."""
        self.lock = self.locked(**{coordinates: "0" * 64})
        with pytest.raises(DependencyMissing):
            self.jars(cache)
        return self.listings[0]


@pytest.fixture
def repository(tmp_path_factory: pytest.TempPathFactory) -> Repository:
    return Repository(tmp_path_factory.mktemp("ivy"))


def test_jars_come_once_and_in_the_order_of_the_lock(repository: Repository, tmp_path: Path) -> None:
    first = repository.jars(tmp_path)
    assert [path.read_bytes() for path in first] == list(CONTENTS.values())
    assert repository.jars(tmp_path) == first
    assert len(repository.asked) == 1


def test_a_jar_that_changed_on_disk_is_fetched_again_alone(repository: Repository, tmp_path: Path) -> None:
    _, second = repository.jars(tmp_path)
    size, changed = second.stat().st_size, second.stat().st_mtime_ns
    second.write_bytes(b"x" * size)
    os.utime(second, ns=(changed + 1, changed + 1))
    repository.jars(tmp_path)
    assert repository.asked == [["one", "two"], ["two"]]
    assert second.read_bytes() == b"second"


def test_a_jar_that_was_only_touched_is_not_fetched_again(repository: Repository, tmp_path: Path) -> None:
    first, _ = repository.jars(tmp_path)
    first.touch()
    repository.jars(tmp_path)
    assert len(repository.asked) == 1


def test_another_content_than_locked_is_refused_and_named(repository: Repository, tmp_path: Path) -> None:
    repository.put("two-2.0.jar", b"something else")
    with pytest.raises(DependencyMissing) as caught:
        repository.jars(tmp_path)
    assert hashlib.sha256(b"something else").hexdigest() in caught.value.what
    assert not list(tmp_path.glob("jars/group-*/two-2.0.jar"))


def test_what_arrived_before_a_failure_is_kept(repository: Repository, tmp_path: Path) -> None:
    repository.remove("two-2.0.jar")
    with pytest.raises(DependencyMissing, match="connection refused"):
        repository.jars(tmp_path)
    attempts = len(repository.asked)
    repository.put("two-2.0.jar", CONTENTS["two-2.0.jar"])
    repository.jars(tmp_path)
    assert repository.asked[attempts:] == [["two"]]


def test_a_cache_that_cannot_be_written_to_is_said_with_the_setting_for_another(
    repository: Repository, tmp_path: Path
) -> None:
    """As for a user without a home."""
    (tmp_path / "a file").touch()
    with pytest.raises(DependencyMissing, match="a file/jars") as caught:
        repository.jars(tmp_path / "a file")
    assert "THERMOCLINE_CACHE" in caught.value.next


def test_the_committed_lock_names_every_jar_once_with_a_whole_hash() -> None:
    groups = locked_jars()
    assert set(groups) == {*("kafka", "postgresql", "spark", "trino", "s3", "s3-server", "rest-server")}
    for group in groups.values():
        assert len({jar.file_name for jar in group}) == len(group)
        assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in group)


def test_the_list_for_ivy_asks_for_nothing_beyond_its_jars(repository: Repository, tmp_path: Path) -> None:
    listing = repository.listing_of("org.example:one:1.0", tmp_path)
    assert listing.count("<dependency ") == listing.count('transitive="false"') == 1
    assert 'org="org.example" name="one" rev="1.0"' in listing
    assert '<artifact name="one" type="jar" ext="jar"/>' in listing


def test_what_is_no_jar_is_asked_for_and_named_by_its_kind(repository: Repository, tmp_path: Path) -> None:
    archive = Jar("org.example", "server", "476", "", "tar.gz")
    assert archive.file_name == "server-476.tar.gz"
    assert '<artifact name="server" type="tar.gz" ext="tar.gz"/>' in repository.listing_of(
        "org.example:server:476:tar.gz", tmp_path
    )
    (server, _) = locked_jars()["trino"]
    assert server.file_name == "trino-server-476.tar.gz"


def test_a_classifier_is_asked_for_and_stands_in_the_name(repository: Repository, tmp_path: Path) -> None:
    classes = Jar("org.example", "guice", "7.0", "", "jar", "classes")
    assert classes.file_name == "guice-7.0-classes.jar"
    assert 'ext="jar" m:classifier="classes"/>' in repository.listing_of(
        "org.example:guice:7.0:jar:classes", tmp_path
    )


def test_a_kind_does_not_change_where_jars_have_been_kept() -> None:
    """Else every jar would be fetched once more."""
    assert repr(Jar("org.example", "one", "1.0", "a")) == (
        "Jar(organisation='org.example', name='one', revision='1.0', sha256='a')"
    )

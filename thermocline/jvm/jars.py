"""Brings the jars that the JVM parts run on, exactly those of `jars.lock`, into the cache folder.

They are fetched by the Ivy that PySpark ships, run as a program on a flat list: nothing is resolved, so
nothing comes that the lock does not name. Every jar is compared with its SHA-256 before it is used.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import threading
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import quoteattr

from thermocline.errors import DependencyMissing
from thermocline.jvm.cache import alone_in, cache_folder
from thermocline.jvm.java import JavaHome, find_java
from thermocline.jvm.trust import write_trust_store

Report = Callable[[str], None]
"""Gets one line per step, for people."""

# A repository that hiccups recovers within one or two attempts; what was fetched is kept. Java's own list of
# certificate authorities comes first, the machine's in between: see `trust`.
_ATTEMPTS_TRUST_MACHINE = (False, True, False, True)
_FETCH_TIMEOUT_SECONDS = 3600.0  # the largest, 820 MB, over a line of 2 Mbit/s
_DIGEST_CHARACTERS = 12  # of a SHA-256: names a folder, proves nothing
_VERIFIED = "verified.json"
_LOCK = Path(__file__).with_name("jars.lock")


def in_silence(_line: str) -> None:
    """The report that nobody reads."""


@dataclass(frozen=True, slots=True)
class Jar:
    """One line of the lock: Maven coordinates and the SHA-256 of the file."""

    organisation: str
    name: str
    revision: str
    sha256: str
    # Not in the digest that names a folder of the cache.
    kind: str = field(default="jar", repr=False)
    classifier: str = field(default="", repr=False)

    @property
    def file_name(self) -> str:
        """As Ivy is told to name it."""
        classifier = f"-{self.classifier}" if self.classifier else ""
        return f"{self.name}-{self.revision}{classifier}.{self.kind}"


def jars_of(
    group: str,
    *,
    java: JavaHome | None = None,
    report: Report = in_silence,
    cache: Path | None = None,
    lock: Path = _LOCK,
) -> tuple[Path, ...]:
    """Gives the verified jars of a group of the lock (such as `kafka`), in the lock's order.

    A warm call reads one small file and compares the size and time of each jar; a jar that changed is hashed
    again, and fetched again where it differs. Safe in several processes at once, and after an interruption.

    Args:
        group: A section of the lock.
        java: Runs Ivy where something is missing; found when needed if not given.
        cache: Instead of the cache folder of this user.
        lock: Instead of `jars.lock`.

    Raises:
        DependencyMissing: a jar could not be fetched, or what was fetched is not what the lock names, or the
            cache folder can't be written to.
    """
    jars = locked_jars(lock)[group]
    folder = (cache or cache_folder()) / "jars" / f"{group}-{_digest_of(jars)}"
    if not _is_verified(folder, jars):
        with alone_in(folder):
            _complete(folder, group, jars, java, report)
    return tuple(folder / jar.file_name for jar in jars)


def locked_jars(lock: Path = _LOCK) -> dict[str, tuple[Jar, ...]]:
    """Gives a lock: its groups, each with its jars in the order of the file."""
    groups: dict[str, dict[str, str]] = tomllib.loads(lock.read_text())
    return {
        group: tuple(_jar_of(coordinates, sha256) for coordinates, sha256 in lines.items())
        for group, lines in groups.items()
    }


def _jar_of(coordinates: str, sha256: str) -> Jar:
    organisation, name, revision, *more = coordinates.split(":")
    return Jar(organisation, name, revision, sha256, *more)


def _digest_of(jars: tuple[Jar, ...]) -> str:
    return hashlib.sha256(repr(jars).encode()).hexdigest()[:_DIGEST_CHARACTERS]


def _is_verified(folder: Path, jars: tuple[Jar, ...]) -> bool:
    try:
        noted = json.loads((folder / _VERIFIED).read_text())
        return bool(noted == _identities(folder, jars))
    except (OSError, ValueError):
        return False


def _identities(folder: Path, jars: tuple[Jar, ...]) -> dict[str, list[int]]:
    """What tells, without reading a jar, that it is the one that was hashed: size and time of change."""
    stats = {jar.file_name: (folder / jar.file_name).stat() for jar in jars}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def _complete(folder: Path, group: str, jars: tuple[Jar, ...], java: JavaHome | None, report: Report) -> None:
    for trust_machine in _ATTEMPTS_TRUST_MACHINE:
        if not (missing := _missing(folder, jars)):
            break
        report(f"fetching {len(missing)} of {len(jars)} jars of group {group}")
        _fetch(folder, missing, java or find_java(), report, trust_machine=trust_machine)
    if missing := _missing(folder, jars):
        raise DependencyMissing(
            what_is_missing=f"{len(missing)} of {len(jars)} jars of group {group} ({_last_words(folder)})",
            how_to_get="let this machine reach Maven Central, then repeat the command (it goes on)",
        )
    shutil.rmtree(folder / "ivy", ignore_errors=True)
    note = folder / f"{_VERIFIED}.{os.getpid()}"
    note.write_text(json.dumps(_identities(folder, jars)))
    note.replace(folder / _VERIFIED)


def _missing(folder: Path, jars: tuple[Jar, ...]) -> list[Jar]:
    return [jar for jar in jars if _sha256_of(folder / jar.file_name) != jar.sha256]


def _last_words(folder: Path) -> str:
    """The first complaint of the last attempt, one that tells the cause where there is one."""
    log = folder / "ivy.log"
    text = log.read_text()
    complaint = re.search(r"Server access error.*|.*Exception.*", text) or re.search(r".*not found.*", text)
    said = complaint[0].strip() if complaint else "nothing"
    return f"Ivy said: {said}; all of it is in {log}"


def _fetch(folder: Path, missing: list[Jar], java: JavaHome, report: Report, *, trust_machine: bool) -> None:
    """One attempt at what is missing; what arrives is compared with the lock and moved into the folder."""
    arrivals = folder / "arriving"
    shutil.rmtree(arrivals, ignore_errors=True)
    (folder / "ivy").mkdir(exist_ok=True)
    store = folder / "ivy" / "authorities.jks"
    trust = [f"-Djavax.net.ssl.trustStore={store}"] if trust_machine and write_trust_store(store) else []
    _run_ivy(folder, missing, [str(java.executable), *trust], report)
    for jar in missing:
        arrived = arrivals / jar.file_name
        found = _sha256_of(arrived)
        if found == jar.sha256:
            arrived.replace(folder / jar.file_name)
        elif found is not None:
            shutil.rmtree(folder / "ivy")
            raise DependencyMissing(
                what_is_missing=f"{jar.file_name} with SHA-256 {jar.sha256} (what arrived has {found})",
                how_to_get="repeat it; if this persists, do not trust what answers for Maven Central here",
            )
    shutil.rmtree(arrivals, ignore_errors=True)


def _run_ivy(folder: Path, missing: list[Jar], java: list[str], report: Report) -> None:
    settings, listing = folder / "ivy" / "settings.xml", folder / "ivy" / "list.xml"
    settings.write_text(_SETTINGS)
    listing.write_text(_listing(missing))
    command = [
        *java,
        "-Xmx256m",
        f"-Divy.default.ivy.user.dir={folder / 'ivy' / 'user'}",
        "-cp",
        str(_ivy_jar()),
        "org.apache.ivy.Main",
        *("-settings", str(settings), "-cache", str(folder / "ivy" / "cache")),
        *("-ivy", str(listing), "-confs", "jars"),
        *("-retrieve", str(folder / "arriving" / "[artifact]-[revision](-[classifier]).[ext]")),
    ]
    with (
        (folder / "ivy.log").open("w") as log,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy,
    ):
        overdue = threading.Timer(_FETCH_TIMEOUT_SECONDS, ivy.kill)
        overdue.start()
        try:
            _follow(ivy, log.write, len(missing), report)
        finally:
            overdue.cancel()
            ivy.kill()


def _follow(ivy: subprocess.Popen[str], write: Callable[[str], object], wanted: int, report: Report) -> None:
    located = fetched = 0
    for line in ivy.stdout or ():
        write(line)
        if line.startswith("\tfound "):
            located += 1
            if located % 10 == 0:
                report(f"  {located}/{wanted} located")
        elif arrived := re.search(r"\[SUCCESSFUL \].*!(\S+)\.(?:jar|tar\.gz)", line):
            fetched += 1
            report(f"  {fetched}/{wanted} {arrived[1]}")


_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="central"/>
  <!-- Ivy's default repository. No POMs: they tell nothing beyond the lock, and take most of the time. -->
  <resolvers><ibiblio name="central" m2compatible="true" usepoms="false"/></resolvers>
</ivysettings>
"""


def _listing(jars: list[Jar]) -> str:
    """An Ivy file that asks for exactly these: a dependency that is not transitive brings nothing with it."""
    lines = "".join(
        f"<dependency org={quoteattr(jar.organisation)} name={quoteattr(jar.name)}"
        f' rev={quoteattr(jar.revision)} transitive="false" conf="jars->default">'
        f"<artifact name={quoteattr(jar.name)} {_form(jar)}/></dependency>\n"
        for jar in jars
    )
    return (
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">\n'
        '<info organisation="thermocline" module="jars"/>\n'
        '<configurations><conf name="jars"/></configurations>\n'
        f"<dependencies>\n{lines}</dependencies></ivy-module>\n"
    )


def _form(jar: Jar) -> str:
    classifier = f" m:classifier={quoteattr(jar.classifier)}" if jar.classifier else ""
    return f"type={quoteattr(jar.kind)} ext={quoteattr(jar.kind)}{classifier}"


def _ivy_jar() -> Path:
    pyspark = importlib.util.find_spec("pyspark")
    found = (
        sorted((Path(pyspark.origin).parent / "jars").glob("ivy-*.jar")) if pyspark and pyspark.origin else []
    )
    if not found:
        raise DependencyMissing.of_extra("PySpark, whose Ivy fetches the jars", "ingest")
    return found[-1]


def _sha256_of(path: Path) -> str | None:
    """None where there is no such file."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None

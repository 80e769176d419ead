"""``thermocline version``: what is installed."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as version_of

import thermocline
from thermocline.cli.output import show, table
from thermocline.cli.session import AsJson

# Whose versions decide how a table is written or read.
PACKAGES = ("pyspark", "pyiceberg", "pyarrow", "confluent-kafka", "duckdb", "lmdb", "msgspec")


def version(as_json: AsJson = False) -> None:
    """Print the versions of Thermocline and its dependencies."""
    versions = {"thermocline": thermocline.__version__, "python": platform.python_version()}
    versions |= {package: _installed(package) for package in PACKAGES}
    show(versions, table(("", "version"), versions.items()), as_json)


def _installed(package: str) -> str:
    try:
        return version_of(package)
    except PackageNotFoundError:
        return "not installed"

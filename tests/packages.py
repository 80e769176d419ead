"""Packages of a user's own whose names are those of ours."""

from __future__ import annotations

from pathlib import Path

NAMES = (
    *("cli", "client", "dev", "doctor", "ingest", "maintenance"),
    *("serving", "tests", "utils", "verify", "views"),
)


def put_packages_of_our_names(folder: Path) -> None:
    """Puts them into a folder, as ones that can't be imported."""
    for name in NAMES:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f'raise SystemExit("{name} is a package of the user")\n')

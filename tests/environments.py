"""Python environments of tests that need other versions of packages than ours."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

from thermocline.jvm.cache import cache_folder, made_once

ROOT: Final = Path(__file__).parents[1]
_DIGEST_CHARACTERS: Final = 12


def python_with(lock: str) -> Path:
    """The Python of an environment with what a file of ``requirements`` locks; its own programs don't start.

    It is made once for each state of the file and each Python of ours, and stays in the cache folder.
    """
    locked = ROOT / "requirements" / lock
    ours = f"{sys.version} {sys.base_prefix}".encode()
    digest = hashlib.sha256(ours + locked.read_bytes()).hexdigest()[:_DIGEST_CHARACTERS]
    folder = cache_folder() / "environments" / f"{locked.stem}-{digest}"
    return made_once(folder, partial(_make, locked)) / "bin" / "python"


def _make(locked: Path, folder: Path) -> None:
    _run(sys.executable, "-m", "venv", str(folder))
    _run(str(folder / "bin" / "pip"), "install", "-q", "--require-hashes", "-r", str(locked))


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr

"""Writes the blocking client from the async one: ``thermocline_client/blocking.py`` from ``asynchronous.py``.

What the two do differently is in ``blocking_io.py`` and ``asynchronous_io.py``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).parent / "thermocline_client"
SOURCE: Final = PACKAGE / "asynchronous.py"
BLOCKING: Final = PACKAGE / "blocking.py"
HEAD: Final = "# Generated from asynchronous.py by client/generate.py (make format). Edit that file.\n"
# In code as in docstrings, which show how a client is called.
WORDS: Final = {
    r"async (?=def|for|with)": "",
    r"await ": "",
    r"AsyncClient\b": "BlockingClient",
    r"Async(?=Connection|Extract|Iterator)": "",
    r"asynchronous_io\b": "blocking_io",
    r"__a(?=enter__|exit__)": "__",
    r"a(?=close\b|read\b|iter_raw\b)": "",
}


def blocking() -> str:
    """Returns the module of the blocking client, formatted."""
    text = SOURCE.read_text()
    for word, other in WORDS.items():
        text = re.sub(rf"\b{word}", other, text)
    # Names are sorted differently without "Async", and a loop that isn't async may be shorter.
    fixed = _ruff("check", "--fix-only", "--unsafe-fixes", "--select", "I001,C416", text=HEAD + text)
    return _ruff("format", text=fixed)


def _ruff(*arguments: str, text: str) -> str:
    command = [sys.executable, "-m", "ruff", *arguments, "--quiet", "--stdin-filename", str(BLOCKING), "-"]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    BLOCKING.write_text(blocking())

"""Keeps passwords out of whatever is shown: errors, logs and listings.

It catches the two forms in which a secret stands inside a text: the user part of a URL, and a ``name=value``
whose name says that it is a secret.
"""

from __future__ import annotations

import re
from typing import Final

MASK: Final = "****"

_IN_URL: Final = re.compile(r"(?<=://)([^\s/:]*):[^\s/]+(?=@)")
_NAMES: Final = r"password|passwd|pwd|secret|token|credential|api[-_.]?key|private[-_.]?key|access[-_.]?key"
_IN_PAIR: Final = re.compile(rf"(?i)([\w.-]*(?:{_NAMES})[\w.-]*\s*[=:]\s*)(\"[^\"]*\"|'[^']*'|[^\s&;,]+)")


def mask_password(text: str) -> str:
    """The text with each password in it replaced by asterisks."""
    return _IN_PAIR.sub(rf"\1{MASK}", _IN_URL.sub(rf"\1:{MASK}", text))

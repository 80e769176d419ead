"""Java properties with secrets apart: a file names the variable that holds a secret, never the secret."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

_LINE_ENDS: Final = {"\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


@dataclass(slots=True)
class Translation:
    """Some of our settings in another program's words; filled in while they are translated.

    Attributes:
        plain: What stands in the file, by the other program's names.
        secrets: What the file only refers to, by the variable that is to hold it.
        left_out: Names of ours that have no counterpart, each with a reason.
    """

    plain: dict[str, str] = field(default_factory=dict)
    secrets: dict[str, str] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"Translation(plain={self.plain}, secrets={list(self.secrets)}, left_out={self.left_out})"


def variable_of(catalog: str, name: str) -> str:
    """Gives the environment variable for a secret of a catalog, such as ``TRINO_LAKE_S3_AWS_SECRET_KEY``."""
    return re.sub(r"\W|_", "_", f"trino_{catalog}_{name}").upper()


def rendered(properties: Mapping[str, str], comment: str = "") -> str:
    """Gives the text of a properties file, in the order given."""
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    return head + "".join(f"{name}={_escaped(value)}\n" for name, value in properties.items())


def _escaped(value: str) -> str:
    text = "".join(_LINE_ENDS.get(sign, sign) for sign in value)
    text = "".join(sign if sign.isascii() else _utf16(sign) for sign in text)
    return f"\\{text}" if text.startswith(" ") else text


def _utf16(sign: str) -> str:
    units = sign.encode("utf-16-be").hex()
    return "".join(f"\\u{units[at : at + 4]}" for at in range(0, len(units), 4))

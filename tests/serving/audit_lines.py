"""A sink of the audit log that keeps its lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from thermocline.serving.access.audit_sink import Line


class AuditLines:
    """What was written, in order, each line as the JSON that it is."""

    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def write(self, lines: Sequence[Line]) -> None:
        """Keeps them."""
        self.lines += [json.loads(line.text) for line in lines]

    def close(self) -> None:
        """Does nothing."""

"""What a demo is asked to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ROWS_PER_USER: Final = 10


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """How much of everything; ``rate`` is messages a second, ``seconds`` how long they are written.

    The traffic lasts longer than ``seconds`` when the story needs that. Without ``users``, there is one for
    ten rows.
    """

    rows: int = 50_000
    rate: int = 2_000
    seconds: int = 60
    users: int | None = None
    seed: int = 1
    keep: bool = False
    as_json: bool = False

    @property
    def user_count(self) -> int:
        """Users in the table; no more than it has rows."""
        return min(self.users or max(self.rows // ROWS_PER_USER, 1), self.rows)

    @property
    def keys_per_user(self) -> int:
        """Rows of each user; rounded, so that the table has about as many rows as were asked for."""
        return max(round(self.rows / self.user_count), 1)

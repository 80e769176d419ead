"""Several live tables on one stack that one ``ingest run`` owns, as a user runs it: one configuration."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tests.behaviour.live import Live
from thermocline.dev.stack import Command, Stack

PATIENCE_SECONDS = 120.0


class Several:
    """Tables ``a``, ``b`` and so on, and one configuration that has them all."""

    def __init__(self, stack: Stack, names: Sequence[str], lease_seconds: float = 60.0) -> None:
        self.stack = stack
        self.tables = {name: Live(stack, name) for name in names}
        base = stack.config_path.read_text().partition("[tables.")[0]
        sections = [
            live.config_path.read_text().partition("[tables.")[2].replace("[tables.", "\n[tables.")
            for live in self.tables.values()
        ]
        config = base + "\n".join(f"[tables.{section}" for section in sections)
        config = config.replace("buckets = 2", "buckets = 2\ncommit_interval_seconds = 0.5")
        config = config.replace("lease_seconds = 60.0", f"lease_seconds = {lease_seconds}")
        self.config = stack.folder / "several.toml"
        self.config.write_text(config)
        self._commands = 0

    def command(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Command:
        """A command on all of them; it ends with the stack."""
        self._commands += 1
        log_name = f"several-{self._commands}"
        return self.stack.command(log_name, *arguments, environment=environment, config_path=self.config)

    def write(self, number: int) -> None:
        """A batch into each table."""
        for live in self.tables.values():
            live.write(range(number, number + 4), f"of batch {number}")

    def wait_until_committed(self, *names: str, by: Command) -> None:
        def is_so() -> bool:
            return all(
                live.rows() == {key: row["value"] for key, row in live.topic.oracle.rows().items()}
                for live in (self.tables[name] for name in names)
            )

        self.stack.wait_for(is_so, f"{names} are committed", by, timeout=PATIENCE_SECONDS)

    def wait_for(self, condition: Callable[[], bool], what: str, *watched: Command) -> None:
        self.stack.wait_for(condition, what, *watched, timeout=PATIENCE_SECONDS)


def said(command: Command, message: str) -> list[dict[str, Any]]:
    """The lines of a command's log with that message."""
    lines = (line for line in command.log_path.read_text().splitlines() if line.startswith("{"))
    found = []
    for line in lines:
        try:
            document = json.loads(line)
        except ValueError:  # it is being written
            continue
        if document.get("message") == message:
            found.append(document)
    return found

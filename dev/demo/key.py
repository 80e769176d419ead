"""The key by which the demo, and who stays to look around, asks the server."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from thermocline.cli.server_access import KEY, KEY_FILE
from thermocline.serving.access.clients_edit import Granted, add_key
from thermocline.serving.read.caller import Action


def key_in(folder: Path) -> str:
    """Makes a key that may do everything, in a file for this user alone, and a clients file with its hash."""
    granted = Granted("*", [action.value for action in Action], None, {})
    (folder / "clients.toml").unlink(missing_ok=True)  # of an earlier stack in this folder
    key = add_key(folder / "clients.toml", "operator", [granted], None, datetime.now(UTC))
    assert key is not None
    path = key_path(folder)
    path.unlink(missing_ok=True)
    path.touch(0o600)
    path.write_text(f"{key.text}\n")
    return key.text


def key_path(folder: Path) -> Path:
    """The file with the key."""
    return folder / "key"


@contextmanager
def asking_with(path: Path) -> Iterator[None]:
    """Commands, and `verify` within this process, ask the server with that key."""
    before = {name: os.environ.pop(name) for name in (KEY, KEY_FILE) if name in os.environ}
    os.environ[KEY_FILE] = str(path)
    try:
        yield
    finally:
        del os.environ[KEY_FILE]
        os.environ.update(before)

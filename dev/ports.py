"""Ports for servers of our own, the same ones after a restart on the same folder."""

from __future__ import annotations

import json
import random
import socket
from pathlib import Path

from thermocline.errors import PortTaken

HOST = "127.0.0.1"

_PORTS = range(15_000, 32_000)
"""Below the ports that Linux (32768 up) and macOS (49152 up) give to outgoing connections: a client that
reconnects while the server is down could be given that port, even be connected to itself, and keep it."""
_PORT_ATTEMPTS = 50


def ports_of(folder: Path, count: int) -> tuple[int, ...]:
    """Gives a folder's ports: those of before, else free ones, noted for the next start.

    Raises:
        PortTaken: none of many is free.
    """
    note = folder / "ports.json"
    if note.exists():
        return tuple(map(int, json.loads(note.read_text())))
    free = free_ports(count)
    note.write_text(json.dumps(free))
    return free


def free_ports(count: int, other_than: int | None = None) -> tuple[int, ...]:
    """Gives ports that are free now, none of them `other_than`.

    Raises:
        PortTaken: none of many is free.
    """
    # No seed: two processes that start together should not try the same ports.
    tried = random.sample(_PORTS, _PORT_ATTEMPTS)
    free = [port for port in tried if port != other_than and is_free(port)][:count]
    if len(free) < count:
        raise PortTaken(host=HOST, port=tried[0])
    return tuple(free)


def is_free(port: int) -> bool:
    """Whether a server of ours could listen there now."""
    with socket.socket() as probe:
        # As the servers do: connections that a former one left behind do not keep its port.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True

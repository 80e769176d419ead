"""Clients that ask a cluster questions, destroyed only where that is safe.

librdkafka ends the process when a client is destroyed in one of the client's own threads. Answers run Python
there, Python may collect garbage there, and the garbage may hold that client. So no client is garbage: one
that its owner leaves behind is kept until somebody asks for another, in a thread of the product.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from logging import Logger
from typing import Any

from confluent_kafka.admin import AdminClient

__all__ = ["admin_client", "destroy_left_behind"]

_left_behind: deque[AdminClient] = deque()


def admin_client(owner: object, config: Mapping[str, Any], logger: Logger | None = None) -> AdminClient:
    """A client for as long as its owner lives, which alone may keep it.

    A client that is gone before its answer comes never answers. Raises `KafkaException` for a configuration
    that librdkafka refuses.
    """
    destroy_left_behind()
    options = {} if logger is None else {"logger": logger}
    client = AdminClient(dict(config), **options)
    weakref.finalize(owner, _left_behind.append, client).atexit = False  # safety: client-not-garbage
    return client


def destroy_left_behind() -> None:
    """Ends the clients whose owners are gone; for who asks for no other soon."""
    with suppress(IndexError):
        while True:
            _left_behind.popleft()

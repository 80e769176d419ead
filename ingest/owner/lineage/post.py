"""The request that takes an event to whoever collects lineage."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Final

from thermocline.process.masking import mask_password

if TYPE_CHECKING:
    import httpx

    from thermocline.settings import LineageSettings

__all__ = ["EventNotTaken", "EventRefused", "Post"]

ANSWER_BYTES_MAX: Final = 500
"""So much of an answer is read, to say why an event was not taken; nothing in it is needed otherwise."""
# Statuses that are about the event, so that sending it again would end in the same way.
_REFUSED: Final = (400, 413, 415, 422)
_DONE: Final = range(200, 300)


class EventNotTaken(Exception):
    """The server answered, and did not take the event: it may take it later."""


class EventRefused(Exception):
    """The server will never take that event."""


class Post:
    """Posts events, one after the other. The client is made with the first one."""

    def __init__(self, settings: LineageSettings) -> None:
        self._settings = settings
        self._client: httpx.Client | None = None

    def __call__(self, body: bytes) -> None:
        """Returns once the server has taken an event.

        Raises:
            EventRefused: it says that there is something wrong with the event.
            EventNotTaken: it says anything else but that it has taken it.
            Exception: it gives no answer in time, or can't be reached.
        """
        if self._client is None:
            self._client = self._made()
        with self._client.stream("POST", self._settings.url, content=body) as response:
            if response.status_code in _DONE:
                return
            said = f"{self._settings.url} answered {response.status_code}{_start_of(response)}"
        detail = mask_password(said)  # the address may have a key in its query, and the answer quote it
        refused = response.status_code in _REFUSED  # safety: lineage-refused-is-not-repeated
        raise EventRefused(detail) if refused else EventNotTaken(detail)

    def close(self) -> None:
        """Ends a request that still runs, too."""
        if self._client is not None:
            self._client.close()

    def _made(self) -> httpx.Client:
        import httpx  # noqa: PLC0415  (most processes send no lineage, and it takes long to load)

        settings, headers = self._settings, {"Content-Type": "application/json"}
        if settings.key is not None:
            headers["Authorization"] = f"Bearer {settings.key.get_secret_value()}"
        ca_file = settings.ca_file
        verified = True if ca_file is None else ssl.create_default_context(cafile=ca_file)
        return httpx.Client(verify=verified, timeout=settings.timeout_seconds, headers=headers)


def _start_of(response: httpx.Response) -> str:
    """The first words of an answer, after a colon; empty where it has none."""
    read = b""
    for part in response.iter_bytes():
        read += part
        if len(read) >= ANSWER_BYTES_MAX:
            break
    text = " ".join(read[:ANSWER_BYTES_MAX].decode("utf-8", "replace").split())
    return f": {text}" if text else ""

"""An issuer's keys as a server holds them: read again in a thread of their own, and kept while that fails.

Whoever verifies a token reads ``keys`` and waits for nothing. Another set takes their place whole.
"""

from __future__ import annotations

import logging
import random
import ssl
import threading
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Final

import httpx

from thermocline.errors import first_line
from thermocline.process.logs import fields
from thermocline.process.masking import mask_password
from thermocline.serving.access.discovery import keys_url_in
from thermocline.serving.access.jwks import KeySet, KeysUnusable, read_keys
from thermocline.serving.access.keys_url import configuration_url
from thermocline.serving.hot.file_version import file_version

if TYPE_CHECKING:
    from pathlib import Path

    from thermocline.process.clock import Clock
    from thermocline.serving.access.issuer import Issuer

__all__ = ["Fetch", "HttpFetch", "IssuerKeys"]

SET_BYTES_MAX: Final = 1 << 20
"""Of keys with chains of certificates beside them, a hundred fit."""
STEP_SECONDS_MAX: Final = 5.0
"""To connect, and for each part of an answer."""
FETCH_SECONDS_MAX: Final = 15.0
"""Until all of its bodies are there, which may come in small parts."""
LOOK_SECONDS: Final = 1.0
"""A file that changed is read after so long; each look is one call of the system."""
JITTER: Final = 0.2
"""By this share a refresh comes early, so that workers and servers don't all ask at once."""
_OK: Final = 200
_DOUBLINGS_MAX: Final = 20  # beyond it every pause is refresh_seconds

Fetch = Callable[["Issuer"], bytes]
"""Gives an issuer's set from where its URL is; may take long. Raises `KeysUnusable`."""

log = logging.getLogger(__name__)


class HttpFetch:
    """Asks for sets over HTTP: bounded in time and size, and nowhere else than where it was told to."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def __call__(self, issuer: Issuer) -> bytes:
        """See `Fetch`. The configuration is asked for each time, too: it may name another URL by then."""
        until = self._clock.monotonic() + FETCH_SECONDS_MAX
        if issuer.jwks_url is not None:
            return self._content(issuer.jwks_url, issuer, until)
        url = keys_url_in(self._content(configuration_url(issuer.issuer), issuer, until), issuer.issuer)
        try:
            return self._content(url, issuer, until)
        except KeysUnusable as error:
            raise KeysUnusable(f"{url}, which its configuration names: {error}") from error

    def _content(self, url: str, issuer: Issuer, until: float) -> bytes:
        try:
            return self._body(url, issuer, until)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, OSError) as error:
            raise KeysUnusable(mask_password(first_line(error))) from error

    def _body(self, url: str, issuer: Issuer, until: float) -> bytes:
        # Without compression, what comes is not larger than what was sent.
        headers = {"Accept": "application/jwk-set+json, application/json", "Accept-Encoding": "identity"}
        client = httpx.Client(
            verify=_trusted(issuer),
            timeout=STEP_SECONDS_MAX,
            headers=headers,
            follow_redirects=False,  # safety: jwks-no-redirect
            trust_env=url.startswith("https:"),  # no proxy is between this machine and itself
        )
        content = bytearray()
        with client, client.stream("GET", url) as response:
            if response.status_code != _OK:
                raise KeysUnusable(f"it answers {response.status_code}")
            for part in response.iter_raw():
                content += part
                if len(content) > SET_BYTES_MAX:  # safety: jwks-bounded
                    raise KeysUnusable(f"it answers more than {SET_BYTES_MAX:,} bytes")
                if self._clock.monotonic() > until:
                    raise KeysUnusable(f"its answer takes longer than {FETCH_SECONDS_MAX:g} s")
        return bytes(content)


class IssuerKeys:
    """The keys of one issuer that count now. ``name`` is what the configuration calls it."""

    def __init__(self, name: str, issuer: Issuer, clock: Clock, fetch: Fetch) -> None:
        self.name = name
        self.issuer = issuer
        self.keys = KeySet()
        self._clock = clock
        self._fetch = fetch
        self._next_at = self._floor_at = float("-inf")
        self._version: tuple[int, int] | None = None
        self._is_wanted = False
        self._asking_since: float | None = None
        self._failure: str | None = None
        self._failures = 0
        self._wake = threading.Event()
        self._is_closing = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Looks from now on, in a thread."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"keys of {self.name}", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Ends the thread, once it is not waiting for an answer. Returns at once."""
        self._is_closing.set()
        self._wake.set()

    def join(self, seconds: float) -> None:
        """Waits until the thread has ended, but no longer than that."""
        if self._thread is not None:
            self._thread.join(seconds)

    def want(self) -> None:
        """Have the keys read as soon as the floor allows. Returns at once."""
        if not self._is_wanted:
            self._is_wanted = True
            self._wake.set()

    def look(self) -> None:
        """Read the keys where that is due. What can't be read changes nothing, and is told in the log."""
        if not self._is_due():
            return
        self._is_wanted = False
        self._asking_since = self._clock.monotonic()
        try:
            found = read_keys(self._content(), self.issuer.algorithms)
        except KeysUnusable as error:
            self._note_failure(str(error))
        except Exception as error:  # noqa: BLE001  # whatever it is, the thread goes on with the keys it has
            self._note_failure(type(error).__name__)
        else:
            self._take(found)
        self._plan()
        self._asking_since = None

    def problem(self) -> str | None:
        """What is wrong, as a sentence for operators; None where nothing is."""
        keys, failure, since = self.keys, self._failure, self._asking_since
        if since is not None and self._clock.monotonic() - since > FETCH_SECONDS_MAX:
            failure = f"it has not answered for more than {FETCH_SECONDS_MAX:g} s"
        if failure is not None:
            so = "those read before count" if keys.keys else "no token of it is accepted"
            return f"its keys can't be read, and {so}: {failure}"
        if not keys.keys:
            return "its keys are not read yet"
        return "; ".join(keys.skipped) or None

    def _run(self) -> None:
        while not self._is_closing.is_set():
            self.look()
            self._wake.wait(LOOK_SECONDS)
            self._wake.clear()

    def _is_due(self) -> bool:
        path = self.issuer.jwks_file
        if path is not None:
            return self._failure is not None or _version_of(path) != self._version or not self.keys.keys
        now = self._clock.monotonic()
        return now >= self._floor_at and (self._is_wanted or now >= self._next_at)  # safety: jwks-floor

    def _content(self) -> bytes:
        path = self.issuer.jwks_file
        if path is None:
            return self._fetch(self.issuer)
        self._version = _version_of(path)
        try:
            with path.open("rb") as file:
                content = file.read(SET_BYTES_MAX + 1)
        except OSError as error:
            raise KeysUnusable(error.strerror or first_line(error)) from error
        if len(content) > SET_BYTES_MAX:
            raise KeysUnusable(f"it has more than {SET_BYTES_MAX:,} bytes")
        return content

    def _plan(self) -> None:
        """After a failure it is asked again soon; after several, as seldom as if it had answered."""
        issuer, now = self.issuer, self._clock.monotonic()
        pause = issuer.refresh_seconds
        if self._failures:
            pause = min(pause, issuer.floor_seconds * 2 ** min(self._failures - 1, _DOUBLINGS_MAX))
        self._floor_at = now + issuer.floor_seconds
        self._next_at = now + pause * random.uniform(1 - JITTER, 1)

    def _take(self, found: KeySet) -> None:
        before, was_failing = self.keys, self._failure is not None
        self.keys = found
        self._failure, self._failures = None, 0
        if was_failing or found.thumbprints != before.thumbprints:
            log.info("keys of an issuer read", extra=fields(issuer=self.name, keys=len(found.keys)))
        if found.skipped and found.skipped != before.skipped:
            extra = fields(issuer=self.name, detail="; ".join(found.skipped))
            log.warning("keys of an issuer are not used", extra=extra)

    def _note_failure(self, failure: str) -> None:
        if self._failure is None:
            extra = fields(issuer=self.name, at=self.issuer.from_where, detail=failure)
            log.error("keys of an issuer can't be read; those read before count", extra=extra)
        self._failure = failure
        self._failures += 1


@cache  # to read them takes longer than to ask
def _trusted_by_all() -> ssl.SSLContext:
    return httpx.create_ssl_context()


def _trusted(issuer: Issuer) -> ssl.SSLContext:
    """The certificates that its own is checked by."""
    if issuer.ca_file is None:
        return _trusted_by_all()
    try:
        return ssl.create_default_context(cafile=issuer.ca_file)
    except OSError as error:
        raise KeysUnusable(f"ca_file can't be read: {error.strerror or first_line(error)}") from error


def _version_of(path: Path) -> tuple[int, int] | None:
    try:
        return file_version(path)
    except OSError:
        return None

"""Admission: from what a connection brings to who that is, or a refusal. Each request is judged here."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from thermocline.errors import Unauthenticated
from thermocline.serving.access.clients import ANONYMOUS, Client, Clients, KeyEntry
from thermocline.serving.access.keys import ApiKey
from thermocline.serving.read.caller import Caller, Credentials

if TYPE_CHECKING:
    from thermocline.process.clock import Clock
    from thermocline.serving.access.clients_file import ClientsFile
    from thermocline.serving.access.issuer import Issuer
    from thermocline.serving.access.limits import RateLimits
    from thermocline.serving.access.tokens import TokenVerifier, Verified
    from thermocline.serving.read.caller import Grant

__all__ = ["Admission"]

LOOK_SECONDS: Final = 1.0
"""A key that was revoked in the file is refused after three of these; each look is one call of the system."""
CALLERS_KEPT_MAX: Final = 4_096
"""That were admitted and are known again by their header."""
HEADER_KEPT_MAX: Final = 8_192
"""Characters: a token with many claims has some thousands, and a key has 75."""
_BEARER, _BASIC = "bearer ", "basic "
log = logging.getLogger(__name__)
_NO_EXPIRY: Final = float("inf")


@dataclass(frozen=True, slots=True)
class _Known:
    """A client, with what it may do whoever of it asks."""

    name: str
    client: Client
    grants: Mapping[str, Grant]


@dataclass(frozen=True, slots=True)
class _Admitted:
    """``verified`` is the token by which they came, if it was one."""

    caller: Caller
    until_ms: float
    verified: Verified | None = None


class Admission:
    """Admits callers by a clients file. To be asked on one event loop."""

    def __init__(self, file: ClientsFile, clock: Clock, rates: RateLimits | None = None) -> None:
        """``rates`` slow down addresses from which credentials fail."""
        self._file = file
        self._clock = clock
        self._rates = rates
        self._tokens: TokenVerifier | None = None
        self._admitted: dict[str, _Admitted] = {}
        self._by_names: dict[tuple[str, ...], Caller] = {}
        self._take_up(file.clients)

    def __call__(self, credentials: Credentials) -> Caller:
        """Who asks. Returns at once.

        Raises:
            Unauthenticated: the credentials are none of a client.
            TooManyRequests: they are not looked at, since others from that address have failed.
        """
        known = self.recognised(credentials)
        if known is not None:
            return known
        if self._rates is not None:
            self._rates.check_failures(credentials.address)  # safety: failures-slowed
        try:
            return self._judged(credentials)
        except Unauthenticated as error:
            # Nobody's fault: the keys of an issuer are not there yet.
            is_failure = credentials.authorization is not None and not error.keys_awaited
            if self._rates is not None and is_failure:
                self._rates.failed(credentials.address)  # safety: failures-counted
            raise

    def recognised(self, credentials: Credentials) -> Caller | None:
        """Who asks, where that takes no more than a look: who was admitted before, or is anonymous."""
        if self._file.clients is not self._clients:  # safety: clients-taken-up
            self._take_up(self._file.clients)
        said = credentials.authorization
        if said is None:
            return self._by_names.get(credentials.certificates)
        admitted = self._admitted.get(said)
        if admitted is None or self._clock.now_ms() >= admitted.until_ms:  # safety: admitted-until
            return None
        return admitted.caller if self._is_recognised(said, admitted) else None

    def _is_recognised(self, said: str, admitted: _Admitted) -> bool:
        if admitted.verified is None:
            return True
        assert self._tokens is not None
        # It counts no more once its issuer has other keys.
        return self._tokens.recognised(_token_of(said)) is admitted.verified  # safety: token-recognised

    async def tend_forever(self) -> None:
        """Takes up changes of the file."""
        try:
            await self._look_forever()
        finally:
            self.close()

    def close(self) -> None:
        """Ends the threads that read the keys of issuers."""
        if self._tokens is not None:
            self._tokens.close()

    def told(self) -> str | None:
        """What is wrong with the file, or the keys of issuers, as a sentence for operators."""
        if self._file.problem is not None or self._tokens is None:
            return self._file.told()
        problems = "; ".join(f"{name}: {what}" for name, what in self._tokens.problems().items())
        return f"keys of issuers: {problems}" if problems else None

    async def _look_forever(self) -> None:
        while True:
            try:
                await asyncio.to_thread(self._file.look)
            except Exception:  # safety: clients-looked-at
                log.exception("clients file could not be looked at")
            await asyncio.sleep(LOOK_SECONDS)

    def _take_up(self, clients: Clients) -> None:
        known = [_Known(name, client, client.grants({})) for name, client in clients.clients.items()]
        self._known = known
        self._take_up_issuers(clients.issuers)
        self._keys = {key.id: (one, key) for one in known for key in one.client.keys}
        self._certificates = {name: one for one in known for name in one.client.certificates}
        # Who brings no Authorization, by the names in their certificate: who shows none is anonymous.
        by_names, self._by_names = self._by_names, {}
        for one in known:
            if one.name == ANONYMOUS:
                self._by_names[()] = Caller(one.name, one.grants, limits=one.client.limits)
        admitted, self._admitted = self._admitted, {}
        self._clients = clients
        self._admit_again(admitted, by_names)

    def _admit_again(self, admitted: Mapping[str, _Admitted], by_names: Iterable[tuple[str, ...]]) -> None:
        """Judge those who were let in before by the clients of now.

        Else whoever still has good credentials would have to wait where others' credentials fail.
        """
        for said, before in admitted.items():
            with suppress(Unauthenticated):
                if self._is_recognised(said, before):  # a signature is not verified again for it
                    self._judged(Credentials(said))  # safety: admitted-again
        for names in by_names:
            with suppress(Unauthenticated):
                self._of_certificate(names)

    def _take_up_issuers(self, issuers: Mapping[str, Issuer]) -> None:
        if self._tokens is not None:
            self._tokens.take_up(issuers)
        elif issuers:
            from thermocline.serving.access.tokens import TokenVerifier  # noqa: PLC0415  # slow, and most have none

            self._tokens = TokenVerifier(issuers, self._clock)
            self._tokens.start()

    def _judged(self, credentials: Credentials) -> Caller:
        said = credentials.authorization
        if said is None:
            return self._of_certificate(credentials.certificates)
        scheme = said[: len(_BEARER)].lower()
        if scheme == _BEARER:
            admitted = self._of_token(_token_of(said))
            if len(said) <= HEADER_KEPT_MAX:  # safety: admitted-bounded
                if len(self._admitted) >= CALLERS_KEPT_MAX:
                    self._admitted.clear()
                self._admitted[said] = admitted
            return admitted.caller
        if scheme[: len(_BASIC)] == _BASIC:
            return self._of_token(_password(said[len(_BASIC) :])).caller
        raise Unauthenticated(detail="the Authorization header is neither Bearer nor Basic")

    def _of_certificate(self, names: tuple[str, ...]) -> Caller:
        if not names:  # safety: anonymous-off
            raise Unauthenticated(detail="no credentials came with the request")
        for name in names:
            if name in self._certificates:
                one = self._certificates[name]
                caller = Caller(one.name, one.grants, name, one.client.limits)
                if len(self._by_names) < CALLERS_KEPT_MAX:
                    self._by_names[names] = caller
                return caller
        raise Unauthenticated(detail="the certificate is none of a client")

    def _of_token(self, token: str) -> _Admitted:
        key = ApiKey.parse(token)
        if key is not None:
            return self._of_key(key)
        if self._tokens is None:
            raise Unauthenticated(detail="it is no key of this server")
        verified = self._tokens.verify(token)
        for one in self._known:
            if one.client.takes(verified.issuer, verified.claims):
                name, grants = f"{one.name}/{verified.subject}", one.client.grants(verified.claims)
                caller = Caller(name, grants, verified.subject, one.client.limits)
                return _Admitted(caller, verified.expires_at_ms, verified)
        raise Unauthenticated(detail="the token is none of a client")

    def _of_key(self, key: ApiKey) -> _Admitted:
        found: tuple[_Known, KeyEntry] | None = self._keys.get(key.id)
        # One answer for all: whoever guesses is not told what is wrong with it.
        if found is None or not key.has_hash(found[1].sha256) or not found[1].counts_at(self._clock.now_ms()):
            raise Unauthenticated(detail="the key is not known, or has expired")
        one, entry = found
        until_ms = _NO_EXPIRY if entry.expires is None else entry.expires.timestamp() * 1000
        return _Admitted(Caller(one.name, one.grants, entry.id, one.client.limits), until_ms)


def _token_of(said: str) -> str:
    """What comes behind the scheme."""
    return said[len(_BEARER) :].strip()


def _password(encoded: str) -> str:
    try:
        user_and_password = base64.b64decode(encoded, validate=True).decode("ascii")
    except ValueError as error:
        raise Unauthenticated(detail="the Authorization header can't be read") from error
    return user_and_password.partition(":")[2]

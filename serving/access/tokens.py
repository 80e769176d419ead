"""Tokens: JSON Web Tokens that configured issuers signed, verified without waiting for anything.

A signature is checked before ``typ``, and before any claim but ``iss``, so that a forged token learns nothing
of the others. The key is one of the issuer's own set; what a token says of where its key is (jku, x5u, jwk)
is never looked at.

Source: RFC 7515 (signatures), RFC 7519 (claims), RFC 8725 (best current practice).
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from thermocline.bounded import Bounded
from thermocline.errors import ConfigInvalid, Unauthenticated
from thermocline.serving.access.issuer import Issuer, check_issuers
from thermocline.serving.access.issuer_keys import HttpFetch, IssuerKeys
from thermocline.serving.access.jwks import json_object

if TYPE_CHECKING:
    from thermocline.process.clock import Clock
    from thermocline.serving.access.issuer_keys import Fetch
    from thermocline.serving.access.jwks import Key

__all__ = ["Issuer", "TokenVerifier", "Verified"]

TOKEN_CHARACTERS_MAX: Final = 8_192
"""Longer ones are not read. Proxies and servers take headers of about that size at most."""
VERIFIED_BYTES_MAX: Final = 4 << 20
"""The length of all tokens together that are known again: some thousands, as most have 500 to 1,000."""
TIME_MAX: Final = 253_402_300_799
"""The end of the year 9999, in seconds. What is greater is in milliseconds, or a mistake."""
CLOSE_SECONDS_MAX: Final = 1.0
"""A thread that waits for an answer may end later, or with the process."""
_FORM: Final = re.compile(r"([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)\.([A-Za-z0-9_-]+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Verified:
    """A token that counts until ``expires_at_ms``, leeway included; ``issuer`` is its configured name."""

    issuer: str
    subject: str
    claims: Mapping[str, Any] = field(repr=False)
    expires_at_ms: int


@dataclass(frozen=True, slots=True)
class _Known:
    """A token that was verified, and the key that had signed it."""

    verified: Verified
    source: IssuerKeys
    thumbprint: str


@dataclass(frozen=True, slots=True)
class _Issuers:
    """The issuers that count, by their claim, with what was verified by them."""

    by_claim: Mapping[str, IssuerKeys]
    verified: Bounded[bytes, _Known] = field(default_factory=lambda: Bounded(VERIFIED_BYTES_MAX))


@dataclass(frozen=True, slots=True)
class _Token:
    """A token as it can be read, which proves nothing yet."""

    header: Mapping[str, Any]
    claims: Mapping[str, Any]
    signed: bytes
    signature: bytes


class TokenVerifier:
    """Verifies the tokens of some issuers, by their names in the configuration."""

    def __init__(self, issuers: Mapping[str, Issuer], clock: Clock, fetch: Fetch | None = None) -> None:
        """Raises `ConfigInvalid` where the issuers can't be together."""
        self._clock = clock
        self._fetch = fetch or HttpFetch(clock)
        self._is_started = False
        self._issuers = _Issuers({})
        self.take_up(issuers)

    def take_up(self, issuers: Mapping[str, Issuer]) -> None:
        """From now on these count, and no others. Those that are as before keep their keys. Returns at once.

        Raises `ConfigInvalid`; then nothing changes.
        """
        try:
            check_issuers(issuers)
        except ValueError as error:
            raise ConfigInvalid(of="of the issuers", problems=(str(error),)) from error
        before = {source.name: source for source in self._issuers.by_claim.values()}
        sources = {}
        for name, issuer in issuers.items():
            source = before.get(name)
            if source is None or source.issuer != issuer:  # safety: issuers-taken-up
                source = IssuerKeys(name, issuer, self._clock, self._fetch)
            sources[issuer.issuer] = source
        self._issuers = _Issuers(sources)
        for source in before.values():
            if source not in sources.values():
                source.stop()
        if self._is_started:
            self.start()

    def start(self) -> None:
        """Has the keys read from now on, by a thread for each issuer, so that none waits for another."""
        self._is_started = True
        for source in self._issuers.by_claim.values():
            source.start()

    def close(self) -> None:
        """Ends the threads."""
        sources = self._issuers.by_claim.values()
        for source in sources:
            source.stop()
        for source in sources:
            source.join(CLOSE_SECONDS_MAX)

    def look(self) -> None:
        """Reads the keys that are due, on the calling thread: for those who start no others."""
        for source in self._issuers.by_claim.values():
            source.look()

    def problems(self) -> Mapping[str, str]:
        """By the name of an issuer, a sentence on what is wrong with its keys."""
        told = {source.name: source.problem() for source in self._issuers.by_claim.values()}
        return {name: problem for name, problem in told.items() if problem is not None}

    def without_keys(self) -> tuple[str, ...]:
        """The names of issuers no token of which can be verified, since their keys were never read."""
        return tuple(one.name for one in self._issuers.by_claim.values() if not one.keys.keys)

    def recognised(self, token: str) -> Verified | None:
        """What a token says that was verified before and still counts, for no more than a look."""
        return self._kept(self._issuers, token) if len(token) <= TOKEN_CHARACTERS_MAX else None

    def verify(self, token: str) -> Verified:
        """What the token says, once all of it is checked. Returns at once. Raises `Unauthenticated`."""
        if len(token) > TOKEN_CHARACTERS_MAX:  # safety: token-bounded
            raise _refusal(f"the token is longer than {TOKEN_CHARACTERS_MAX:,} characters")
        issuers = self._issuers
        kept = self._kept(issuers, token)
        if kept is not None:
            return kept
        known = self._judged(issuers, token)
        issuers.verified.put(_digest(token), known, len(token))
        return known.verified

    def _kept(self, issuers: _Issuers, token: str) -> Verified | None:
        known = issuers.verified.get(_digest(token))
        if (
            known is None
            or known.thumbprint not in known.source.keys.thumbprints  # safety: token-key-revoked
            or self._clock.now_ms() >= known.verified.expires_at_ms  # safety: token-kept-expiry
        ):
            return None
        return known.verified

    def _judged(self, issuers: _Issuers, text: str) -> _Known:
        token = _read(text)
        said = token.claims.get("iss")
        source = issuers.by_claim.get(said) if isinstance(said, str) else None
        if source is None:
            raise _refusal("the token is not of a known issuer")
        key = _signer(source, token)
        if not source.issuer.takes_type(token.header.get("typ")):  # safety: token-type
            raise _refusal("the token is of a type (typ) that is not taken from its issuer")
        return _Known(_verified(source, token.claims, self._clock.now_ms()), source, key.thumbprint)


def _digest(token: str) -> bytes:
    """By which it is known again, so that no secret is kept."""
    return hashlib.sha256(token.encode(errors="replace")).digest()


def _read(text: str) -> _Token:
    """The parts of a token, each of which has one form only."""
    match = _FORM.fullmatch(text)
    if match is None:
        raise _refusal("the token can't be read")
    try:
        header, claims = (json_object(_bytes_of(part)) for part in match.groups()[:2])
        signature = _bytes_of(match[3])
    except (ValueError, RecursionError) as error:
        raise _refusal("the token can't be read") from error
    if "crit" in header:  # safety: token-crit
        raise _refusal("the token demands to be understood in a way that is not known here")
    return _Token(header, claims, f"{match[1]}.{match[2]}".encode(), signature)


def _bytes_of(part: str) -> bytes:
    """Raises `ValueError`, also for a text that is not the one of these bytes."""
    found = base64.urlsafe_b64decode(f"{part}{'=' * (-len(part) % 4)}")
    if base64.urlsafe_b64encode(found).rstrip(b"=") != part.encode():  # safety: token-one-form
        raise ValueError("bits are set that belong to no byte")
    return found


def _signer(source: IssuerKeys, token: _Token) -> Key:
    """The key that signed it."""
    algorithm, kid = token.header.get("alg"), token.header.get("kid")
    if algorithm not in source.issuer.algorithms:
        raise _refusal("the token is not signed by an algorithm that is configured for its issuer")
    if not isinstance(kid, str | None):
        raise _refusal("the token can't be read")
    keys = source.keys
    if not keys.keys:
        source.want()
        raise Unauthenticated(detail="the keys of the token's issuer are not there yet", keys_awaited=True)
    candidates = keys.of(kid, algorithm)
    for key in candidates:
        if key.has_signed(algorithm, token.signed, token.signature):  # safety: token-signature
            return key
    source.want()  # its issuer may sign with a new one
    raise _refusal(
        "the signature of the token is not valid" if candidates else "the key of the token is not known"
    )


def _verified(source: IssuerKeys, claims: Mapping[str, Any], now_ms: int) -> Verified:
    """The claims of a token whose signature is its issuer's."""
    issuer, subject, audience = source.issuer, claims.get("sub"), claims.get("aud")
    leeway_ms = issuer.leeway_seconds * 1000
    if not isinstance(subject, str) or not subject:
        raise _refusal("the token lacks the claim sub, or it is no text")
    named = audience if isinstance(audience, list) else [audience]
    if not any(one in named for one in issuer.audience):  # safety: token-audience
        raise _refusal("the token is for another audience")
    expires_at_ms = int(_time_ms(claims, "exp") + leeway_ms)
    if now_ms >= expires_at_ms:  # safety: token-expiry
        raise _refusal("the token has expired")
    for name in ("nbf", "iat"):
        if name in claims and now_ms < _time_ms(claims, name) - leeway_ms:  # safety: token-not-before
            raise _refusal("the token is not valid yet")
    return Verified(source.name, subject, MappingProxyType(dict(claims)), expires_at_ms)


def _time_ms(claims: Mapping[str, Any], name: str) -> float:
    seconds = claims.get(name)
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= TIME_MAX:
        raise _refusal(f"the token lacks the claim {name}, or it is no time in seconds")
    return seconds * 1000


def _refusal(detail: str) -> Unauthenticated:
    return Unauthenticated(detail=detail)

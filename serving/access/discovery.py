"""An issuer's own configuration, which names the URL of its keys.

Source: OpenID Connect Discovery 1.0, sections 3 and 4.3.
"""

from __future__ import annotations

from typing import Final

from thermocline.serving.access.jwks import KeysUnusable, json_object
from thermocline.serving.access.keys_url import check_keys_url, is_of_this_machine

__all__ = ["keys_url_in"]

_SHOWN_MAX: Final = 200
"""Characters of what an issuer says of itself, in a problem."""


def keys_url_in(content: bytes, issuer: str) -> str:
    """The URL that an issuer's configuration names for its keys. Raises `KeysUnusable`.

    A remote issuer can't have services of this machine asked, which may answer whoever is on it. A name that
    leads here, too, has to show a certificate.
    """
    try:
        found = json_object(content)
    except (ValueError, RecursionError) as error:
        raise KeysUnusable("its configuration is not a JSON object") from error
    said, url = found.get("issuer"), found.get("jwks_uri")
    if said != issuer:  # safety: discovery-of-issuer
        raise KeysUnusable(
            f"its configuration is that of {_shown(said)}: set issuer to its name, to the letter"
        )
    if not isinstance(url, str):
        raise KeysUnusable("its configuration has no jwks_uri: set jwks_url or jwks_file")
    try:
        check_keys_url(url)  # safety: discovery-https
    except ValueError as error:
        raise KeysUnusable(f"the jwks_uri of its configuration is not taken: {error}") from error
    if is_of_this_machine(url) and not is_of_this_machine(issuer):  # safety: discovery-not-here
        raise KeysUnusable("the jwks_uri of its configuration is of this machine, and the issuer is not")
    return url


def _shown(said: object) -> str:
    return repr(said)[:_SHOWN_MAX] if isinstance(said, str) else "nobody"

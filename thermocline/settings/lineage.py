"""The settings of lineage events."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, model_validator

from thermocline.settings.section import Section
from thermocline.settings.values import Seconds

__all__ = ["LineageSettings"]


class LineageSettings(Section):
    """Where events of OpenLineage are sent; nowhere without a ``url``, which is the whole address.

    ``namespace`` is that of the jobs. ``key`` is sent as a bearer token.
    """

    url: Annotated[str, Field(pattern=r"^(https?://[^/@\s?#]+(/[^\s#]*)?)?$")] = ""
    key: SecretStr | None = None
    ca_file: Path | None = None
    namespace: Annotated[str, Field(min_length=1)] = "thermocline"
    timeout_seconds: Seconds = 5.0

    @model_validator(mode="after")
    def _check_url(self) -> Self:
        if self.url and urlsplit(self.url).path in ("", "/"):
            at = f"{self.url.rstrip('/')}/api/v1/lineage"
            raise ValueError(f"lineage.url is the whole address that events are posted to, such as {at}")
        if self.key is not None and not self.url.startswith("https://"):  # safety: lineage-key-over-tls
            raise ValueError("a key is sent over https only: correct lineage.url, or leave it out")
        return self

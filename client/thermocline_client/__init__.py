"""Client for a Thermocline server, blocking and async. It needs httpx, and pyarrow for extracts.

    with Client("http://127.0.0.1:8080") as client:
        answer = client.lookup("profiles", app_id=7, user_id="ada")
        frame = client.extract("profiles", columns=["user_id", "value"]).to_polars()

It imports nothing else of Thermocline.

- ``answers`` has the values that clients return, ``jobs`` those of jobs, ``errors`` the exceptions.
- ``requests`` builds each request and judges its answer, with ``retries``; it sends nothing.
- ``asynchronous`` sends them; ``client/generate.py`` in a checkout writes ``blocking`` from it. What differs
  between the two is in ``asynchronous_io`` and ``blocking_io``.
- ``access`` says who asks, and which servers are trusted.
- ``streams`` decodes extracts. ``with_jobs`` adds jobs to the blocking client, and ``downloads`` fetches
  their files.
"""

from __future__ import annotations

from .answers import (
    Answer,
    Delivered,
    ReadPoint,
    Refused,
    RefusedRecord,
    UnlistedRange,
)
from .asynchronous import AsyncClient, AsyncExtract
from .blocking import Extract
from .errors import (
    AccessInvalid,
    BadParameter,
    ClientError,
    NotReady,
    Problem,
    ReadAfterTimeout,
    RowNotFound,
    StreamCut,
    TooManyRequests,
    UnknownTable,
    Unreachable,
    UnsafeName,
)
from .jobs import ExtractJob, JobFailed, JobFile
from .retries import Retries
from .streams import ExtractInfo
from .with_jobs import Client

__all__ = [
    "AccessInvalid",
    "Answer",
    "AsyncClient",
    "AsyncExtract",
    "BadParameter",
    "Client",
    "ClientError",
    "Delivered",
    "Extract",
    "ExtractInfo",
    "ExtractJob",
    "JobFailed",
    "JobFile",
    "NotReady",
    "Problem",
    "ReadAfterTimeout",
    "ReadPoint",
    "Refused",
    "RefusedRecord",
    "Retries",
    "RowNotFound",
    "StreamCut",
    "TooManyRequests",
    "UnknownTable",
    "UnlistedRange",
    "Unreachable",
    "UnsafeName",
]

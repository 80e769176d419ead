"""What the log says of keys that were met in several partitions."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest

from ingest.batch import BatchResult
from ingest.bucket_task import BucketResult
from ingest.owner import Owner
from tests.ingest.one_bucket import DEFINITION
from thermocline.rules.keys import encode_one
from thermocline.text.shown import as_field


def bucket(keys: int, example: bytes | None = None) -> BucketResult:
    return BucketResult(0, keys_in_several_partitions=keys, conflict_example=example)


def test_an_example_is_named_by_its_columns_and_not_by_its_bytes(caplog: pytest.LogCaptureFixture) -> None:
    owner: Any = SimpleNamespace(definition=DEFINITION, _name="profiles")
    example = encode_one(DEFINITION, [7, "ada", "plan"])
    with caplog.at_level(logging.WARNING):
        Owner._learn(owner, BatchResult((), (bucket(0), bucket(2, example), bucket(1, b"another"))))
    (record,) = caplog.records
    said = record.__dict__["fields"]
    assert (said["table"], said["keys"]) == ("profiles", 3)
    assert as_field(said["example"]) == '(app_id=7, user_id="ada", key="plan")'

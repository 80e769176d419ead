"""What the list of a snapshot's files shows by itself."""

from __future__ import annotations

import pytest

from thermocline.iceberg.files import ListedFile
from thermocline.verify.current_files import listing_findings

DATA = ListedFile("data.parquet", "data", bucket=0, rows=9, bytes=900, snapshot_id=1)
BOUND = ListedFile("one.puffin", "position-deletes", 0, 1, 90, 1, referenced=DATA.path)
UNBOUND = ListedFile("unbound.parquet", "position-deletes", 0, 1, 90, 1)
EQUALITY = ListedFile("equality.parquet", "equality-deletes", 0, 1, 90, 1)


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ([DATA, BOUND], []),
        ([DATA, BOUND, BOUND], [("two-deletes-for-a-file", DATA.path)]),
        ([DATA, UNBOUND], [("deletes-foreign", UNBOUND.path)]),
        ([DATA, EQUALITY], [("deletes-foreign", EQUALITY.path)]),
    ],
    ids=["ours", "two sets", "bound to no file", "by the values of columns"],
)
def test_deletes_that_nobody_of_us_writes_are_found(
    files: list[ListedFile], found: list[tuple[str, str]]
) -> None:
    findings = list(listing_findings(files, "snapshot 1"))
    assert [one.code for one in findings] == [code for code, _ in found]
    assert all(path in one.what for one, (_, path) in zip(findings, found, strict=True))

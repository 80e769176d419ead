from __future__ import annotations

import pickle

from pyiceberg.io import load_file_io

from thermocline.iceberg.catalog_properties import pyiceberg_properties
from thermocline.iceberg.shared_io import SharedFileIO
from thermocline.settings import CatalogSettings, PassThrough

LAKE = CatalogSettings(
    uri="sqlite:///c.db",
    warehouse="s3://lake",
    properties=PassThrough(
        {
            "s3.endpoint": "http://store:9000",
            "s3.region": "us-east-1",
            "s3.access-key-id": "k",
            "s3.secret-access-key": "s",
        }
    ),
)


def test_tables_with_the_same_credentials_share_a_client() -> None:
    ours = pyiceberg_properties(LAKE)
    one, two = (load_file_io({**ours, "thermocline.epoch": epoch}, "s3://lake/t") for epoch in "12")
    assert isinstance(one, SharedFileIO)
    assert isinstance(two, SharedFileIO)
    assert one.fs_by_scheme("s3", "lake") is two.fs_by_scheme("s3", "lake")
    assert one.fs_by_scheme("file", "") is not one.fs_by_scheme("s3", "lake")


def test_other_credentials_have_a_client_of_their_own() -> None:
    one = SharedFileIO(LAKE.properties)
    vended = SharedFileIO({**LAKE.properties, "s3.session-token": "of an hour"})
    assert one.fs_by_scheme("s3", "lake") is not vended.fs_by_scheme("s3", "lake")


def test_a_file_io_of_the_settings_is_taken_instead() -> None:
    name = "pyiceberg.io.pyarrow.PyArrowFileIO"
    lake = CatalogSettings(
        uri=LAKE.uri, warehouse=LAKE.warehouse, properties=PassThrough({"py-io-impl": name})
    )
    assert pyiceberg_properties(lake)["py-io-impl"] == name


def test_it_is_sent_to_another_process() -> None:
    sent = pickle.loads(pickle.dumps(SharedFileIO(LAKE.properties)))
    assert sent.fs_by_scheme("file", "").type_name == "local"

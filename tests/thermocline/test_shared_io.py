from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from pyarrow.fs import S3FileSystem
from pyiceberg.io import load_file_io

from tests.http_proxy import HttpProxy
from thermocline.dev.s3 import LocalS3
from thermocline.iceberg.catalog_properties import pyiceberg_properties
from thermocline.iceberg.files import new_file, read_file
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


@pytest.mark.jvm
def test_a_new_small_file_is_one_request_and_a_large_one_comes_whole(tmp_path: Path) -> None:
    with LocalS3(tmp_path / "s3") as store, HttpProxy(store.port) as proxy:
        io = SharedFileIO({**store.properties, "s3.endpoint": proxy.url})
        small, large = store.location("small"), store.location("large")
        with new_file(io, small) as sink:
            sink.write(b"some bytes")
        assert [one.request.method for one in proxy.exchanges] == ["PUT"]
        content = bytes(range(256)) * 40_000
        with new_file(io, large) as sink:
            sink.write(content)
        assert (read_file(io, small), read_file(io, large)) == (b"some bytes", content)


def test_a_client_has_what_the_settings_say() -> None:
    properties = {
        **LAKE.properties,
        "s3.session-token": "t",
        "s3.role-session-name": "ours",
        "s3.role-arn": "",
        "s3.connect-timeout": "3",
        "s3.force-virtual-addressing": "true",
    }
    client = SharedFileIO(properties).fs_by_scheme("s3", "lake")
    assert client == S3FileSystem(
        endpoint_override="http://store:9000",
        region="us-east-1",
        access_key="k",
        secret_key="s",
        session_token="t",
        session_name="ours",
        connect_timeout=3,
        force_virtual_addressing=True,
        allow_delayed_open=True,
    )

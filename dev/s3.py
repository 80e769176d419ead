"""A real S3 store of our own, for the demo and the tests: S3Proxy on a folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from thermocline.dev.java_server import JVM_FLAGS, JavaServer
from thermocline.dev.ports import HOST
from thermocline.jvm.jars import Report, in_silence, jars_of
from thermocline.jvm.java import find_java

ACCESS_KEY = "thermocline"
SECRET_KEY = "thermocline-secret"  # noqa: S105  # of a server on this machine, for tests
REGION = "us-east-1"


class LocalS3(JavaServer):
    """One store with one bucket; its objects are files below `folder`, and stay.

    with LocalS3(folder / "s3") as store:
        store.properties  # for the configuration's `[catalog] properties`
        store.location("warehouse")  # "s3://lake/warehouse"
    """

    def __init__(
        self,
        folder: Path,
        *,
        bucket: str = "lake",
        port: int | None = None,
        report: Report = in_silence,
    ) -> None:
        """Takes the folder, and makes the bucket; fetches the server if need be.

        Raises:
            DependencyMissing: no Java that fits, or a jar that could not be fetched.
        """
        super().__init__(folder, "the embedded S3 store", port)
        self._java = find_java()
        (self._jar,) = jars_of("s3-server", java=self._java, report=report)
        self.bucket = bucket
        (self.folder / "data" / bucket).mkdir(parents=True, exist_ok=True)

    @property
    def properties(self) -> dict[str, str]:
        """What the configuration's catalog says of the store, in our names."""
        return {
            "s3.endpoint": self.url,
            "s3.access-key-id": ACCESS_KEY,
            "s3.secret-access-key": SECRET_KEY,
            "s3.region": REGION,
        }

    @property
    def probe_path(self) -> str:
        """See `JavaServer`."""
        return "/"

    def location(self, path: str) -> str:
        """A place in the bucket."""
        return f"s3://{self.bucket}/{path}"

    def command(self) -> list[str]:
        """See `JavaServer`."""
        configuration = self.folder / "s3proxy.conf"
        configuration.write_text(
            _CONFIGURATION.format(
                url=f"http://{HOST}:{self.port}",
                access_key=ACCESS_KEY,
                secret_key=SECRET_KEY,
                data=self.folder / "data",
            )
        )
        return [
            str(self._java.executable),
            *JVM_FLAGS,
            *("-jar", str(self._jar), "--properties", str(configuration)),
        ]

    def environment(self) -> Mapping[str, str]:
        """See `JavaServer`."""
        return {**os.environ, "LOG_LEVEL": "warn"}


_CONFIGURATION = """\
s3proxy.endpoint={url}
s3proxy.authorization=aws-v2-or-v4
s3proxy.identity={access_key}
s3proxy.credential={secret_key}
jclouds.provider=filesystem-nio2
jclouds.filesystem.basedir={data}
jclouds.identity=local
jclouds.credential=local
"""

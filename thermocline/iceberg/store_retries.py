"""How often PyArrow asks an object store again that fails or is busy; PyIceberg loads it by its name."""

from __future__ import annotations

from pyarrow.fs import AwsStandardS3RetryStrategy

from thermocline.iceberg.catalog_properties import STORE_ATTEMPTS_MAX


class PatientRetries(AwsStandardS3RetryStrategy):  # type: ignore[misc]  # it publishes no types
    """The standard back-off, for longer: throttling (503 SlowDown) can last for minutes."""

    def __init__(self) -> None:
        super().__init__(max_attempts=STORE_ATTEMPTS_MAX)

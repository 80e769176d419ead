"""The partitioning that `table create` gives a table, for tests that make one without Java."""

from __future__ import annotations

from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.transforms import BucketTransform

from thermocline.rules.definition import BUCKET_FIELD, LiveTable


def partition_spec_of(definition: LiveTable) -> PartitionSpec:
    """One field: the bucket of the definition's bucket column."""
    transform: BucketTransform[int] = BucketTransform(definition.buckets)
    source_id = definition.bucket_column.field_id
    return PartitionSpec(PartitionField(source_id, PARTITION_FIELD_ID_START, transform, BUCKET_FIELD))

"""Put a table's manifests in order of buckets: files of some buckets in a row come into the same manifests.

Iceberg's ``RewriteManifests`` does it for manifests of data, and exchanges those of deletes for what it is
given. So these are read and written here, each entry by the very methods that Iceberg's rewrite calls for
data, which keep its snapshot and sequence numbers.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from thermocline.ingest.commit.content_files import Placing
from thermocline.ingest.commit.method_handles import Handles, class_of

if TYPE_CHECKING:
    from thermocline.ingest.commit.change import ManifestContent

__all__ = ["ManifestOrder"]


class ManifestOrder:
    """A rewrite of the manifests of a table, whose current metadata and ``TableOperations`` are given."""

    def __init__(self, jvm: Any, metadata: Any, operations: Any) -> None:
        self._jvm = jvm
        self._metadata, self._operations = metadata, operations
        self._handles = Handles(jvm)
        self._inside = Handles(jvm, inside=jvm.org.apache.iceberg.ManifestReader)

    def hand_over(self, update: Any, buckets_together: Mapping[ManifestContent, int]) -> None:
        """Tell a ``RewriteManifests`` what comes in place of what."""
        if (together := buckets_together.get("data")) is not None:
            function = self._jvm.java.util.function.Function
            update.clusterBy(self._handles.as_interface(function, self._group(together)))
        if (together := buckets_together.get("deletes")) is not None:
            self._exchange_deletes(update, together)

    def _exchange_deletes(self, update: Any, together: int) -> None:
        """Only those of our partition specs, whichever the table's own is: others list no file of ours."""
        for buckets, spec_id in Placing.of(self._jvm, self._metadata.specsById()).spec_ids.items():
            self._exchange_deletes_of(update, spec_id, -(-buckets // together), together)

    def _exchange_deletes_of(self, update: Any, spec_id: int, groups: int, together: int) -> None:
        listed = self._metadata.currentSnapshot().deleteManifests(self._operations.io())
        manifests = [manifest for manifest in listed if manifest.partitionSpecId() == spec_id]
        if not manifests:
            return
        writers = self._jvm.java.util.ArrayList()
        for _ in range(groups):
            writers.add(self._writer(spec_id))
        sort_in = self._sorted_into(writers, together)
        for manifest in manifests:
            self._read(manifest, sort_in)
            update.deleteManifest(manifest)
        for manifest in _finished(writers):
            if manifest.existingFilesCount():
                update.addManifest(manifest)
            else:
                self._operations.io().deleteFile(manifest.path())

    def _writer(self, spec_id: int) -> Any:
        path = self._operations.metadataFileLocation(f"{uuid.uuid4()}-m0.avro")
        return self._jvm.org.apache.iceberg.ManifestFiles.writeDeleteManifest(
            self._metadata.formatVersion(),
            self._metadata.spec(spec_id),
            self._operations.io().newOutputFile(path),
            None,  # it takes the id of the snapshot that it is committed with
        )

    def _read(self, manifest: Any, sort_in: Any) -> None:
        io, specs = self._operations.io(), self._metadata.specsById()
        reader = self._jvm.org.apache.iceberg.ManifestFiles.readDeleteManifest(manifest, io, specs)
        try:
            sort_in.bindTo(reader).invokeWithArguments(self._jvm.java.util.ArrayList())
        finally:
            reader.close()

    def _sorted_into(self, writers: Any, together: int) -> Any:
        """Of a reader: each of its live entries goes to the writer of its group."""
        java, iceberg, handles = self._jvm.java, self._jvm.org.apache.iceberg, self._handles
        entry, written, nothing = iceberg.ManifestEntry, iceberg.ManifestWriter, java.lang.Void.TYPE
        existing = self._inside.virtual(written, "existing", nothing, entry)
        file = self._inside.virtual(entry, "file", iceberg.ContentFile)
        get = handles.virtual(java.util.List, "get", java.lang.Object, java.lang.Integer.TYPE)
        writer = handles.chain(file, self._group(together), get.bindTo(writers))
        write = handles.with_first(existing, handles.returning(writer, written))
        entries = self._inside.virtual(iceberg.ManifestReader, "liveEntries", iceberg.io.CloseableIterable)
        each = handles.virtual(java.lang.Iterable, "forEach", nothing, java.util.function.Consumer)
        return handles.chain(
            entries, handles.given(each, 1, handles.as_interface(java.util.function.Consumer, write))
        )

    def _group(self, together: int) -> Any:
        """Of a file: the number of the group that its bucket is in."""
        java, iceberg = self._jvm.java, self._jvm.org.apache.iceberg
        handles, number = self._handles, java.lang.Integer.TYPE
        partition = handles.virtual(iceberg.ContentFile, "partition", iceberg.StructLike)
        get = handles.virtual(iceberg.StructLike, "get", java.lang.Object, number, java.lang.Class)
        bucket = handles.given(get, 1, 0, class_of(java.lang.Integer))
        bucket = handles.returning(bucket, number)
        divide = handles.static(java.lang.Math, "floorDiv", number, number, number)
        return handles.chain(partition, bucket, handles.given(divide, 1, together))


def _finished(writers: Any) -> Iterator[Any]:
    for writer in writers:
        writer.close()
        yield writer.toManifestFile()

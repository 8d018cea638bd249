"""The file behind a version."""

from pathlib import Path

from core.errors import StorageUnavailable
from core.payloads import is_payload
from core.ports import BlobRef, BlobRepository
from repositories.routes import Route
from serving.errors import hidden


class VersionFiles:
    """Finds the local file of a version's COG."""

    def __init__(self, blobs: BlobRepository) -> None:
        self._blobs = blobs

    def cog(self, route: Route) -> Path:
        """Return the path of a version's COG.

        Raises:
            NotFound: The version has none, as vectors do, or names a stored value of a job.
            StorageUnavailable: The version names a file that is not there.
        """
        if route.data_type != "raster" or route.blob_path is None:
            raise hidden()
        ref = BlobRef.parse(route.blob_path)
        if is_payload(ref.container, ref.name):
            raise hidden()
        path = self._blobs.local_path(ref)
        if path is None or not path.is_file():
            raise StorageUnavailable("the file of this version cannot be read")
        return path

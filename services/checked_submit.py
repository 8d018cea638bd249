"""A submit whose platform, shape and source were found good, and what it tells rows and workflows."""

from dataclasses import dataclass
from typing import Any

from core.models.business import Platform
from core.ports import BlobInfo
from core.sources import UrlSource
from core.submission import Submission
from services.source_secrets import SOURCE_INPUT

Json = dict[str, Any]

COPIES_CONTAINER = "bronze"
"""Where sources behind URLs are copied to."""


@dataclass(frozen=True, slots=True)
class CheckedSubmit:
    """A submit whose platform, shape and source were found good."""

    platform: Platform
    submission: Submission
    source: BlobInfo | UrlSource
    files: tuple[BlobInfo, ...] = ()
    """All files of a collection."""

    def source_row(self) -> Json:
        """Return what the version records of its source; what lies behind a URL is known when it was fetched."""
        if isinstance(self.source, UrlSource):
            return {"url": self.source.url}
        ref = self.source.ref
        if self.files:
            return {
                "container_name": ref.container,
                "blob_names": [one.ref.name for one in self.files],
                "size_bytes": sum(one.size_bytes for one in self.files),
                "etags": [one.etag for one in self.files],
            }
        return {
            "container_name": ref.container,
            "blob_name": ref.name,
            "size_bytes": self.source.size_bytes,
            "etag": self.source.etag,
        }

    def source_inputs(self, copies: str) -> Json:
        """Return how a workflow learns of the source; `copies` is where what is fetched goes."""
        if isinstance(self.source, UrlSource):
            return {
                SOURCE_INPUT: self.source.url,
                "source_file_name": self.source.file_name,
                "source_prefix": f"{COPIES_CONTAINER}/{copies}",
            }
        if self.files:
            return {"sources": [str(one.ref) for one in self.files], **self.submission.tolerances}
        return {"source": str(self.source.ref), "source_size_bytes": self.source.size_bytes}

"""Params and outputs of the handlers that copy public versions outside and take them back."""

from pydantic import Field

from core.handler_models import Output, Params

_EXPORT = r"^external/[^/]+/[^/]+/[^/]+$"


class ExportParams(Params):
    """What is copied, and under which name."""

    blob_path: str = Field(pattern=r"^silver/.+$", max_length=1100, description="container/name of the file.")
    size_bytes: int = Field(ge=0, description="Of the file; the copy must have as many.")
    output_prefix: str = Field(
        pattern=_EXPORT, max_length=512, description="Folder of this export alone; each attempt has one in it."
    )


class ExportOutput(Output):
    """Where the copy lies, and which run made it."""

    external_blob_path: str
    run_id: str = Field(description="Of the Data Factory, or of the copy.")
    size_bytes: int


class WithdrawParams(Params):
    """Which export goes."""

    folder: str = Field(pattern=_EXPORT, max_length=512, description="Folder of an export, with all its attempts.")


class WithdrawOutput(Output):
    """How much went."""

    removed: int

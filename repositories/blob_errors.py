"""What the errors of Azure's storage mean to us; never with the address, which may hold a signature."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from azure.core.exceptions import AzureError, HttpResponseError

from core.errors import Conflict, DataError, GeodagError, ParameterInvalid, StorageUnavailable
from core.ports import BlobRef

_TAKEN: Final = frozenset({"BlobAlreadyExists", "ConditionNotMet", "UnauthorizedBlobOverwrite"})
_BAD_NAMES: Final = frozenset({"InvalidUri", "InvalidResourceName", "OutOfRangeInput"})


@contextmanager
def translated(ref: BlobRef) -> Iterator[None]:
    """Turn the SDK's errors into ours; never with the address, which may hold a signature."""
    try:
        yield
    except HttpResponseError as error:
        raise _meaning(ref, error) from error
    except AzureError as error:
        raise StorageUnavailable(f"blob storage failed for {ref}: {kind_of(error)}", value=str(ref)) from error


def _meaning(ref: BlobRef, error: HttpResponseError) -> GeodagError:
    code = code_of(error)
    if error.status_code == 404 and code != "ContainerNotFound":
        return DataError(f"there is no blob {ref}", code="FILE_NOT_FOUND", field="file", value=str(ref))
    if error.status_code in (409, 412) and code in _TAKEN:
        return taken(ref)
    if error.status_code == 400 and code == "InvalidBlockList":
        return taken(ref)  # another writer's commit has thrown our parts away
    if error.status_code == 400 and code in _BAD_NAMES:
        return ParameterInvalid(f"blob {ref}: this storage refuses the name", field="blob_name", value=str(ref))
    return StorageUnavailable(f"blob storage failed for {ref}: {kind_of(error)}", value=str(ref))


def kind_of(error: AzureError) -> str:
    """Return what may be told of an error: status and code, or its class."""
    status = getattr(error, "status_code", None)
    return f"{status} {code_of(error)}".rstrip() if status else type(error).__name__


def code_of(error: AzureError) -> str:
    """Return the storage's own code of an error, empty when it has none."""
    code = getattr(error, "error_code", None) or ""
    return str(getattr(code, "value", code))


def taken(ref: BlobRef) -> Conflict:
    """Return the error for a name that is in use."""
    return Conflict(f"blob {ref} exists and is never overwritten", code="BLOB_EXISTS", value=str(ref))

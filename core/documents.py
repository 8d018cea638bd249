"""What one task writes and another reads, maybe of the build before or after: in an upgrade two run side by side.

Unknown fields are errors, since what they say would be lost. But they mean that a newer build wrote the document, so
its reader leaves it to newer workers. A new field has `exclude_if=is_empty`: where it says nothing it is left out, and
the build before reads the document. `tests/azure/upgrade/test_documents.py` has both builds read each other's.
"""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from core.errors import TransientError


class Document(BaseModel):
    """Base of what travels between tasks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of(cls, written: Mapping[str, Any]) -> Self:
        """Return what another task wrote.

        Raises:
            TransientError: A newer build says something that this one knows nothing of; such a worker can go on.
        """
        try:
            return cls.model_validate(written)
        except ValidationError as error:
            if news := unknown(error):
                raise newer(news) from error
            raise


def is_empty(value: object) -> bool:
    """Return whether a field says nothing."""
    return value is None or value == () or value == [] or value == {}


def unknown(error: ValidationError) -> list[str]:
    """Return the paths of the fields that a model does not know."""
    found = error.errors(include_url=False, include_input=False)
    return sorted(".".join(map(str, one["loc"])) for one in found if one["type"] == "extra_forbidden")


def newer(fields: list[str]) -> TransientError:
    """Return that a newer build wrote a document, so that the task is left to newer workers."""
    return TransientError(f"a newer build wrote {', '.join(fields)}, which this one does not know")
